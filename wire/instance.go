package wire

import (
	"reflect"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// SuccessorAnswer says whether a successor has a place. Without a revision it says that such a question would be answered.
type SuccessorAnswer struct {
	Revision string `json:"revision,omitempty" cbor:"1,keyasint,omitempty"`
	Why      string `json:"why,omitempty" cbor:"2,keyasint,omitempty"` // it has none; empty: it has one
}

// AutonomyGrace is how long a cluster that has just started, and does not know since when the root has been out of touch, waits
// for it before it ends what may not run for so long.
const AutonomyGrace = 30 * time.Second

// AssignmentKey and the other key functions give the keys of items in sets.
func AssignmentKey(id skerry.InstanceID) string { return "inst/" + string(id) }

// EndpointsKey is the key of the Endpoints of a service in a worker's desired set.
func EndpointsKey(k skerry.ServiceKey) string { return "ep/" + k.String() }

// Endpoint is where a service is reached. Where its worker is in the overlay that is a service address, which leads to the
// ready instances in turn; else it is one ready instance, at its own address or at a port of its worker.
type Endpoint struct {
	Name     string            `json:"name,omitempty" cbor:"-"` // that stands for a service address
	Instance skerry.InstanceID `json:"instance,omitempty" cbor:"1,keyasint"`
	Port     string            `json:"port" cbor:"2,keyasint"`    // name of the port
	Address  string            `json:"address" cbor:"3,keyasint"` // host:port
	Protocol string            `json:"protocol" cbor:"4,keyasint,omitempty"`
}

// Endpoints lists the endpoints of one service; workers that run something linked to it keep them in a file.
type Endpoints struct {
	Service skerry.ServiceKey `json:"service" cbor:"1,keyasint"`
	List    []Endpoint        `json:"endpoints" cbor:"2,keyasint"`
}

// PortBinding is a port of an instance with the port of the worker that leads to it.
type PortBinding struct {
	Name     string `json:"name" cbor:"1,keyasint"`
	Port     int    `json:"port" cbor:"2,keyasint"`
	HostPort int    `json:"hostPort,omitempty" cbor:"3,keyasint,omitempty"`
	Protocol string `json:"protocol" cbor:"4,keyasint,omitempty"`
	Address  string `json:"address,omitempty" cbor:"5,keyasint,omitempty"` // host:port, set by the cluster
}

// Exit says how a container ended.
type Exit struct {
	Code      int       `json:"code" cbor:"1,keyasint"`
	Signal    string    `json:"signal,omitempty" cbor:"2,keyasint,omitempty"`
	OOMKilled bool      `json:"oomKilled,omitempty" cbor:"3,keyasint,omitempty"`
	At        time.Time `json:"at" cbor:"4,keyasint"`
	Message   string    `json:"message,omitempty" cbor:"5,keyasint,omitempty"`
	// StorageExceeded: the worker ended it because it had more on the disk than it may; Message says how much.
	StorageExceeded bool `json:"storageExceeded,omitempty" cbor:"6,keyasint,omitempty"`
}

// Observation is what a child reports of one instance: an item of its observed set, under AssignmentKey. It repeats the
// generation and fence that it reflects. Worker names and addresses never go from a cluster to the root.
type Observation struct {
	ID        skerry.InstanceID `json:"id" cbor:"1,keyasint"`
	Gen       skerry.Generation `json:"generation" cbor:"2,keyasint"`
	Fence     skerry.Fence      `json:"fence" cbor:"3,keyasint"`
	State     skerry.State      `json:"state" cbor:"4,keyasint"`
	Phase     skerry.Phase      `json:"phase,omitempty" cbor:"5,keyasint,omitempty"`
	Ready     bool              `json:"ready" cbor:"6,keyasint,omitempty"`
	Reason    string            `json:"reason,omitempty" cbor:"7,keyasint,omitempty"`
	Restarts  int               `json:"restarts,omitempty" cbor:"8,keyasint,omitempty"`
	Restart   uint64            `json:"restart,omitempty" cbor:"9,keyasint,omitempty"` // the request that was carried out last
	Exit      *Exit             `json:"exit,omitempty" cbor:"10,keyasint,omitempty"`
	StartedAt time.Time         `json:"startedAt,omitzero" cbor:"11,keyasint,omitzero"`
	Ports     []PortBinding     `json:"ports,omitempty" cbor:"12,keyasint,omitempty"`
	Address   string            `json:"address,omitempty" cbor:"13,keyasint,omitempty"` // instance address on its worker
	Runtime   string            `json:"runtime,omitempty" cbor:"14,keyasint,omitempty"`
	// Rejected is set by a cluster that has no place for the instance; Why counts what ruled its workers out.
	Rejected bool     `json:"rejected,omitempty" cbor:"15,keyasint,omitempty"`
	Why      []Reason `json:"why,omitempty" cbor:"16,keyasint,omitempty"`
	// Want and Have count the copies of a perWorker assignment.
	Want        int    `json:"want,omitempty" cbor:"17,keyasint,omitempty"`
	Have        int    `json:"have,omitempty" cbor:"18,keyasint,omitempty"`
	Digest      string `json:"digest,omitempty" cbor:"19,keyasint,omitempty"`      // of the main image that runs
	Unreachable bool   `json:"unreachable,omitempty" cbor:"20,keyasint,omitempty"` // its worker is not in touch
	// Violated says what of the SLA does not hold and cannot be mended at the site; empty: nothing.
	Violated string `json:"violated,omitempty" cbor:"21,keyasint,omitempty"`
	// Frozen says what the worker does not carry out because it is held on its device, and why; empty: nothing.
	Frozen string `json:"held,omitempty" cbor:"22,keyasint,omitempty"`
	// Revision is that of which the limits apply; empty while they are being changed, or from a child that cannot tell.
	Revision string `json:"revision,omitempty" cbor:"23,keyasint,omitempty"`
	// Limits says why the limits of a newer revision do not apply; nil: they do, or nobody has tried yet.
	Limits *LimitsRefusal `json:"limits,omitempty" cbor:"24,keyasint,omitempty"`
	// Recipient is the key for which a worker wants the checkpoint that it is to start an instance from (see Leave).
	Recipient string `json:"recipient,omitempty" cbor:"25,keyasint,omitempty"`
	// Devices are those that it has; they do not leave its site.
	Devices []string `json:"devices,omitempty" cbor:"26,keyasint,omitempty"`
	// Crowded says why its runtime is not clear of its saturation point, as its cluster sees it; empty: it is.
	Crowded string `json:"crowded,omitempty" cbor:"27,keyasint,omitempty"`
	// CrashLoop says how often it was restarted in a row, soon after its start, and why; empty: it runs steadily, or
	// has not been restarted often.
	CrashLoop string `json:"crashLoop,omitempty" cbor:"28,keyasint,omitempty"`
	// Successor answers the question of the assignment; nil: nobody asked, or the child is older and never answers.
	Successor *SuccessorAnswer `json:"successor,omitempty" cbor:"29,keyasint,omitempty"`
	// Asked is how many restarts its site's users asked for while the site was alone, and were carried out; they are not part of Restart.
	Asked uint64 `json:"asked,omitempty" cbor:"30,keyasint,omitempty"`
	// Copies tells more of the copies of a perWorker assignment; nil: the site is older, or does not admit it.
	Copies *Copies `json:"copies,omitempty" cbor:"31,keyasint,omitempty"`
	// Monitor is the program, with its version, that runs its machine; empty: it has none, or the worker is older.
	Monitor string `json:"monitor,omitempty" cbor:"32,keyasint,omitempty"`
}

// OnlyFurther reports whether an observation says no more than that an instance has come further in its first start, with what it got on
// the way. Nobody needs to store that by itself: another one follows when the instance runs, and whoever forgets this one is told it again.
func (o *Observation) OnlyFurther(before *Observation) bool {
	is := *o
	is.Phase, is.Ports, is.Address = before.Phase, before.Ports, before.Address
	is.Runtime, is.Digest, is.Revision = before.Runtime, before.Digest, before.Revision
	return o.State == skerry.WorkerScheduled && before.Phase.LeadsTo(o.Phase) && reflect.DeepEqual(&is, before)
}

// Copies counts copies of a perWorker assignment while they take the place of those of another version, and after that.
type Copies struct {
	Former  int `json:"former,omitempty" cbor:"1,keyasint,omitempty"`  // of Want: copies of another version, until it is their turn
	Serving int `json:"serving,omitempty" cbor:"2,keyasint,omitempty"` // of Former: those that are ready
	Done    int `json:"done,omitempty" cbor:"3,keyasint,omitempty"`    // of Want: those that have done their work
	// Short counts the workers in touch to which a copy has come, or is to come after the end of another one, and is not ready.
	Short int `json:"short,omitempty" cbor:"4,keyasint,omitempty"`
	// Canary: the first ones are being watched.
	Canary bool `json:"canary,omitempty" cbor:"5,keyasint,omitempty"`
}

// Reason says what ruled out how many candidates, by how much at best, and what would help.
type Reason struct {
	What  string `json:"what" cbor:"1,keyasint"` // "memory", "runtime", "admission", ...
	Count int    `json:"count,omitempty" cbor:"2,keyasint,omitempty"`
	Text  string `json:"text" cbor:"3,keyasint"`
	Hint  string `json:"hint,omitempty" cbor:"4,keyasint,omitempty"`
	// Sole counts the candidates that nothing else rules out: what the hint says would let one of them in.
	Sole int `json:"sole,omitempty" cbor:"5,keyasint,omitempty"`
	// Link is the service at the other end of the link that it is about; it goes nowhere.
	Link string `json:"-" cbor:"-"`
}

// ClassVerdict tells how a capability class of a site stands to a service.
type ClassVerdict struct {
	Class   Class    `json:"class" cbor:"1,keyasint"`
	Area    string   `json:"area,omitempty" cbor:"2,keyasint,omitempty"`
	Workers int      `json:"workers" cbor:"3,keyasint"`
	Fits    int      `json:"fits" cbor:"4,keyasint,omitempty"`
	Best    float64  `json:"best,omitempty" cbor:"5,keyasint,omitempty"`  // highest score of those that fit
	Least   float64  `json:"least,omitempty" cbor:"6,keyasint,omitempty"` // lowest
	Out     []Reason `json:"out,omitempty" cbor:"7,keyasint,omitempty"`   // a worker counts under every rule that it fails
}

// Candidate is one candidate's fate in a decision. Score is higher for better ones and only means something within one
// decision.
type Candidate struct {
	Name      string  `json:"name"`
	Score     float64 `json:"score,omitempty"`
	Chosen    bool    `json:"chosen,omitempty"`
	Out       *Reason `json:"out,omitempty"`
	Suspicion string  `json:"doubt,omitempty"` // why its score counts for less than another's
}

// Decision is a placement with its reasons. Given the same view, request and seed it comes out the same.
type Decision struct {
	At         time.Time         `json:"at"`
	Instance   skerry.InstanceID `json:"instance"`
	Tier       string            `json:"tier"` // root or cluster
	Policy     string            `json:"policy"`
	Seed       uint64            `json:"seed"`
	Chosen     string            `json:"chosen,omitempty"`
	Considered int               `json:"considered"`
	Because    string            `json:"because,omitempty"` // of what it was moved; empty: it needed a place
	Why        []Reason          `json:"why,omitempty"`
	Top        []Candidate       `json:"top,omitempty"` // the best few, and of those ruled out a few examples
	// What the world outside answered; with these the decision can be made again.
	Users   []UserPosition `json:"users,omitempty"`
	Plugins []PluginAnswer `json:"plugins,omitempty"`
}

// UserPosition is where a user was found to be in the network.
type UserPosition struct {
	Coordinate spec.Coordinate `json:"coordinate"`
	Residual   float64         `json:"residual"`          // root mean square of what trilateration left over, in milliseconds
	Probes     int             `json:"probes"`            // workers that measured a round trip
	Unknown    string          `json:"unknown,omitempty"` // why the position is not known; empty: it is
}

// PluginAnswer is what a plugin said to a query, or why it was skipped.
type PluginAnswer struct {
	Plugin  string             `json:"plugin"`
	Scores  map[string]float64 `json:"scores,omitempty"` // by candidate; higher is better
	Out     map[string]string  `json:"out,omitempty"`    // candidates ruled out, and why
	Skipped string             `json:"skipped,omitempty"`
}

// Instance is an instance as the API shows it at a tier. At the root Worker, Address and host names are empty.
type Instance struct {
	ID         skerry.InstanceID  `json:"id"`
	Service    skerry.ServiceKey  `json:"service"`
	Org        string             `json:"org,omitempty"`
	Ordinal    int                `json:"ordinal"`
	Gen        skerry.Generation  `json:"generation"`
	Revision   string             `json:"revision"`
	State      skerry.State       `json:"state"`
	Phase      skerry.Phase       `json:"phase,omitempty"`
	Conditions []skerry.Condition `json:"conditions,omitempty"`
	Reason     string             `json:"reason,omitempty"`
	Why        []Reason           `json:"why,omitempty"`
	Cluster    skerry.ClusterName `json:"cluster,omitempty"`
	Worker     skerry.WorkerName  `json:"worker,omitempty"`
	Runtime    string             `json:"runtime,omitempty"`
	Restarts   int                `json:"restarts"`
	Exit       *Exit              `json:"exit,omitempty"`
	Address    string             `json:"address,omitempty"`
	Ports      []PortBinding      `json:"ports,omitempty"`
	Fence      skerry.Fence       `json:"fence"`
	QoS        *QoS               `json:"qos,omitempty"`
	CreatedAt  time.Time          `json:"createdAt"`
	StartedAt  time.Time          `json:"startedAt,omitzero"`
	Stopping   bool               `json:"stopping,omitempty"`
	Digest     string             `json:"digest,omitempty"`
	Monitor    string             `json:"monitor,omitempty"`   // what runs its machine, with the version; empty: it has none, or it is not known
	Resources  *spec.Resources    `json:"resources,omitempty"` // of the main container, as they apply now; nil: none, or not known
	// rules in force on its worker, as its site tells; nil: none, or not known above the site
	Egress   *spec.Egress    `json:"egress,omitempty"`
	Overhead *spec.Resources `json:"overhead,omitempty"` // what its runtime takes of the worker beside what its containers ask for
	Timeline []Step          `json:"timeline,omitempty"`
	Want     int             `json:"want,omitempty"` // copies of a perWorker instance
	Have     int             `json:"have,omitempty"`
	Devices  []string        `json:"devices,omitempty"` // of its worker that it has; its site alone knows them
}

// Step is one entry of an instance's timeline.
type Step struct {
	At    time.Time    `json:"at"`
	State skerry.State `json:"state"`
	Phase skerry.Phase `json:"phase,omitempty"`
	Text  string       `json:"text,omitempty"`
}

// EventType says how serious an event is.
type EventType string

// Types of events.
const (
	EventNormal  EventType = "Normal"
	EventWarning EventType = "Warning"
)

// EventStoreRepaired is the reason of the event of a worker whose store was damaged.
const EventStoreRepaired = "StoreRepaired"

// Event is something that happened, for people. Events of workloads go up to the root; a site's own do not.
type Event struct {
	Seq      uint64             `json:"seq" cbor:"1,keyasint,omitempty"`
	At       time.Time          `json:"at" cbor:"2,keyasint"`
	Type     EventType          `json:"type" cbor:"3,keyasint"`
	Reason   string             `json:"reason" cbor:"4,keyasint"`
	Text     string             `json:"text" cbor:"5,keyasint"`
	App      skerry.AppKey      `json:"app,omitzero" cbor:"6,keyasint,omitzero"`
	Service  string             `json:"service,omitempty" cbor:"7,keyasint,omitempty"`
	Instance skerry.InstanceID  `json:"instance,omitempty" cbor:"8,keyasint,omitempty"`
	Cluster  skerry.ClusterName `json:"cluster,omitempty" cbor:"9,keyasint,omitempty"`
	Worker   skerry.WorkerName  `json:"worker,omitempty" cbor:"10,keyasint,omitempty"`
	Org      string             `json:"org,omitempty" cbor:"11,keyasint,omitempty"`
}

// LimitsRefusal says why an instance that runs was not given the limits of a newer revision.
type LimitsRefusal struct {
	Gen    skerry.Generation `json:"generation" cbor:"1,keyasint"` // of the assignment with those limits
	Reason string            `json:"reason" cbor:"2,keyasint"`
	// InUse: it uses more memory than it was to have; it keeps its limits and is asked again. Otherwise they cannot be changed
	// while it runs, and another instance has to take its place.
	InUse bool `json:"inUse,omitempty" cbor:"3,keyasint,omitempty"`
}
