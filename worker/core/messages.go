package core

import (
	"encoding/json"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Messages from the link. ParentUp comes after the Welcome.
type (
	ParentUp struct{ Welcome *wire.Welcome }
	// ParentDown tells when the cluster was heard last; zero: now.
	ParentDown  struct{ Heard time.Time }
	ParentFrame struct{ Msg wire.Message }
)

// Sender implements loop.Sent.
func (ParentUp) Sender() string { return "" }

// Sender implements loop.Sent.
func (ParentFrame) Sender() string { return "" }

// Messages of the server.
type (
	// Reattach tells, once after the start, which tasks are on the machine.
	Reattach struct{ Tasks []Task }
	// Facts tells what the machine is; it is sent on when it changes.
	Facts struct {
		Facts wire.WorkerFacts
		// Devices tells where each that it offers is: its nodes with their numbers, or its host in a network. It stays here.
		Devices map[string][]string
	}
	// Usage tells what is used; it goes into the next report.
	Usage struct {
		Used       spec.Resources
		Instances  map[skerry.InstanceID]wire.QoS
		Coordinate *spec.Coordinate // nil: not known
		Pressure   *wire.Pressure   // nil: not known
		Ingress    []wire.IngressUse
		Heard      []wire.PeerRTT // a few round trips to other workers
		RTT        time.Duration  // to the cluster; 0: not known
		Loss       float64        // the share of datagrams on the way there or back that are lost, 0 to 1
	}
	// Refuse keeps new work away; an empty text ends that.
	Refuse struct{ Text string }
	// Prepared answers Prepare.
	Prepared struct {
		ID        skerry.InstanceID
		Fence     skerry.Fence
		Err       string // empty: done
		Permanent bool   // trying again here cannot help
		Ports     []wire.PortBinding
		Address   string
		Runtime   string
		Digest    string
		Recipient string // as in Observation
	}
	// Started answers StartContainer.
	Started struct {
		ID      skerry.InstanceID
		Name    string
		Attempt int
		At      time.Time
		Handle  json.RawMessage
		Monitor string // what runs its machine; empty: it has none
		Err     string
	}
	// Waits tells what a start that is under way waits for; empty: nothing that is known.
	Waits struct {
		ID      skerry.InstanceID
		Attempt int // of main
		Text    string
	}
	// HookDone answers RunHook.
	HookDone struct {
		ID      skerry.InstanceID
		Name    string
		Attempt int
		Err     string // empty: done
	}
	// Exited tells the end of a container, whether asked for or not.
	Exited struct {
		ID      skerry.InstanceID
		Name    string
		Attempt int
		Exit    wire.Exit
		// Init, of a main container whose server starts all as one, is the init container that failed, because of which main was never started.
		// It is then the exit of that one, and Handle what there is of the attempt.
		Init   string
		Handle json.RawMessage
		// PostStart is why the postStart of a main container failed, for which its server has ended it; empty: it did not.
		PostStart string
	}
	// SideEnded tells how often a side container has ended in an attempt of main, where all are started as one.
	SideEnded struct {
		ID      skerry.InstanceID
		Name    string
		Attempt int // of main
		Ends    int
		Exit    wire.Exit // the last one
		Ran     time.Duration
		Since   time.Time // the start of what runs now; zero: it does not
	}
	// Probed tells the result of one try of a probe.
	Probed struct {
		ID      skerry.InstanceID
		Attempt int
		Kind    ProbeKind
		OK      bool
		Text    string
	}
	// Resized answers SetLimits, for the containers in it.
	Resized struct {
		SetLimits
		Err    string // empty: they have the limits; else those from before,
		Unsure bool   // or nobody knows
		InUse  bool   // more memory is in use than was to be
	}
	// Quiet answers AwaitQuiet.
	Quiet struct{ ID skerry.InstanceID }
	// Cleaned answers Cleanup.
	Cleaned struct {
		ID  skerry.InstanceID
		Err string
	}
	// Interest tells which services' routes this worker wants, in place of those before.
	Interest struct{ Services []skerry.ServiceKey }
	// IngressOffered tells what the worker's ingress offers.
	IngressOffered struct{ State wire.IngressState }
	// RestartLocal restarts an instance by hand on the device.
	RestartLocal struct{ ID skerry.InstanceID }
)

// Task is a container found on the machine at the start.
type Task struct {
	ID      skerry.InstanceID
	Name    string
	Attempt int
	Handle  json.RawMessage
	Running bool
	Exit    wire.Exit
	Init    string // as Exited.Init
	// PostStart is as Exited.PostStart.
	PostStart string
	Digest    string // of its image; empty: not known, or none
	Monitor   string // what runs its machine; empty: it has none
	Restart   uint64 // the last request that had been carried out when it was started
}

// ended tells the end of a task.
func (t *Task) ended() Exited {
	return Exited{ID: t.ID, Name: t.Name, Attempt: t.Attempt, Exit: t.Exit, Init: t.Init, PostStart: t.PostStart}
}

// Beside implements loop.Beside: what is prepared for an instance that was not written down is taken away at the next start.
func (Prepare) Beside() bool { return true }

// Beside implements loop.Beside, so that Prepare, which comes after it, need not wait. Whoever forgets an item is sent it again.
func (OverlayItem) Beside() bool { return true }

// Beside implements loop.Beside, as that of OverlayItem.
func (Endpoints) Beside() bool { return true }

// Actions for the server. Each is carried out at its own pace and answered by the message named.
type (
	// Prepare fetches images, makes volumes and joins the network -> Prepared. It is idempotent.
	Prepare struct {
		A    spec.Assignment
		Keep []wire.PortBinding // ports that it had before
	}
	// Cancel ends a Prepare that goes on; it is then answered with an error.
	Cancel struct{ ID skerry.InstanceID }
	// StartContainer -> Started, and later Exited.
	StartContainer struct {
		A       spec.Assignment
		Name    string
		Attempt int
		Resume  bool // from the checkpoint that was written here
	}
	// StopContainer asks a container to end, and kills it after the grace -> Exited.
	StopContainer struct {
		ID      skerry.InstanceID
		Name    string
		Attempt int
		Handle  json.RawMessage
		Grace   time.Duration
		PreStop *spec.Hook // nil: nothing is done before
		Address string     // of the instance
	}
	// RunHook does what is to be done once a container runs -> HookDone, unless the container ends before.
	RunHook struct {
		ID      skerry.InstanceID
		Name    string
		Attempt int
		Handle  json.RawMessage
		Hook    spec.Hook
		Address string // of the instance
	}
	// Watch waits for the end of a container that was found running -> Exited.
	Watch struct {
		ID      skerry.InstanceID
		Name    string
		Attempt int
		Handle  json.RawMessage
	}
	// SetLimits gives containers that run the limits of another version of the service -> Resized.
	SetLimits struct {
		ID         skerry.InstanceID
		Revision   string
		Spec, Was  spec.ServiceSpec
		Level      spec.SecurityLevel
		Containers []Limited
	}
	// SetEgress holds an instance that runs to another policy of egress.
	SetEgress struct {
		ID     skerry.InstanceID
		Egress *spec.Egress
	}
	// Discard removes a task that nobody knows.
	Discard struct{ Handle json.RawMessage }
	// Release gives network and host ports of an ended instance back; its logs stay.
	Release struct{ ID skerry.InstanceID }
	// Cleanup removes all there is of an instance -> Cleaned.
	Cleanup struct {
		ID      skerry.InstanceID
		Handles []json.RawMessage
	}
	// ProbeOn starts the probes of an instance -> Probed; ProbeOff ends them.
	ProbeOn struct {
		A       spec.Assignment
		Attempt int
		Kinds   []ProbeKind
		Address string
		Handle  json.RawMessage
	}
	ProbeOff struct{ ID skerry.InstanceID }
	// AwaitQuiet waits until nobody has connected to an instance for a while, but not less than Least nor longer than Most -> Quiet.
	AwaitQuiet struct {
		ID               skerry.InstanceID
		Least, For, Most time.Duration
	}
	// MeasurePeers says to whom round trips are measured, in place of those before.
	MeasurePeers struct{ Peers wire.Peers }
	// OverlayItem tells of an item that concerns the overlay: a pointer to one of OverlayNode, AppNetwork, Route and OverlayPeer
	// of the root package, or nil when it is gone.
	OverlayItem struct {
		Key  string
		Item any
	}
	// UpgradeAgent has the agent go over to another program. The server knows which orders it has dealt with.
	UpgradeAgent struct{ Order wire.AgentOrder }
	// KeepContact says which instances need the moment of the last contact with the cluster to outlive the agent (see Contact),
	// and are ended should it hang.
	KeepContact struct{ Leases []Lease }
	// Endpoints gives the endpoints of a service to the instances of its application; nil removes them.
	Endpoints struct {
		Service skerry.ServiceKey
		List    []wire.Endpoint
		Gone    bool
	}
)
