package spec

import (
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
)

// Limits of one service's placement constraints.
const (
	MaxUsers       = 100
	MaxAffinities  = 100
	MaxTolerations = 100
	MaxClusters    = 100
)

// Policies of a cluster by name; a site may offer more as plugins, named plugin/NAME.
const (
	PolicyROM        = "rom"        // Resource-Only Match (Oakestra, Algorithm 1)
	PolicyLDP        = "ldp"        // Latency & Distance Aware Placement (Oakestra, Algorithm 2)
	PolicySpread     = "spread"     // far from instances of the same service
	PolicyPack       = "pack"       // on as few workers as possible
	PolicyContention = "contention" // where it slows down others, and is slowed down, least
	PolicyEnergy     = "energy"     // where it adds the fewest watts
	PolicyFirstFit   = "first-fit"  // baseline: the first by name that has room
	PolicyBestFit    = "best-fit"   // baseline: the fullest that has room
	PolicyWorstFit   = "worst-fit"  // baseline: the emptiest
	PluginPrefix     = "plugin/"
)

// PolicyNames lists the built-in policies.
func PolicyNames() []string {
	return []string{PolicyROM, PolicyLDP, PolicySpread, PolicyPack, PolicyContention, PolicyEnergy, PolicyFirstFit, PolicyBestFit, PolicyWorstFit}
}

// Link states that a service talks to another of the same application. Its limits bind whichever of the two is placed
// second.
type Link struct {
	Service     string       `json:"service" doc:"Name of the other service."`
	MaxLatency  *Duration    `json:"maxLatency,omitempty" doc:"Longest round trip to an instance of it (Schema 1: latency)."`
	MaxDistance float64      `json:"maxDistance,omitempty" doc:"Longest great-circle distance to an instance of it, in kilometres (Schema 1: threshold)." min:"0"`
	Bandwidth   skerry.Bytes `json:"bandwidth,omitempty" doc:"Bytes per second that an instance sends to it. The sum of all links is reserved on the worker, as a part of resources.bandwidthOut if that is set."`
	// Both are about the limits above, and no part of what an instance runs.
	Rigidness       *float64  `json:"rigidness,omitempty" doc:"How soon a violation of this link's limits leads to a new placement (Schema 1: rigidness). Default: that of placement." min:"0" max:"1"`
	ConvergenceTime *Duration `json:"convergenceTime,omitempty" doc:"Maximum time for finding a place within this link's limits (Schema 1: convergence_time). The shortest of these and of placement counts. Default: that of placement."`
}

// Limited reports whether the link limits where instances may run.
func (l Link) Limited() bool { return l.MaxLatency != nil || l.MaxDistance > 0 }

// Placement states where instances may run (the part of the SLA that is about location and decision).
type Placement struct {
	Policy          string            `json:"policy,omitempty" doc:"Scheduling policy of the cluster: rom, ldp, spread, pack, contention, energy, first-fit, best-fit, worst-fit, or plugin/NAME for a plugin of the site. Default: ldp when a link or a user has limits, else rom. A limit of a link to it binds a service with rom, too."`
	Area            string            `json:"area,omitempty" doc:"Name of the area that the worker must be in (Schema 1: area)."`
	Location        *Location         `json:"location,omitempty" doc:"Point near which instances must run (Schema 1: location)."`
	MaxDistance     float64           `json:"maxDistance,omitempty" doc:"Longest great-circle distance to location, in kilometres (Schema 1: threshold)." min:"0"`
	MaxLatency      *Duration         `json:"maxLatency,omitempty" doc:"Longest round trip to every user with an address that sets none of its own (Schema 1: latency)."`
	Users           []User            `json:"users,omitempty" doc:"Users or devices that the service must be near to (service-to-user constraints)."`
	Cluster         string            `json:"cluster,omitempty" doc:"The only cluster that may run it."`
	Clusters        []string          `json:"clusters,omitempty" doc:"Clusters that may run it. Default: all."`
	ClusterLabels   map[string]string `json:"clusterLabels,omitempty" doc:"Labels that the cluster must have. Operators of the root set them."`
	Worker          string            `json:"worker,omitempty" doc:"The only worker that may run it."`
	Arch            []string          `json:"arch,omitempty" doc:"Architectures that it may run on: amd64, arm64, riscv64, arm. Default: those that its images are built for."`
	Devices         []string          `json:"devices,omitempty" doc:"Devices that the worker must offer."`
	Labels          map[string]string `json:"labels,omitempty" doc:"Labels that the worker must have."`
	Affinity        []Affinity        `json:"affinity,omitempty" doc:"Services to run next to."`
	AntiAffinity    []Affinity        `json:"antiAffinity,omitempty" doc:"Services to keep apart from."`
	Tolerations     []Toleration      `json:"tolerations,omitempty" doc:"Taints of workers that it tolerates."`
	Priority        int               `json:"priority,omitempty" doc:"When there is no room, instances of lower priority are moved or ended to make some. Default: 0." min:"-1000" max:"1000"`
	Contention      *Contention       `json:"contention,omitempty" doc:"How much it loads shared resources and how much it suffers when they are loaded. Default: learned from its use."`
	Rigidness       *float64          `json:"rigidness,omitempty" doc:"How soon a violated SLA leads to a new placement: 0 never, 1 at once (Schema 1: rigidness). Default: 0.5." min:"0" max:"1"`
	ConvergenceTime *Duration         `json:"convergenceTime,omitempty" doc:"Maximum time for finding a place (Schema 1: convergence_time); after that the reasons are reported and the search continues more slowly. Default: 30s."`
}

// Location is a point on the earth in degrees.
type Location struct {
	Lat float64 `json:"lat" doc:"Latitude in degrees, north positive." min:"-90" max:"90" cbor:"1,keyasint,omitempty"`
	Lon float64 `json:"lon" doc:"Longitude in degrees, east positive." min:"-180" max:"180" cbor:"2,keyasint,omitempty"`
}

// Valid reports whether the point exists.
func (l Location) Valid() bool {
	return l.Lat >= -90 && l.Lat <= 90 && l.Lon >= -180 && l.Lon <= 180
}

// User is someone, or a device, that a service must be near to. Both limits hold where both are given.
type User struct {
	Location    *Location `json:"location,omitempty" doc:"Where the user is (geo_trg of the paper's Algorithm 2)."`
	MaxDistance float64   `json:"maxDistance,omitempty" doc:"Longest great-circle distance to location, in kilometres." min:"0"`
	Address     string    `json:"address,omitempty" doc:"IP address of the user, with :PORT for round trips by TCP where ICMP is not answered (lat_trg)."`
	MaxLatency  *Duration `json:"maxLatency,omitempty" doc:"Longest round trip to address, estimated from round trips that a few workers measure."`
}

// Affinity names services of the same application by their labels.
type Affinity struct {
	Labels    map[string]string `json:"labels" doc:"Labels of the services to match."`
	Over      string            `json:"over,omitempty" doc:"Meaning of the same place: worker or area. Default: worker." enum:"worker,area"`
	Preferred bool              `json:"preferred,omitempty" doc:"Prefer such a place, but accept another if there is none."`
}

// Toleration lets instances run on workers with a taint.
type Toleration struct {
	Key   string `json:"key" doc:"Key of the taint; * for every taint."`
	Value string `json:"value,omitempty" doc:"Value of the taint. Default: any."`
}

// Tolerates reports whether the toleration covers a taint, written KEY or KEY=VALUE.
func (t Toleration) Tolerates(taint string) bool {
	k, v, _ := strings.Cut(taint, "=")
	return t.Key == "*" || t.Key == k && (t.Value == "" || t.Value == v)
}

// Contention says how a service gets on with others on one machine (thesis, chapter 2): how much of a resource that
// nobody can reserve it takes, and how much slower it gets when others take all of it.
type Contention struct {
	Intensity   Shares `json:"intensity,omitempty" doc:"Share of the machine's resource that an instance takes."`
	Sensitivity Shares `json:"sensitivity,omitempty" doc:"Slowdown when others take all of the resource: 1 is twice as slow."`
}

// Shares holds a number from 0 to 1 for each resource that neighbours share.
type Shares struct {
	CPU             float64 `json:"cpu,omitempty" doc:"Processor time." min:"0" max:"1" cbor:"1,keyasint,omitempty"`
	Cache           float64 `json:"cache,omitempty" doc:"Last-level cache." min:"0" max:"1" cbor:"2,keyasint,omitempty"`
	MemoryBandwidth float64 `json:"memoryBandwidth,omitempty" doc:"Memory bandwidth." min:"0" max:"1" cbor:"3,keyasint,omitempty"`
	Disk            float64 `json:"disk,omitempty" doc:"Disk throughput." min:"0" max:"1" cbor:"4,keyasint,omitempty"`
	Network         float64 `json:"network,omitempty" doc:"Network throughput." min:"0" max:"1" cbor:"5,keyasint,omitempty"`
}

// NumShares is the number of shared resources.
const NumShares = 5

// ShareNames names the entries of Vector, in order.
var ShareNames = [NumShares]string{"cpu", "cache", "memoryBandwidth", "disk", "network"}

// Vector gives the shares in the order of ShareNames.
func (s Shares) Vector() [NumShares]float64 {
	return [NumShares]float64{s.CPU, s.Cache, s.MemoryBandwidth, s.Disk, s.Network}
}

// SharesOf is the inverse of Vector.
func SharesOf(v [NumShares]float64) Shares { return Shares{v[0], v[1], v[2], v[3], v[4]} }

// Plus adds the contention of another service. No share falls below none.
func (k Contention) Plus(o Contention) Contention { return k.sum(o, 1) }

// Minus takes it off.
func (k Contention) Minus(o Contention) Contention { return k.sum(o, -1) }

func (k Contention) sum(o Contention, sign float64) Contention {
	add := func(x, y Shares) Shares {
		v, w := x.Vector(), y.Vector()
		for i := range v {
			v[i] = max(0, v[i]+sign*w[i])
		}
		return SharesOf(v)
	}
	return Contention{add(k.Intensity, o.Intensity), add(k.Sensitivity, o.Sensitivity)}
}

// Constrained reports whether a link or a user limits where instances may run, which is what LDP is for.
func (s *ServiceSpec) Constrained() bool {
	return len(s.Placement.Users) > 0 || slices.ContainsFunc(s.Links, Link.Limited)
}

// UserLatency gives the longest round trip to a user, in milliseconds, or 0 for none.
func (p *Placement) UserLatency(u User) float64 {
	d := u.MaxLatency
	if d == nil && u.Address != "" {
		d = p.MaxLatency
	}
	if d == nil {
		return 0
	}
	return float64(*d) / 1e6
}

// ParseTarget reads the address of a user: an IP address, or one with a port. Names are refused, because every worker
// could take them for another machine; so are addresses that mean something else on every machine.
func ParseTarget(s string) (addr netip.Addr, port int, err error) {
	host := s
	if h, p, e := net.SplitHostPort(s); e == nil {
		host = h
		if port, err = strconv.Atoi(p); err != nil || port < 1 || port > 65535 {
			return addr, 0, fmt.Errorf("%q has no valid port", s)
		}
	}
	if addr, err = netip.ParseAddr(strings.Trim(host, "[]")); err != nil {
		return addr, 0, fmt.Errorf("%q is not an IP address", s)
	}
	addr = addr.Unmap()
	if addr.Zone() != "" || addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return addr, 0, fmt.Errorf("%q is not the address of one machine", s)
	}
	return addr, port, nil
}

// AllowsCluster reports whether a cluster may run the service.
func (p *Placement) AllowsCluster(name string) bool {
	return (p.Cluster == "" || p.Cluster == name) && (len(p.Clusters) == 0 || slices.Contains(p.Clusters, name))
}

// ConvergenceTime gives the maximum time for finding a place: the shortest of the placement's and of the links with limits.
func (s *ServiceSpec) ConvergenceTime() time.Duration {
	least := time.Duration(*s.Placement.ConvergenceTime)
	for _, l := range s.Links {
		if l.ConvergenceTime != nil {
			least = min(least, time.Duration(*l.ConvergenceTime))
		}
	}
	return least
}

// Rigidness gives that of the link to a service, or else of the placement; nil: the default.
func (s *ServiceSpec) Rigidness(link string) *float64 {
	for i := range s.Links {
		if s.Links[i].Service == link && s.Links[i].Rigidness != nil {
			return s.Links[i].Rigidness
		}
	}
	return s.Placement.Rigidness
}

func (c *checker) placement(p string, q Placement) {
	if !strings.HasPrefix(q.Policy, PluginPrefix) {
		c.oneOf(p+".policy", q.Policy, PolicyNames()...)
	} else {
		c.name(p+".policy", strings.TrimPrefix(q.Policy, PluginPrefix))
	}
	c.near(p, q.Location, q.MaxDistance)
	if q.MaxDistance > 0 && q.Location == nil {
		c.add(p+".maxDistance", "add location: {lat: ..., lon: ...}", "a distance needs a location to be measured from")
	}
	if q.Rigidness != nil && !(*q.Rigidness >= 0 && *q.Rigidness <= 1) {
		c.add(p+".rigidness", "", "must be from 0 to 1")
	}
	if q.MaxLatency != nil && !slices.ContainsFunc(q.Users, func(u User) bool { return u.Address != "" }) {
		c.add(p+".maxLatency", "add users: [{address: ...}], or set maxLatency on a link", "a round trip needs a user with an address to be measured to")
	}
	if q.Cluster != "" {
		c.name(p+".cluster", q.Cluster)
	}
	c.clusters(p+".clusters", q)
	c.clusterLabels(p+".clusterLabels", q.ClusterLabels)
	if q.Worker != "" {
		c.name(p+".worker", q.Worker)
	}
	for i, a := range q.Arch {
		c.oneOf(fmt.Sprintf("%s.arch[%d]", p, i), a, "amd64", "arm64", "riscv64", "arm")
	}
	c.between(p+".priority", q.Priority, -1000, 1000)
	c.atMost(p+".users", len(q.Users), MaxUsers)
	for i, u := range q.Users {
		c.user(fmt.Sprintf("%s.users[%d]", p, i), u, q)
	}
	c.affinities(p+".affinity", q.Affinity)
	c.affinities(p+".antiAffinity", q.AntiAffinity)
	c.atMost(p+".tolerations", len(q.Tolerations), MaxTolerations)
	for i, t := range q.Tolerations {
		if t.Key == "" {
			c.add(fmt.Sprintf("%s.tolerations[%d].key", p, i), "write the taint's key, or *", "a key is missing")
		}
	}
	if q.Contention != nil {
		c.shares(p+".contention.intensity", q.Contention.Intensity)
		c.shares(p+".contention.sensitivity", q.Contention.Sensitivity)
	}
}

func (c *checker) clusters(p string, q Placement) {
	c.atMost(p, len(q.Clusters), MaxClusters)
	for i, name := range q.Clusters {
		ip := fmt.Sprintf("%s[%d]", p, i)
		if c.name(ip, name); slices.Contains(q.Clusters[:i], name) {
			c.add(ip, "name each cluster once", "cluster %q is there twice", name)
		}
	}
	if q.Cluster != "" && len(q.Clusters) > 0 {
		c.add(p, "leave one of them out", "cluster and clusters are both given")
	}
}

func (c *checker) clusterLabels(p string, labels map[string]string) {
	c.atMost(p, len(labels), MaxLabels)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if err := skerry.AsError(CheckLabel(key, labels[key])); err != nil {
			c.add(p, err.Hint, "%s", err.Message)
		}
	}
}

// links checks what links ask for together.
func (c *checker) links(p string, s *ServiceSpec) {
	for i, l := range s.Links {
		if l.Bandwidth < 0 || l.Bandwidth > maxBandwidth {
			c.add(fmt.Sprintf("%s.links[%d].bandwidth", p, i), "", "must be from 0 to %s", maxBandwidth)
			return
		}
	}
	if sum := s.linksBandwidth(); s.Resources.BandwidthOut > 0 && sum > s.Resources.BandwidthOut {
		c.add(p+".links", "raise resources.bandwidthOut, or leave it out",
			"the links take %s per second, and resources.bandwidthOut holds the instance to %s", sum, s.Resources.BandwidthOut)
	}
}

// maxBandwidth bounds what a link may ask for: no machine has more.
const maxBandwidth = skerry.TiB

// link checks the limits of one.
func (c *checker) link(p string, l Link) {
	if !(l.MaxDistance >= 0) || math.IsInf(l.MaxDistance, 0) {
		c.add(p+".maxDistance", "", "must be zero or more")
	}
	if l.Rigidness != nil && !(*l.Rigidness >= 0 && *l.Rigidness <= 1) {
		c.add(p+".rigidness", "", "must be from 0 to 1")
	}
	if l.Limited() {
		return
	}
	const hint = "add maxLatency or maxDistance to the link"
	if l.Rigidness != nil {
		c.add(p+".rigidness", hint, "a link without limits cannot be violated")
	}
	if l.ConvergenceTime != nil {
		c.add(p+".convergenceTime", hint, "a link without limits is met everywhere")
	}
}

// maxDescription bounds what is said for people.
const maxDescription = 1000

func (c *checker) description(p, text string) {
	if len(text) > maxDescription {
		c.add(p, "write less; labels hold what programs look for", "%d bytes; at most %d are allowed", len(text), maxDescription)
	}
}

func (c *checker) affinities(p string, list []Affinity) {
	c.atMost(p, len(list), MaxAffinities)
	for i, a := range list {
		ap := fmt.Sprintf("%s[%d]", p, i)
		if len(a.Labels) == 0 {
			c.add(ap+".labels", "write labels: {KEY: VALUE}", "labels are missing")
		}
		c.oneOf(ap+".over", a.Over, "worker", "area")
	}
}

func (c *checker) shares(p string, s Shares) {
	for i, v := range s.Vector() {
		if !(v >= 0 && v <= 1) {
			c.add(p+"."+ShareNames[i], "", "must be from 0 to 1")
		}
	}
}

func (c *checker) near(p string, at *Location, km float64) {
	if at != nil && !at.Valid() {
		c.add(p+".location", "lat is -90 to 90, lon is -180 to 180, in degrees", "is not a point on the earth")
	}
	if !(km >= 0) || math.IsInf(km, 0) {
		c.add(p+".maxDistance", "", "must be zero or more, in kilometres")
	}
}

func (c *checker) user(p string, u User, q Placement) {
	c.near(p, u.Location, u.MaxDistance)
	if u.Address != "" {
		if _, _, err := ParseTarget(u.Address); err != nil {
			c.add(p+".address", "write an IP address that workers can reach, such as 192.0.2.7 or 192.0.2.7:443", "%s", err)
		}
	}
	switch {
	case u.MaxDistance > 0 && u.Location == nil:
		c.add(p+".maxDistance", "add location: {lat: ..., lon: ...}", "a distance needs a location to be measured from")
	case u.MaxLatency != nil && u.Address == "":
		c.add(p+".maxLatency", "add address: ...", "a round trip needs an address to be measured to")
	case u.MaxDistance == 0 && q.UserLatency(u) == 0:
		c.add(p, "add maxDistance with location, or maxLatency with address", "a user without a limit rules nothing out")
	}
}

func (c *checker) atMost(p string, n, most int) {
	if n > most {
		c.add(p, "", "%d entries; at most %d are allowed", n, most)
	}
}

// Coordinate is a place in the network's coordinate space (Vivaldi, with a height): the round trip between two of them
// is the distance of their vectors plus both heights. All numbers but Error are milliseconds.
type Coordinate struct {
	Vec    [CoordinateDims]float64 `json:"vec" cbor:"1,keyasint"`
	Height float64                 `json:"height" cbor:"2,keyasint,omitempty"`
	// Error is the coordinate's own estimate of its relative error, 0 to about 1.5; the start is 1.
	Error float64 `json:"error" cbor:"3,keyasint,omitempty"`
}

// CoordinateDims is the number of dimensions beside the height.
const CoordinateDims = 3

// RTT estimates the round trip between two coordinates, in milliseconds (Dabek et al., Vivaldi, section 5.4).
func (c Coordinate) RTT(d Coordinate) float64 {
	sum := 0.0
	for i := range c.Vec {
		sum += (c.Vec[i] - d.Vec[i]) * (c.Vec[i] - d.Vec[i])
	}
	return math.Sqrt(sum) + c.Height + d.Height
}

// Valid reports whether every number is finite and in the range that a network on this planet has: a minute at most.
func (c Coordinate) Valid() bool {
	const most = 60_000
	for _, v := range append(c.Vec[:], c.Height, c.Error) {
		if !(v >= -most && v <= most) {
			return false
		}
	}
	return c.Height >= 0 && c.Error >= 0
}
