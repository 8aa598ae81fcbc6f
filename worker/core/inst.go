package core

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// inst is one instance on this worker. Its way:
//
//	Fetching --Prepared--> Starting: init 1..n, side containers, main --Started--> Running
//	    ^                      ^                                                      |
//	    | (back-off, tries)    +------------- BackOff <------- main exited -----------+
//	    |                                                          | policy or limit
//	    +-- Next                Stopping <--- tombstone            v
//	          ^                     |                            Exited (Terminated or Failed)
//	          +----- Cleaned <------+--------------- tombstone ----+
type inst struct {
	A          spec.Assignment       `json:"assignment"`
	State      skerry.State          `json:"state"`
	Phase      skerry.Phase          `json:"phase"`
	Reason     string                `json:"reason,omitempty"`
	Containers map[string]*container `json:"containers"`
	Restarts   int                   `json:"restarts"`
	Times      []time.Time           `json:"times,omitempty"` // of counted restarts, in the window
	Exit       *wire.Exit            `json:"exit,omitempty"`
	StartedAt  time.Time             `json:"startedAt,omitzero"`
	// Given tells where each of its devices was when main was started last, as Facts.Devices does. Records of older agents have none.
	Given map[string][]string `json:"given,omitempty"`
	preparation
	Restart uint64           `json:"restart"` // the last request that was carried out
	Ending  bool             `json:"ending,omitempty"`
	Next    *spec.Assignment `json:"next,omitempty"` // to run once this one is gone
	health
	limits
	departure
	cleaning   bool
	draining   bool      // AwaitQuiet is under way, after which what must end is stopped
	retryAt    time.Time // of what waits: prepare, restart or clean-up
	restarting bool      // the stop of main was asked for in order to start it again
	// alone is how long the cluster was out of touch when this agent stopped it for that; 0: it did not.
	alone time.Duration
}

// preparation is what an instance got when it was prepared.
type preparation struct {
	Ports     []wire.PortBinding `json:"ports,omitempty"`
	Address   string             `json:"address,omitempty"`
	Runtime   string             `json:"runtime,omitempty"`
	Digest    string             `json:"digest,omitempty"`
	recipient string             // for what it is to start from
	preparing bool
	tries     int // that failed in a row, and the one under way
}

// container is one container with its present attempt.
type container struct {
	Attempt int               `json:"attempt"`
	Ends    int               `json:"ends,omitempty"`    // of a side container that the server starts with main: in that attempt of main
	Crashes int               `json:"crashes,omitempty"` // of the main one and side ones: restarts in a row after less than SteadyTime
	Since   time.Time         `json:"since,omitzero"`    // of a side container: its last start
	Why     string            `json:"why,omitempty"`     // of a side container: how it ended last
	Handle  json.RawMessage   `json:"handle,omitempty"`
	Monitor string            `json:"monitor,omitempty"` // what runs its machine; empty: it has none
	Running bool              `json:"running,omitempty"`
	Done    bool              `json:"done,omitempty"` // an init container that ended well
	Old     []json.RawMessage `json:"old,omitempty"`  // the attempt before, whose log is kept
	// Limits is the revision of which it has the limits; empty: that of the instance, unsure: one of two.
	Limits  string `json:"limits,omitempty"`
	Hook    bool   `json:"hook,omitempty"` // its postStart has yet to be done
	start   bool   // StartContainer is under way
	stop    bool   // StopContainer is under way
	retryAt time.Time
}

// longestText is how much is kept of a text of an instance, in bytes.
const longestText = 2 << 10

func textOf(text string) string {
	if len(text) <= longestText {
		return text
	}
	return strings.ToValidUTF8(text[:longestText], "") + "..."
}

// shorten cuts the texts of an instance. They come from containers as well, as in the answers of probes, and a record that no store takes
// would end this life of the core.
func (i *inst) shorten() {
	i.Reason = textOf(i.Reason)
	if i.Exit != nil {
		exit := *i.Exit
		exit.Message, exit.Signal = textOf(exit.Message), textOf(exit.Signal)
		i.Exit = &exit
	}
	if i.Limits != nil {
		limits := *i.Limits
		limits.Reason = textOf(limits.Reason)
		i.Limits = &limits
	}
	for _, k := range i.Containers {
		k.Why = textOf(k.Why)
	}
}

func (i *inst) names() []string {
	out := make([]string, 0, len(i.Containers))
	for n := range i.Containers {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func (i *inst) container(name string) *container {
	k := i.Containers[name]
	if k == nil {
		k = &container{}
		i.Containers[name] = k
	}
	return k
}

func (i *inst) main() *container { return i.container(spec.MainContainer) }

// start has the next attempt of a container started.
func (i *inst) start(name string, fx *wire.Effects) {
	k := i.container(name)
	if len(k.Handle) > 0 {
		k.Old = append(k.Old, k.Handle)
		k.Handle = nil
	}
	k.Attempt++
	restored := name == spec.MainContainer && (i.Resume || i.fromCheckpoint()) // its postStart was done before that was written
	k.start, k.stop, k.Limits, k.Hook = true, false, i.A.Revision, !restored && spec.PostStartOf(&i.A.Spec, name) != nil
	fx.Actions = append(fx.Actions, StartContainer{A: i.A, Name: name, Attempt: k.Attempt, Resume: i.Resume && name == spec.MainContainer})
}

// stop has a container that runs end.
func (i *inst) stop(name string, fx *wire.Effects) {
	k := i.Containers[name]
	k.stop = true
	fx.Actions = append(fx.Actions, StopContainer{ID: i.A.ID, Name: name, Attempt: k.Attempt, Handle: k.Handle, Grace: graceOf(i),
		PreStop: spec.HookOf(&i.A.Spec, name), Address: i.Address})
}

// postStart has done what is to be done once a container runs, and reports whether there is something: until it is done, an instance is
// not ready, and nothing of it is probed. An agent that was started anew in the meantime begins anew with it.
func (i *inst) postStart(name string, fx *wire.Effects) bool {
	k := i.Containers[name]
	if k == nil || !k.Running || !k.Hook {
		return false
	}
	hook := spec.PostStartOf(&i.A.Spec, name)
	if hook == nil {
		k.Hook = false
		return false
	}
	if name == spec.MainContainer {
		i.Reason = "postStart is not done yet"
	}
	fx.Actions = append(fx.Actions, RunHook{ID: i.A.ID, Name: name, Attempt: k.Attempt, Handle: k.Handle, Hook: *hook, Address: i.Address})
	return true
}

func (i *inst) isInit(name string) bool {
	return slices.ContainsFunc(i.A.Spec.Init, func(s spec.SideContainer) bool { return s.Name == name })
}

// halted reports whether the containers of an instance have ended, or are ending, for good as far as this worker decides.
func (i *inst) halted() bool {
	return i.Phase == skerry.PhaseExited || i.Phase == skerry.PhaseCutOff || i.Left != nil
}

// hasBegun reports whether something of an instance runs, is being started, or will be without being prepared anew.
func hasBegun(i *inst) bool {
	for _, k := range i.Containers {
		if k.Running || k.start {
			return true
		}
	}
	return i.preparing || i.Phase != skerry.PhaseFetching && i.Phase != skerry.PhaseExited
}

// graceOf is how long a container may take to end.
func graceOf(i *inst) time.Duration {
	if i.A.Spec.TerminationGrace != nil {
		return time.Duration(*i.A.Spec.TerminationGrace)
	}
	return spec.DefaultGrace
}

// busy reports whether a container runs or is being started.
func busy(i *inst) bool {
	for _, k := range i.Containers {
		if k.Running || k.start {
			return true
		}
	}
	return false
}

// health is what the probes of an instance say of it.
type health struct {
	Ready     bool `json:"ready"`
	Unhealthy bool `json:"unhealthy,omitempty"` // main is being ended because a probe failed
	probes    probeState
}

// probeState counts results in a row.
type probeState struct {
	up        bool      // the startup probe has passed, or there is none
	told      time.Time // when the last answer of a probe became the reason
	good, bad map[ProbeKind]int
}

// resize are limits that an instance is to have while it runs on. What is wanted, what each container has, and what is told
// are three things, so that a life of the agent that ends anywhere in between is followed by one that goes on:
//
//	assignment ──► Resize kept ──► containers unsure, kept ──SetLimits──► Resized ──► they have them ──► the instance's own
//	                    ▲                                                    │
//	                    └──────────── after a while, memory is in use ◄──────┘
type resize struct {
	Spec     spec.ServiceSpec  `json:"spec"`
	Revision string            `json:"revision"`
	Gen      skerry.Generation `json:"generation"`
}

// limits are those that an instance is to have and has not, as far as they differ from its assignment's.
type limits struct {
	Resize   *resize             `json:"resize,omitempty"` // that it is to have
	Limits   *wire.LimitsRefusal `json:"limits,omitempty"` // why it has not got them
	resizing bool                // SetLimits is under way
	resizeAt time.Time           // it is tried again then
}

// wanted is the revision that an instance has, or is to have.
func (i *inst) wanted() string {
	if i.Resize != nil {
		return i.Resize.Revision
	}
	return i.A.Revision
}

// revision is the one whose limits the instance has, or "" while that is changing.
func (i *inst) revision() string {
	for _, k := range i.Containers {
		if k.Running && k.Limits != "" && k.Limits != i.A.Revision {
			return ""
		}
	}
	return i.A.Revision
}

// leaving is an instance whose state goes to another worker. Until the cluster takes this copy away, or says that it is to go on, its
// state lies here.
//
//	Running ──asked for by the other worker──► Leaving: written ──► sent ──► tombstone
//	   ▲                                          │
//	   └── goes on from what was written ◄────────┴── the assignment no longer lets it leave; or it was never sent and nobody says anything
type leaving struct {
	For   skerry.Fence `json:"for"`
	Since time.Time    `json:"since"`
	Done  bool         `json:"done,omitempty"` // its state is written
	Sent  bool         `json:"sent,omitempty"` // the other worker has all of it, and may run
}

// departure is how far an instance is on its way to another worker.
type departure struct {
	Left   *leaving `json:"left,omitempty"`   // its state is, or is being, written for another worker
	Resume bool     `json:"resume,omitempty"` // main goes on from that state
}

// fromCheckpoint reports whether an instance is to start from the state of another copy, and has not yet.
func (i *inst) fromCheckpoint() bool { return i.A.From != nil && i.StartedAt.IsZero() }
