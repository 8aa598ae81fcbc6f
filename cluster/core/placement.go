package core

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/cluster/placing"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Record keys.
const (
	prefixPlace  = "place/"
	prefixGroup  = "group/"
	prefixWorker = "worker/"
	prefixKeeps  = wire.PrefixSkipped + "keeps/"
)

// placement is an instance that the site holds: one record of what its parts below, and those of the packages beside, own. The ledger
// changes where it is and what lists depend on, whoever is named the rest.
type placement struct {
	A      spec.Assignment   `json:"assignment"`
	Origin string            `json:"origin"` // "root" or "local"
	Group  skerry.InstanceID `json:"group,omitempty"`
	location
	Removing bool             `json:"removing,omitempty"`
	Refused  bool             `json:"refused,omitempty"`
	Obs      wire.Observation `json:"observation"`
	Served   bool             `json:"served,omitempty"` // it was ready when its worker got out of touch
	Placed   time.Time        `json:"placed,omitzero"`
	Created  time.Time        `json:"created"`
	Extra    uint64           `json:"extra,omitempty"` // restarts that the site asked for while it was alone, beside the owner's
	Timeline []wire.Step      `json:"timeline,omitempty"`
	Decision *wire.Decision   `json:"decision,omitempty"`
	Strain   moves.Strain     `json:"strain,omitzero"`
	placing.Started
	Next *successor `json:"next,omitempty"` // the copy that is to take over
	resizing
	Original *original `json:"original,omitempty"` // the copy that was left behind on a worker out of touch
	placing.Located
	moves.Rebalanced
	placing.SLA

	used
	seeking
	drained bool // its worker is drained, and its owner was told that there is no room
}

// location is where an instance is, and where it may be: the ledger's.
type location struct {
	Worker string   `json:"worker,omitempty"`
	Pinned string   `json:"pinned,omitempty"` // the only worker that will do
	Spot   spot     `json:"spot,omitempty"`   // of a copy for a device
	Avoid  []string `json:"avoid,omitempty"`
	Moves  int      `json:"moves,omitempty"`
}

// resizing is what becomes of other limits that are wanted for an instance.
type resizing struct {
	Resize *resize `json:"resize,omitempty"` // which its worker was asked for
	// Limits says why it was not given the limits that its owner asked for; nil: it was, or its worker is at it.
	Limits *wire.LimitsRefusal `json:"limits,omitempty"`
}

// used is what its worker told last of what an instance uses.
type used struct {
	qos  *wire.QoS
	told float64 // the load that routes tell
}

// seeking is until when an instance without a place, or with a worker out of touch, need not be looked at.
type seeking struct {
	room  time.Time // others are making room for it
	again time.Time // plugins ruled it out, or a copy of it may still run
	gone  time.Time // since when nobody offers its device; zero: somebody does
}

// successor is a second copy of an instance that is to take over from the first: make before break. Both have the same
// id and hold their resources; the successor's fencing token is the higher one.
//
//	move asked for -> successor placed -> ready -> it is the instance; the old copy is told to end
//	                        |
//	                        +-- failed, gone, or not ready in time -> the old copy stays
type successor struct {
	Worker  string           `json:"worker"`
	Runtime string           `json:"runtime,omitempty"`
	Devices []string         `json:"devices,omitempty"`
	Fence   skerry.Fence     `json:"fence"`
	Obs     wire.Observation `json:"observation"`
	Since   time.Time        `json:"since"`
	Why     string           `json:"why"`
	Rescue  bool             `json:"rescue,omitempty"` // the instance's worker got out of touch
	// Checkpoint: it starts from the first copy's memory, for the key Recipient once it has told that; Down is when that stopped serving for
	// it.
	Checkpoint bool      `json:"carry,omitempty"`
	Recipient  string    `json:"recipient,omitempty"`
	Down       time.Time `json:"down,omitzero"`
}

// What happens to an instance that ran when its worker got out of touch. Nobody can know from here whether it still does.
//
//	onDisconnect: run        stranded: a copy starts elsewhere, as in a migration (see successor)
//	                           worker back first, and the instance ready -> the copy ends, nothing else happens
//	                           copy ready first -> it is the instance now; the one left behind is the original
//	onDisconnect: stopAfter  stranded until its worker has surely stopped it, then placed anew
//
// When the original's worker is back, onReconnect decides. The winner gets the higher fencing token: an original takes it
// over in place (Assignment.PriorFence), so that nothing healthy is ever restarted because a link came back.
type original struct {
	Worker string         `json:"worker"`
	Fence  skerry.Fence   `json:"fence"`
	Need   spec.Resources `json:"need,omitzero"` // it may have more than what has taken its place
}

// resize is a change of a placement's limits while it runs: what its worker was asked for last, and has not confirmed.
//
//	other limits wanted ──worker can, and has room──► asked for ──they apply──► the placement's own
//	        │                                            ▲  │
//	        └── refused: the owner replaces it           └──┴── more memory is in use: it is told upward, the worker tries again
//
// Until the worker has confirmed, the larger of each resource counts as promised.
type resize struct {
	Spec     spec.ServiceSpec  `json:"spec"`
	Revision string            `json:"revision"`
	Gen      skerry.Generation `json:"generation"`
	Peak     spec.Resources    `json:"peak"` // of all that it may have meanwhile
}

func (p *placement) claims() spec.VolumeClaim {
	return spec.VolumeClaim{Service: p.A.Service, Ordinal: p.A.Ordinal}
}

// target is the assignment that a placement's worker has, or is to have.
func (p *placement) target() spec.Assignment {
	a := p.A
	a.Successor = nil // is asked of the site
	if r := p.Resize; r != nil {
		a.Spec, a.Revision, a.Gen = r.Spec, r.Revision, r.Gen
	}
	return a
}

// need is what a placement may take of its worker.
func (p *placement) need() spec.Resources {
	n := p.A.Spec.Need()
	if r := p.Resize; r != nil {
		n = n.Most(r.Spec.Need()).Most(r.Peak)
	}
	return n
}

// charge is what a placement takes of a worker that it is on, or that its successor is on: what it needs, and what its runtime takes there.
func (p *placement) charge(worker string) spec.Resources {
	runtime := p.A.Runtime
	if p.Next != nil && p.Next.Worker == worker {
		runtime = p.Next.Runtime
	}
	return p.need().Add(p.A.Spec.Overhead(runtime))
}

// deviceKey names a device among what of a worker is taken.
func deviceKey(name string) string { return "device " + name }

// takes gives the ports and devices of a worker that a placement takes there.
func (p *placement) takes(worker string) (out []string) {
	devices := p.A.Devices
	if p.Next != nil && p.Next.Worker == worker {
		devices = p.Next.Devices
	}
	for _, d := range devices {
		out = append(out, deviceKey(d))
	}
	for _, q := range p.A.Spec.Ports {
		if q.HostPort > 0 {
			out = append(out, sched.PortKey(q))
		}
	}
	return out
}

// ended reports whether nothing of the placement runs any more.
func (p *placement) ended() bool {
	return p.Obs.State == skerry.Terminated || p.Obs.State == skerry.Failed
}

// at reports whether a worker has a part in a placement: it is there, is to be, or was and may be again.
func (p *placement) at(worker string) bool {
	return p.Worker == worker || p.Next != nil && p.Next.Worker == worker || p.Original != nil && p.Original.Worker == worker
}

// bound says why an instance cannot leave its worker without losing what it is there for, or "".
func (p *placement) bound(force bool) string {
	s := &p.A.Spec
	switch {
	case p.spot().inNetwork():
		return "it is the copy for a device in a network, which the site gives to a worker that sees it"
	case p.Spot != "":
		return "it is the copy for a device of the worker"
	case p.Pinned != "":
		return "it is the worker's own copy of a service that runs once per worker"
	case s.Placement.Worker != "":
		return "its manifest names this worker"
	case s.Mode == spec.ModeJob || s.Mode == spec.ModeCron:
		return "it runs to its end"
	case !force && s.KeepsData():
		return "it keeps data in its local volumes, which do not go along"
	case !force && len(spec.PathsOfWorker(s)) > 0:
		return "it keeps data at " + spec.PathsOfWorker(s)[0] + " of this worker, which does not go along"
	}
	return ""
}

// starting reports whether a worker has yet to run what it was given. What belongs to the worker has no other place.
func (p *placement) starting() bool {
	return p.Worker != "" && p.Group == "" && p.Pinned == "" && !p.Removing && !p.Ran && !p.Obs.Unreachable &&
		p.Obs.State != skerry.Running && !p.ended() && p.Obs.Phase != skerry.PhaseCutOff
}

// limited reports whether a link of the service limits where instances may run.
func (p *placement) limited() bool { return slices.ContainsFunc(p.A.Spec.Links, spec.Link.Limited) }

// limits reports whether a link of the service limits how far an instance of another may be.
func (p *placement) limits(o *placement) bool {
	return slices.ContainsFunc(p.A.Spec.Links, func(l spec.Link) bool { return l.Service == o.A.Service.Service && l.Limited() })
}

// load is the part of its processors that an instance uses, in steps of a sixteenth so that routes do not change with every
// report; 0 where it is not known.
func (p *placement) load() float64 {
	if p.qos == nil || p.A.Spec.Need().CPU <= 0 {
		return 0
	}
	return math.Round(min(float64(p.qos.CPU)/float64(p.A.Spec.Need().CPU), 1)*16) / 16
}

// stopsAfter reports whether the site ends an instance when it is without the root for so long.
func (p *placement) stopsAfter() (after time.Duration, ok bool) {
	d, ok := p.A.Spec.OnDisconnect.StopAfter()
	return d, ok && p.A.Failover && p.Origin == "root" && p.Group == ""
}

// settleLimits makes the limits that were asked for those of the placement.
func (p *placement) settleLimits() {
	if r := p.Resize; r != nil {
		p.A.Spec, p.A.Revision, p.A.Gen = r.Spec, r.Revision, r.Gen
		p.Resize, p.Limits = nil, nil
	}
}

// mayRun reports whether an instance that must not run twice may run for all that is known: its worker was told, and may have
// started it after it was last heard.
func (p *placement) mayRun() bool {
	_, stops := p.A.Spec.OnDisconnect.StopAfter()
	return stops && !p.ended()
}

// ripe reports whether an instance has been where it is for long enough to be moved by the site itself.
func (p *placement) ripe(now time.Time) bool {
	return p.Rebalanced.Ripe(now, p.Placed) && !p.SLA.Rests(now) && !p.SLA.Alarmed()
}

// sortedIDs gives the keys in order: what a core does must not depend on the order of a map.
func sortedIDs[V any](m map[skerry.InstanceID]V) []skerry.InstanceID {
	out := make([]skerry.InstanceID, 0, len(m))
	for id := range m {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	return data
}

// differs reports whether an assignment is about another service than the one that a placement was admitted with,
// whatever its revision says.
func differs(p *placement, a *spec.Assignment) bool {
	t := p.target()
	return a.Spec.Revision() != t.Spec.Revision() || a.Org != t.Org || a.Service != t.Service || !maps.Equal(a.Digest, t.Digest)
}

// spot is where a copy of a group belongs.
func (p *placement) spot() spot { return cmp.Or(p.Spot, spot(p.Pinned)) }

// lostDevice reports whether a copy has ended at its worker because its device went, rather than by itself.
func (p *placement) lostDevice() bool {
	always := p.A.Spec.Restart.Policy == "" || p.A.Spec.Restart.Policy == "always"
	return p.Group != "" && len(p.A.Devices) > 0 && p.Obs.State == skerry.Failed && always && !p.Removing
}
