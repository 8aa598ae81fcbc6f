package lab

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Role is what a host runs.
type Role string

// Roles of hosts.
const (
	RoleRoot    Role = "root"
	RoleCluster Role = "cluster"
	RoleWorker  Role = "worker"
	RoleNone    Role = "none" // a machine without Skerry: somebody outside
	RoleNAT     Role = "nat"  // a router that translates addresses, without Skerry
)

// Topology is what a lab consists of. Without links all hosts are on one fast LAN.
type Topology struct {
	Name    string `json:"name"`
	Network string `json:"network,omitempty"` // IPv4 prefix of the hosts; default 10.88.0.0/24
	Hosts   []Host `json:"hosts"`
	Links   []Link `json:"links,omitempty"`
}

// Host is one machine of the lab.
type Host struct {
	Name    string `json:"name"` // a DNS label; a cluster's and a worker's is its name in Skerry, too
	Role    Role   `json:"role,omitempty"`
	Root    string `json:"root,omitempty"`    // of a cluster; default the only root; "none" leaves it without
	Cluster string `json:"cluster,omitempty"` // of a worker; default the only cluster
	Address string `json:"address,omitempty"` // default the next free one of the network, or of its NAT's inside
	Behind  string `json:"behind,omitempty"`  // the NAT that joins it to the network

	// Of a NAT.
	NAT    NAT    `json:"nat,omitempty"`    // its kind
	Inside string `json:"inside,omitempty"` // IPv4 prefix of those behind it; default 192.168.N.0/24 for the N-th NAT

	// Limits hold for all that runs in the host together, its role included: how large a machine it is.
	Limits Limits `json:"limits,omitzero"`

	// What a worker is told of itself.
	Resources spec.Resources    `json:"resources,omitempty"` // capacity; its limits, or the machine's, unless given
	Area      string            `json:"area,omitempty"`
	Location  *spec.Location    `json:"location,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`

	// Admission of a cluster; default: the organisation that every root begins with is trusted.
	Admission map[string]any `json:"admission,omitempty"`
	// Args are added to the role's command line.
	Args []string `json:"args,omitempty"`
}

// Limits of a host, by its cgroup; 0 is as much as the machine has.
type Limits struct {
	CPU    skerry.MilliCPU `json:"cpu,omitempty"`    // at least 10m
	Memory skerry.Bytes    `json:"memory,omitempty"` // at least 16Mi; what needs more is ended by the kernel
}

// minLimits are the least: with less no role starts.
const (
	minLimitCPU    = 10 * skerry.MilliCPU(1)
	minLimitMemory = 16 * skerry.MiB
)

// Link gives a host's cable, or the way between two sides, its qualities. The way between two hosts takes the place of
// what their own cables have of delay, jitter and loss. A side is a host, or SITE/* for a cluster with its workers.
type Link struct {
	Host    string        `json:"host,omitempty"`
	Between []string      `json:"between,omitempty"` // two sides
	Delay   spec.Duration `json:"delay,omitempty"`   // one way
	Jitter  spec.Duration `json:"jitter,omitempty"`
	Loss    Share         `json:"loss,omitempty"`
	// Shares of packets that arrive twice, and that later ones overtake.
	Duplicate Share `json:"duplicate,omitempty"`
	Reorder   Share `json:"reorder,omitempty"`
	Rate      Rate  `json:"rate,omitempty"` // of a host's cable, each way
}

// Share is a part of the whole, written as "1%" or 0.01.
type Share float64

// UnmarshalJSON reads a share.
func (s *Share) UnmarshalJSON(data []byte) error {
	v, err := ParseShare(strings.Trim(string(data), `"`))
	*s = v
	return err
}

// ParseShare reads "1%" or "0.01".
func ParseShare(text string) (Share, error) {
	number, percent := strings.CutSuffix(text, "%")
	f, err := strconv.ParseFloat(number, 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f >= 0 && f <= 1) {
		return 0, fmt.Errorf("%q is not a share; write 1%% or 0.01, at most 100%%", text)
	}
	return Share(f), nil
}

func (s Share) String() string { return strconv.FormatFloat(float64(s)*100, 'g', 4, 64) + "%" }

// Rate is a speed in bits per second, written as "10mbit"; 0 is no limit.
type Rate int64

// UnmarshalJSON reads a rate.
func (r *Rate) UnmarshalJSON(data []byte) error {
	v, err := ParseRate(strings.Trim(string(data), `"`))
	*r = v
	return err
}

// MarshalJSON writes a rate as UnmarshalJSON reads it.
func (r Rate) MarshalJSON() ([]byte, error) { return json.Marshal(r.String()) }

// rateUnits are tried in order; the last has no suffix to be mistaken for.
var rateUnits = []struct {
	suffix string
	bits   float64
}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}

// ParseRate reads "512kbit", "10mbit", "1gbit".
func ParseRate(text string) (Rate, error) {
	lower := strings.ToLower(text)
	if lower == "0" {
		return 0, nil
	}
	for _, u := range rateUnits {
		number, ok := strings.CutSuffix(lower, u.suffix)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(f*u.bits >= 0 && f*u.bits <= 1e12) || f > 0 && f*u.bits < 8000 {
			break
		}
		return Rate(f * u.bits), nil
	}
	return 0, fmt.Errorf("%q is not a rate; write 512kbit, 10mbit or 1gbit, at least 8kbit, or 0 for none", text)
}

func (r Rate) String() string {
	for _, u := range rateUnits {
		if n := float64(r) / u.bits; n >= 1 {
			return strconv.FormatFloat(n, 'g', -1, 64) + u.suffix
		}
	}
	return "0"
}

// maxTopology is the largest file accepted, in bytes; maxHosts the most hosts.
const (
	maxTopology = 1 << 20
	maxHosts    = 200
)

// Load reads a topology from a YAML file.
func Load(file string) (Topology, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Topology{}, skerry.Errorf(skerry.CodeNotFound, "topology: %w", err)
	}
	t, err := Parse(data)
	if e := skerry.AsError(err); err != nil && e != nil {
		e.Message = file + ": " + e.Message
		return t, e
	}
	return t, err
}

// Parse reads a topology from YAML and fills in what it leaves out. Every problem is named with its path.
func Parse(data []byte) (Topology, error) {
	var t Topology
	if len(data) > maxTopology {
		return t, skerry.Errorf(skerry.CodeTooLarge, "the topology has %d bytes; at most %d are accepted", len(data), maxTopology)
	}
	j, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return t, skerry.Errorf(skerry.CodeInvalid, "the topology is not valid YAML: %w", err)
	}
	problems := spec.DecodeStrict(j, &t)
	if len(problems) == 0 {
		problems = t.complete()
	}
	if len(problems) > 0 {
		return t, &skerry.Error{Code: skerry.CodeInvalid, Message: "the topology is not valid", Problems: problems,
			Hint: "docs/LAB.md describes every field"}
	}
	return t, nil
}

// complete checks a topology and fills in the defaults.
func (t *Topology) complete() (problems []skerry.Problem) {
	bad := func(path, hint, format string, args ...any) {
		problems = append(problems, skerry.Problem{Path: path, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	if err := skerry.CheckName(t.Name); err != nil {
		bad("name", "", "%v", err)
	} else if len(t.Name) > 32 {
		bad("name", "", "the name is longer than 32 characters")
	}
	t.Network = cmp.Or(t.Network, "10.88.0.0/24")
	network, err := netip.ParsePrefix(t.Network)
	if err != nil || !network.Addr().Is4() || network.Bits() > 28 {
		bad("network", "write it as 10.88.0.0/24", "%q is not an IPv4 prefix of at most 28 bits", t.Network)
		return problems
	}
	if len(t.Hosts) == 0 || len(t.Hosts) > maxHosts {
		bad("hosts", "", "a lab has 1 to %d hosts, not %d", maxHosts, len(t.Hosts))
	}
	seen := map[string]int{}
	for i := range t.Hosts {
		host, at := &t.Hosts[i], fmt.Sprintf("hosts[%d]", i)
		if err := skerry.CheckName(host.Name); err != nil {
			bad(at+".name", "", "%v", err)
		} else if host.Name == wanName {
			bad(at+".name", "choose another name", "%q is the network between the hosts", host.Name)
		}
		if first, ok := seen[host.Name]; ok {
			bad(at+".name", "", "%q is also hosts[%d]", host.Name, first)
		}
		seen[host.Name] = i
		host.Role = cmp.Or(host.Role, RoleNone)
		if !slices.Contains([]Role{RoleRoot, RoleCluster, RoleWorker, RoleNone, RoleNAT}, host.Role) {
			bad(at+".role", "use root, cluster, worker, nat or none", "there is no role %q", host.Role)
		}
		if host.Role != RoleWorker && (host.Resources != (spec.Resources{}) || host.Area != "" || host.Location != nil || len(host.Labels) > 0) {
			bad(at, "only workers have resources, area, location and labels", "%s is not a worker", host.Name)
		}
		if l := host.Limits; l.CPU != 0 && (l.CPU < minLimitCPU || l.CPU > 1e6) || l.Memory != 0 && l.Memory < minLimitMemory {
			bad(at+".limits", "at least {cpu: 10m, memory: 16Mi}", "%s of processors and %s of memory are no machine", l.CPU, l.Memory)
		}
		if host.Limits != (Limits{}) && host.Role == RoleNAT {
			bad(at+".limits", "", "a NAT runs nothing that could be limited")
		}
		if host.Role == RoleWorker {
			host.Resources.CPU, host.Resources.Memory = cmp.Or(host.Resources.CPU, host.Limits.CPU),
				cmp.Or(host.Resources.Memory, host.Limits.Memory)
		}
		if host.Role != RoleCluster && host.Admission != nil {
			bad(at+".admission", "", "only a cluster has an admission policy")
		}
		if (host.Role == RoleNone || host.Role == RoleNAT) && len(host.Args) > 0 {
			bad(at+".args", "", "a host without a role runs no command")
		}
	}
	t.checkNATs(network, bad)
	t.addresses(bad)
	t.parents(bad)
	for i, l := range t.Links {
		t.checkLink(l, fmt.Sprintf("links[%d]", i), bad)
	}
	return problems
}

// addresses gives every host one. Those behind different NATs may have the same.
func (t *Topology) addresses(bad func(path, hint, format string, args ...any)) {
	type place struct {
		behind string
		addr   netip.Addr
	}
	used := map[place]string{}
	for _, h := range t.Hosts {
		if h.Role == RoleNAT {
			used[place{h.Name, h.inside()}] = h.Name
		}
	}
	for i := range t.Hosts {
		h := &t.Hosts[i]
		if h.Address == "" {
			continue
		}
		network, at := t.net(h), fmt.Sprintf("hosts[%d].address", i)
		a, err := netip.ParseAddr(h.Address)
		switch p := (place{h.Behind, a}); {
		case err != nil || !a.Is4() || !network.Contains(a):
			bad(at, "", "%q is not an address in %s", h.Address, network)
		case used[p] != "":
			bad(at, "", "%s is also that of %s", a, used[p])
		default:
			used[p] = h.Name
		}
	}
	for i := range t.Hosts {
		h := &t.Hosts[i]
		if h.Address != "" {
			continue
		}
		network := t.net(h)
		next := network.Addr().Next()
		for used[place{h.Behind, next}] != "" {
			next = next.Next()
		}
		if !network.Contains(next) || !network.Contains(next.Next()) {
			bad("network", "choose a larger network", "%s has no address for %s", network, h.Name)
			return
		}
		h.Address, used[place{h.Behind, next}] = next.String(), h.Name
	}
}

// parents finds the root of each cluster and the cluster of each worker.
func (t *Topology) parents(bad func(path, hint, format string, args ...any)) {
	find := func(at, field, given string, want Role, none bool) string {
		of := t.withRole(want)
		switch {
		case given == "none" && none:
			return given
		case given != "" && !slices.Contains(of, given):
			bad(at+"."+field, "name a host with role "+string(want), "there is no %s %q", want, given)
		case given != "":
			return given
		case len(of) == 1:
			return of[0]
		case len(of) == 0 && none:
			return "none"
		case len(of) == 0:
			bad(at, "add one", "there is no host with role %s", want)
		default:
			bad(at+"."+field, "name one of "+strings.Join(of, ", "), "there are several hosts with role %s", want)
		}
		return ""
	}
	for i := range t.Hosts {
		h, at := &t.Hosts[i], fmt.Sprintf("hosts[%d]", i)
		switch h.Role {
		case RoleCluster:
			h.Root = find(at, "root", h.Root, RoleRoot, true)
		case RoleWorker:
			h.Cluster = find(at, "cluster", h.Cluster, RoleCluster, false)
		}
		if h.Root != "" && h.Role != RoleCluster {
			bad(at+".root", "", "only a cluster has a root")
		}
		if h.Cluster != "" && h.Role != RoleWorker {
			bad(at+".cluster", "", "only a worker has a cluster")
		}
		// Who is behind a NAT calls out, and is not called.
		if p := t.Host(strings.TrimPrefix(cmp.Or(h.Root, h.Cluster), "none")); p != nil && p.Behind != "" &&
			!slices.Contains(t.routers(h.Name), t.Host(p.Behind)) {
			bad(at+".behind", "put both behind it, or "+p.Name+" before it", "%s cannot reach %s, which is behind the NAT %s", h.Name, p.Name,
				p.Behind)
		}
	}
}

func (t *Topology) checkLink(l Link, at string, bad func(path, hint, format string, args ...any)) {
	switch {
	case l.Host == "" && len(l.Between) != 2:
		bad(at, "give host: NAME, or between: [A, B]", "a link is a host's cable or the way between two sides")
	case l.Host != "" && len(l.Between) > 0:
		bad(at, "make two links of it", "a link has either host or between")
	case l.Host != "" && t.Host(l.Host) == nil:
		bad(at+".host", "", "there is no host %q", l.Host)
	}
	known := len(l.Between) == 2
	for i, s := range l.Between {
		if len(t.side(s)) == 0 {
			bad(fmt.Sprintf("%s.between[%d]", at, i), "name a host, or CLUSTER/* for a site", "there is no host or site %q", s)
			known = false
		}
	}
	if known {
		if _, err := t.waysBetween(l.Between[0], l.Between[1], false); err != nil {
			bad(at+".between", skerry.AsError(err).Hint, "%s", skerry.AsError(err).Message)
		}
	}
	if len(l.Between) > 0 && l.Rate > 0 {
		bad(at+".rate", "give the rate to one of the hosts: {host: NAME, rate: 10mbit}", "only a host's cable has a rate")
	}
	if outer := t.outer(l.Host); outer != l.Host && (l.Delay > 0 || l.Jitter > 0 || l.Loss > 0 || l.Duplicate > 0 || l.Reorder > 0) {
		bad(at, "give them to "+outer, "%s is behind the NAT %s; its own cable has a rate, and nothing else", l.Host, outer)
	}
	if d := time.Duration(l.Delay + l.Jitter); d > time.Minute {
		bad(at+".delay", "", "%s is more than a minute", d)
	}
}

// Host finds a host by name, or gives nil. Nobody has an empty name.
func (t *Topology) Host(name string) *Host {
	for i := range t.Hosts {
		if name != "" && t.Hosts[i].Name == name {
			return &t.Hosts[i]
		}
	}
	return nil
}

func (t *Topology) withRole(r Role) (out []string) {
	for _, h := range t.Hosts {
		if h.Role == r {
			out = append(out, h.Name)
		}
	}
	return out
}

// side gives the hosts that a name means: one host, or with SITE/* a cluster and its workers. Who is behind a NAT has the NAT
// stand for it: the network between the hosts sees no more of it.
func (t *Topology) side(name string) (out []string) {
	site, all := strings.CutSuffix(name, "/*")
	for _, h := range t.Hosts {
		if h.Name == site && (!all || h.Role == RoleCluster) || all && h.Cluster == site {
			if outer := t.outer(h.Name); !slices.Contains(out, outer) {
				out = append(out, outer)
			}
		}
	}
	return out
}
