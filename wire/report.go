package wire

import (
	"maps"
	"math"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Class is a capability class: workers that can run the same things. The root sees counts and distributions per class
// and no single worker, because a site's machines are its own business (docs/RATIONALE.md, "Why small classes are
// reported in coarse steps").
type Class struct {
	Arch     string   `json:"arch" cbor:"1,keyasint"`
	Runtimes []string `json:"runtimes" cbor:"2,keyasint,omitempty"` // sorted
	Devices  []string `json:"devices,omitempty" cbor:"3,keyasint,omitempty"`
	Egress   bool     `json:"egress,omitempty" cbor:"4,keyasint,omitempty"`   // as in WorkerFacts
	Features []string `json:"features,omitempty" cbor:"5,keyasint,omitempty"` // likewise, sorted
}

// Moments describe the distribution of what is available over the workers of a class: sum, mean and standard deviation
// (Oakestra, section 3.2: the aggregate distribution of available capacity).
type Moments struct {
	Sum    float64 `json:"sum" cbor:"1,keyasint,omitempty"`
	Mean   float64 `json:"mean" cbor:"2,keyasint,omitempty"`
	StdDev float64 `json:"stddev" cbor:"3,keyasint,omitempty"`
}

// MomentsOf gives the moments of a population; the deviation is that of the population, not of a sample.
func MomentsOf(values []float64) Moments {
	if len(values) == 0 {
		return Moments{}
	}
	var m Moments
	for _, v := range values {
		m.Sum += v
	}
	m.Mean = m.Sum / float64(len(values))
	var sq float64
	for _, v := range values {
		sq += (v - m.Mean) * (v - m.Mean)
	}
	m.StdDev = math.Sqrt(sq / float64(len(values)))
	return m
}

// ClassAggregate is what the root learns of one capability class of a site.
type ClassAggregate struct {
	Class     Class                      `json:"class" cbor:"1,keyasint"`
	Workers   int                        `json:"workers" cbor:"2,keyasint"`
	Available [spec.NumResources]Moments `json:"available" cbor:"3,keyasint"`
	// Coarse is set when the class had fewer than three workers and values were rounded so that no single worker shows.
	Coarse bool `json:"coarse,omitempty" cbor:"4,keyasint,omitempty"`
}

// ClusterReport is what a site tells the root of itself, at an interval; it is never written to disk.
type ClusterReport struct {
	Classes   []ClassAggregate `json:"classes,omitempty" cbor:"1,keyasint,omitempty"`
	Areas     []string         `json:"areas,omitempty" cbor:"2,keyasint,omitempty"`
	Centroid  *spec.Location   `json:"centroid,omitempty" cbor:"3,keyasint,omitempty"`
	RadiusKm  float64          `json:"radiusKm,omitempty" cbor:"4,keyasint,omitempty"`
	Instances int              `json:"instances" cbor:"5,keyasint,omitempty"`
	// Services folds the quality of service of what the root placed here.
	Services []ServiceQoS `json:"services,omitempty" cbor:"6,keyasint,omitempty"`
	Seq      uint64       `json:"seq" cbor:"7,keyasint,omitempty"`
	// Network is the middle of the workers' coordinates and NetworkMs the longest round trip from there to one of them.
	Network   *spec.Coordinate `json:"network,omitempty" cbor:"8,keyasint,omitempty"`
	NetworkMs float64          `json:"networkMs,omitempty" cbor:"9,keyasint,omitempty"`
	// Lowest is the lowest priority of what runs here: a service of higher priority may be given room. Nil: nothing runs.
	Lowest *int `json:"lowest,omitempty" cbor:"10,keyasint,omitempty"`
	// Ingress is nil where no application of the root has a way in.
	Ingress *SiteIngress `json:"ingress,omitempty" cbor:"11,keyasint,omitempty"`
	// Arrivals is what came to the root's services by way of the site's ingresses.
	Arrivals []IngressUse `json:"came,omitempty" cbor:"12,keyasint,omitempty"`
	// Grants are what the site lets the root's users do inside it. The site checks each request by itself; this is for people to see.
	Grants []Grant `json:"grants,omitempty" cbor:"13,keyasint,omitempty"`
	// Upgrade is nil while the root wants none here.
	Upgrade *SiteUpgrade `json:"upgrade,omitempty" cbor:"14,keyasint,omitempty"`
	// Certificates is nil where no host has one of a public authority.
	Certificates *SiteCertificates `json:"certificates,omitempty" cbor:"15,keyasint,omitempty"`
}

// MaxClasses bounds the classes of workers that a site tells of.
const MaxClasses = 1024

// Bound leaves out what is too much, and what is there twice: of a service the first counts.
func (r *ClusterReport) Bound() {
	r.Classes = r.Classes[:min(len(r.Classes), MaxClasses)]
	seen := make(map[skerry.ServiceKey]bool, len(r.Services))
	r.Services = slices.DeleteFunc(r.Services, func(q ServiceQoS) bool {
		twice := seen[q.Service]
		seen[q.Service] = true
		return twice
	})
	if r.Upgrade != nil {
		r.Upgrade.Bound()
	}
	if r.Certificates != nil {
		r.Certificates.Bound()
	}
}

// SiteCertificates counts what a site's certificates of a public authority come to. One may be expiring and failing as well.
type SiteCertificates struct {
	Hosts    int `json:"hosts" cbor:"1,keyasint,omitempty" doc:"Hosts that want one."`
	Valid    int `json:"valid" cbor:"2,keyasint,omitempty" doc:"Certificates that clients get."`
	Expiring int `json:"expiring" cbor:"3,keyasint,omitempty" doc:"Certificates whose renewal is overdue."`
	Failing  int `json:"failing" cbor:"4,keyasint,omitempty" doc:"Hosts whose orders fail or are refused."`
	Unserved int `json:"unserved" cbor:"5,keyasint,omitempty" doc:"Valid certificates that some clients do not get."`
}

// Bound cuts counts that cannot be.
func (s *SiteCertificates) Bound() {
	for _, n := range []*int{&s.Hosts, &s.Valid, &s.Expiring, &s.Failing, &s.Unserved} {
		*n = min(max(*n, 0), maxSaidCount)
	}
}

// ServiceQoS folds the use of all instances of a service at one site.
type ServiceQoS struct {
	Service skerry.ServiceKey `json:"service" cbor:"1,keyasint"`
	QoS     QoS               `json:"qos" cbor:"2,keyasint"`
	Ready   int               `json:"ready" cbor:"3,keyasint,omitempty"`
}

// QoS is what an instance uses and how it fares, from the worker's heartbeat.
type QoS struct {
	CPU        skerry.MilliCPU `json:"cpu" cbor:"1,keyasint,omitempty"`                 // used, mean since the last report
	Memory     skerry.Bytes    `json:"memory" cbor:"2,keyasint,omitempty"`              // resident now
	Throttled  float64         `json:"throttled,omitempty" cbor:"3,keyasint,omitempty"` // share of periods, 0 to 1
	OOMKills   int64           `json:"oomKills,omitempty" cbor:"4,keyasint,omitempty"`
	RxBytes    int64           `json:"rxBytes,omitempty" cbor:"5,keyasint,omitempty"`
	TxBytes    int64           `json:"txBytes,omitempty" cbor:"6,keyasint,omitempty"`
	ReadBytes  int64           `json:"readBytes,omitempty" cbor:"7,keyasint,omitempty"`
	WriteBytes int64           `json:"writeBytes,omitempty" cbor:"8,keyasint,omitempty"`
	Waiting    float64         `json:"waiting,omitempty" cbor:"9,keyasint,omitempty"`  // share of time in which it could run and had no processor, 0 to 1
	Disk       float64         `json:"disk,omitempty" cbor:"10,keyasint,omitempty"`    // share of the disk's time that it takes, 0 to 1
	Network    float64         `json:"network,omitempty" cbor:"11,keyasint,omitempty"` // share of the machine's bandwidth that it takes, 0 to 1
	ProbeMs    float64         `json:"probeMs,omitempty" cbor:"13,keyasint,omitempty"` // mean time of its readiness probes, in milliseconds
	// Links holds the round trip, in milliseconds, to the nearest endpoint of each service that it is linked to with a limit.
	Links map[string]float64 `json:"links,omitempty" cbor:"12,keyasint,omitempty"`
}

// Add folds two: amounts are summed; of shares of time and of round trips the larger counts.
func (q QoS) Add(o QoS) QoS {
	sum := QoS{CPU: q.CPU + o.CPU, Memory: q.Memory + o.Memory, Throttled: max(q.Throttled, o.Throttled), OOMKills: q.OOMKills + o.OOMKills,
		RxBytes: q.RxBytes + o.RxBytes, TxBytes: q.TxBytes + o.TxBytes,
		ReadBytes: q.ReadBytes + o.ReadBytes, WriteBytes: q.WriteBytes + o.WriteBytes,
		Waiting: max(q.Waiting, o.Waiting), ProbeMs: max(q.ProbeMs, o.ProbeMs), Disk: q.Disk + o.Disk, Network: q.Network + o.Network}
	for _, links := range []map[string]float64{q.Links, o.Links} {
		for k, ms := range links {
			if sum.Links == nil {
				sum.Links = map[string]float64{}
			}
			sum.Links[k] = max(sum.Links[k], ms)
		}
	}
	return sum
}

// RuntimeReport is the verdict of a runtime's self-test on one worker.
type RuntimeReport struct {
	Name      string   `json:"name" cbor:"1,keyasint"`
	Passed    bool     `json:"passed" cbor:"2,keyasint"`
	Cause     string   `json:"cause,omitempty" cbor:"3,keyasint,omitempty"`
	Cure      string   `json:"cure,omitempty" cbor:"4,keyasint,omitempty"`
	Version   string   `json:"version,omitempty" cbor:"5,keyasint,omitempty"`
	Abilities []string `json:"abilities,omitempty" cbor:"6,keyasint,omitempty"`
	Absent    bool     `json:"absent,omitempty" cbor:"7,keyasint,omitempty"` // nobody has installed its programs, and most machines do without
	// Profile is what the worker measured of it; nil: nothing, and published figures count.
	Profile  *RuntimeProfile `json:"profile,omitempty" cbor:"8,keyasint,omitempty"`
	Emulated bool            `json:"emulated,omitempty" cbor:"9,keyasint,omitempty"` // its machines have no real processor, and are many times slower
}

// NoUserNamespaces reports whether containers run with the host's users where they should have their own: their root is root outside.
func (r *RuntimeReport) NoUserNamespaces() bool {
	return r.Name == spec.RuntimeOCI && r.Passed && !slices.Contains(r.Abilities, spec.AbilityUserNS)
}

// HostUsers reports whether containers run with the host's users, because they cannot have their own or the runtime never gives them any.
func (r *RuntimeReport) HostUsers() bool {
	_, class := spec.ParseRuntime(r.Name)
	k := spec.RuntimeNamed(r.Name)
	outside := r.Name == spec.RuntimeContainerd || class != "" && k != nil && k.Isolation == spec.IsolationShared
	return r.NoUserNamespaces() || r.Passed && outside
}

// SharedUsers reports whether the containers of an organisation have the same users, because owners of files cannot be mapped there.
func (r *RuntimeReport) SharedUsers() bool {
	return r.Passed && slices.Contains(r.Abilities, spec.AbilityUserNSCopies)
}

// WorkerFacts is what a worker tells its cluster of the machine; it changes rarely.
type WorkerFacts struct {
	Capacity spec.Resources    `json:"capacity" cbor:"1,keyasint"`
	Arch     string            `json:"arch" cbor:"2,keyasint"`
	OS       string            `json:"os" cbor:"3,keyasint,omitempty"`
	Kernel   string            `json:"kernel,omitempty" cbor:"4,keyasint,omitempty"`
	Runtimes []RuntimeReport   `json:"runtimes" cbor:"5,keyasint,omitempty"`
	Devices  []string          `json:"devices,omitempty" cbor:"6,keyasint,omitempty"`
	Labels   map[string]string `json:"labels,omitempty" cbor:"7,keyasint,omitempty"`
	Area     string            `json:"area,omitempty" cbor:"8,keyasint,omitempty"`
	Location *spec.Location    `json:"location,omitempty" cbor:"9,keyasint,omitempty"`
	Address  string            `json:"address,omitempty" cbor:"10,keyasint,omitempty"` // at which host ports are reached
	Version  string            `json:"version,omitempty" cbor:"11,keyasint,omitempty"`
	Taints   []string          `json:"taints,omitempty" cbor:"12,keyasint,omitempty"` // KEY or KEY=VALUE: only services that tolerate them come here
	Power    *Power            `json:"power,omitempty" cbor:"13,keyasint,omitempty"`
	Probe    string            `json:"probe,omitempty" cbor:"14,keyasint,omitempty"`   // host:port at which other workers measure round trips by UDP
	Overlay  *OverlayFacts     `json:"overlay,omitempty" cbor:"15,keyasint,omitempty"` // nil: it takes no part
	Agent    *AgentFacts       `json:"agent,omitempty" cbor:"16,keyasint,omitempty"`   // nil: it was never told to go over to another program
	// Attachable are devices that one instance at a time may have, as vendor.com/class=name, class=name or by their stable path; sorted.
	Attachable []string `json:"attachable,omitempty" cbor:"18,keyasint,omitempty"`
	// DeviceDetails tells more of some of them. They do not leave the site. Older clusters give each device to one instance.
	DeviceDetails []Device `json:"deviceDetails,omitempty" cbor:"24,keyasint,omitempty"`
	// Egress: it holds instances to Assignment.Egress. Older agents ignore that.
	Egress bool `json:"egress,omitempty" cbor:"19,keyasint,omitempty"`
	// Levels: it gives no instance more than Assignment.Level. Older agents ignore that.
	Levels bool `json:"levels,omitempty" cbor:"20,keyasint,omitempty"`
	// Accelerators: it hands devices of these classes in for gpus and tpus. Nil: it only counts them.
	Accelerators *spec.Accelerators `json:"accelerators,omitempty" cbor:"22,keyasint,omitempty"`
	// Signatures: it starts no image that none of Assignment.Signers has signed. Older agents ignore that.
	Signatures bool `json:"signatures,omitempty" cbor:"21,keyasint,omitempty"`
	// Features are those of spec.AgentFeatures that it honours. Older agents leave out in silence what they do not know.
	Features []string `json:"features,omitempty" cbor:"23,keyasint,omitempty"`
	// External is the kind of an agent that is not Skerry's own, though it speaks over the link, as "kubernetes": nothing is placed there that
	// is not among the abilities of its runtimes. Empty: Skerry's own, or one that its carrier shows.
	External string `json:"external,omitempty" cbor:"25,keyasint,omitempty"`
}

// Device is what a worker tells of a device beyond its name.
type Device struct {
	Name   string            `json:"name" cbor:"1,keyasint"`
	Labels map[string]string `json:"labels,omitempty" cbor:"2,keyasint,omitempty"`
	Shares int               `json:"shares,omitempty" cbor:"3,keyasint,omitempty"` // instances that may have it at a time; 0: one
	At     string            `json:"at,omitempty" cbor:"4,keyasint,omitempty"`     // where it is now: its node, or its host in the network
}

// Kept is what a site's store has of them: nothing is placed on a worker that is not connected.
func (f *WorkerFacts) Kept() *WorkerFacts {
	kept := *f
	kept.Features, kept.DeviceDetails = nil, nil
	return &kept
}

// Details gives what a worker tells of its devices, by name, within bounds: an agent may be anybody's.
func (f *WorkerFacts) Details() map[string]Device {
	if len(f.DeviceDetails) == 0 {
		return nil
	}
	out := map[string]Device{}
	for _, d := range f.DeviceDetails[:min(len(f.DeviceDetails), spec.MaxDevices)] {
		if len(d.Labels) > spec.MaxDeviceLabels {
			d.Labels = nil
		}
		d.Shares = min(max(d.Shares, 1), spec.MaxDeviceShares)
		out[d.Name] = d
	}
	return out
}

// Knows reports whether a worker's agent honours a feature.
func (f *WorkerFacts) Knows(feature string) bool { return slices.Contains(f.Features, feature) }

// AgentKey is the key of the AgentOrder in a worker's desired set.
const AgentKey = "agent"

// AgentOrder has a worker's agent go over to another program, if it does as well as the present one.
type AgentOrder struct {
	Seq    uint64        `json:"seq" cbor:"1,keyasint"`    // grows with each order to this worker
	Image  string        `json:"image" cbor:"2,keyasint"`  // has the program as /skerry; pinned by its digest where that is known
	Window spec.Duration `json:"window" cbor:"3,keyasint"` // in which it has to do; 0: two minutes
	Steady spec.Duration `json:"steady" cbor:"4,keyasint"` // for how long without a break; 0: 15 s
}

// AgentStage is how far a worker is with an AgentOrder.
type AgentStage string

// Stages of an order.
const (
	AgentFetching AgentStage = "Fetching"
	AgentTrial    AgentStage = "Trial"  // the new program works under the eyes of the old one
	AgentPassed   AgentStage = "Passed" // it is the agent's program now
	AgentFailed   AgentStage = "Failed" // the old one is
)

// AgentFacts tell how far a worker is with the last order that it took up.
type AgentFacts struct {
	Order uint64     `json:"order" cbor:"1,keyasint"`
	Stage AgentStage `json:"stage" cbor:"2,keyasint"`
	From  string     `json:"from,omitempty" cbor:"3,keyasint,omitempty"` // versions
	To    string     `json:"to,omitempty" cbor:"4,keyasint,omitempty"`
	Why   string     `json:"why,omitempty" cbor:"5,keyasint,omitempty"` // it failed
}

// Power is what a machine draws, in watts: doing nothing, and with all cores busy.
type Power struct {
	Idle float64 `json:"idle" cbor:"1,keyasint,omitempty"`
	Busy float64 `json:"busy" cbor:"2,keyasint,omitempty"`
}

// WorkerReport is a worker's heartbeat: what is used now, and how each instance fares. It is never written to disk.
type WorkerReport struct {
	Seq       uint64                    `json:"seq" cbor:"1,keyasint,omitempty"`
	Facts     *WorkerFacts              `json:"facts,omitempty" cbor:"2,keyasint,omitempty"` // when new or changed
	Used      spec.Resources            `json:"used" cbor:"3,keyasint,omitempty"`            // by the whole machine
	Instances map[skerry.InstanceID]QoS `json:"instances,omitempty" cbor:"4,keyasint,omitempty"`
	// Refusing is not empty when the worker takes no new work, and says why (a full disk, a drain).
	Refusing string `json:"refusing,omitempty" cbor:"5,keyasint,omitempty"`
	// Coordinate is nil until a few round trips were measured.
	Coordinate *spec.Coordinate `json:"coordinate,omitempty" cbor:"6,keyasint,omitempty"`
	// Pressure is nil where the kernel does not tell.
	Pressure *Pressure `json:"pressure,omitempty" cbor:"7,keyasint,omitempty"`
	// Frozen is not empty while the worker is held on its device, and says why: it carries out nothing that it is asked for.
	Frozen string `json:"held,omitempty" cbor:"8,keyasint,omitempty"`
	// Ingress is what came to services by way of the worker's ingress, whoever runs them.
	Ingress []IngressUse `json:"ingress,omitempty" cbor:"9,keyasint,omitempty"`
	// Heard is a few of the round trips to other workers that it measured of late; the next report has others.
	Heard []PeerRTT `json:"heard,omitempty" cbor:"10,keyasint,omitempty"`
	// Pace is nil from agents that do not adapt their interval.
	Pace *ReportPace `json:"pace,omitempty" cbor:"11,keyasint,omitempty"`
	// Changes: Instances has only those whose use has changed since the report before; the others are as they were, but for those in Gone.
	// It is told only to who offers FeatureChanges.
	Changes bool                `json:"changes,omitempty" cbor:"12,keyasint,omitempty"`
	Gone    []skerry.InstanceID `json:"gone,omitempty" cbor:"13,keyasint,omitempty"`
}

// FeatureChanges is offered by who understands reports that have only what changed.
const FeatureChanges = "changes"

// Complete gives the use of all instances, where a report has only what changed since they were told; others says which of those that it
// does not name still count.
func (r *WorkerReport) Complete(told map[skerry.InstanceID]QoS, others func(skerry.InstanceID) bool) {
	if !r.Changes {
		return
	}
	all := map[skerry.InstanceID]QoS{}
	for id, q := range told {
		if others(id) {
			all[id] = q
		}
	}
	for _, id := range r.Gone {
		delete(all, id)
	}
	maps.Copy(all, r.Instances)
	r.Instances, r.Changes, r.Gone = all, false, nil
}

// ReportPace is how often a worker reports, and why.
type ReportPace struct {
	Every uint32 `json:"every" cbor:"1,keyasint,omitempty"` // milliseconds from report to report of late; 0: it has just begun
	Why   string `json:"why" cbor:"2,keyasint,omitempty"`   // one of those below
}

// What makes the interval of a worker's reports what it is.
const (
	PaceIdle    = "idle"    // nothing changes
	PaceChange  = "change"  // something does
	PaceLimit   = "limit"   // something is near a limit, as the cluster sees it
	PaceLink    = "link"    // the link is slow or loses much: reports wait for it
	PaceMetered = "metered" // the profile of the site says so
	PaceFixed   = "fixed"   // it does not adapt
)

// Urgency is what a cluster tells a worker of how near a limit something there is (a Report of kind ReportUrgency). It is
// forgotten when the connection ends.
type Urgency struct {
	Gain uint32 `json:"gain" cbor:"1,keyasint,omitempty"` // by how much a change counts for more than usual, 1 to 8; 0: 1
}

// PeerRTT is a round trip to another worker.
type PeerRTT struct {
	Probe string  `json:"probe" cbor:"1,keyasint"` // WorkerFacts.Probe of the other
	Ms    float64 `json:"ms" cbor:"2,keyasint"`    // the usual one of late
}

// IngressUse is what comes to a service from outside by way of ingresses.
type IngressUse struct {
	Service  skerry.ServiceKey `json:"service" cbor:"1,keyasint"`
	Requests float64           `json:"requests" cbor:"2,keyasint,omitempty"` // or TCP connections, per second of late
	Active   float64           `json:"active" cbor:"3,keyasint,omitempty"`   // under way now
	Ms       float64           `json:"ms" cbor:"4,keyasint,omitempty"`       // mean time of those that ended of late, in milliseconds
}

// Valid reports whether an ingress can have counted that: no number is negative, none, or beyond all bounds.
func (u IngressUse) Valid() bool {
	return u.Requests >= 0 && u.Requests < 1e9 && u.Active >= 0 && u.Active < 1e9 && u.Ms >= 0 && u.Ms < 1e9
}

// MaxIngressUses bounds the services of which a worker or a site tells what comes to them.
const MaxIngressUses = 4096

// Add folds the use of two ingresses.
func (u IngressUse) Add(o IngressUse) IngressUse {
	sum := IngressUse{Service: u.Service, Requests: u.Requests + o.Requests, Active: u.Active + o.Active, Ms: max(u.Ms, o.Ms)}
	if sum.Requests > 0 {
		sum.Ms = (u.Ms*u.Requests + o.Ms*o.Requests) / sum.Requests
	}
	return sum
}

// Pressure is the share of time, 0 to 1, in which something on the machine waited for a resource (the kernel's pressure
// stall information, "some" over ten seconds).
type Pressure struct {
	CPU    float64 `json:"cpu" cbor:"1,keyasint,omitempty"`
	Memory float64 `json:"memory" cbor:"2,keyasint,omitempty"`
	IO     float64 `json:"io" cbor:"3,keyasint,omitempty"`
}

// PassedRuntimes lists the names of the runtimes that passed their self-test.
func (f *WorkerFacts) PassedRuntimes() []string {
	var out []string
	for _, r := range f.Runtimes {
		if r.Passed {
			out = append(out, r.Name)
		}
	}
	return out
}

// Kinds of reports.
const (
	ReportCluster = "cluster" // ClusterReport
	ReportWorker  = "worker"  // WorkerReport
	ReportUrgency = "urgency" // Urgency, from a cluster to a worker
)
