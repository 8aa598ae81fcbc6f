package skerry

import (
	"fmt"
	"slices"
	"time"
)

// State is an instance's placement state, as in the paper (Oakestra, section 3.3 and figure 3):
//
//	Registered -> Requested -> ClusterScheduled -> WorkerScheduled -> Running -> Terminated
//	                  ^              |                   |              |
//	                  +--------------+-------------------+------------ Failed -> Requested
type State string

// States of an instance.
const (
	Registered       State = "Registered"       // stored, not asked for
	Requested        State = "Requested"        // waits for a place
	ClusterScheduled State = "ClusterScheduled" // a site has it and looks for a worker
	WorkerScheduled  State = "WorkerScheduled"  // a worker has it and prepares it
	Running          State = "Running"          // the program runs
	Terminated       State = "Terminated"       // ended as it should
	Failed           State = "Failed"           // ended as it should not, or its worker is lost
)

// States lists every state in the order of the journey.
var States = []State{Registered, Requested, ClusterScheduled, WorkerScheduled, Running, Terminated, Failed}

// transitions is the one table of what may follow what. Every state may end in Terminated, because delete is accepted in
// every state. A tier that missed steps in between (a lost connection) uses CanReach.
var transitions = map[State][]State{
	Registered:       {Requested, Terminated},
	Requested:        {ClusterScheduled, Failed, Terminated},
	ClusterScheduled: {WorkerScheduled, Requested, Failed, Terminated},
	WorkerScheduled:  {Running, Requested, ClusterScheduled, Failed, Terminated},
	Running:          {Terminated, Failed, WorkerScheduled},
	Failed:           {Requested, Terminated},
	Terminated:       {},
}

// CanFollow reports whether next may come directly after s. A state may follow itself.
func (s State) CanFollow(next State) bool { return s == next || slices.Contains(transitions[s], next) }

// CanReach reports whether target lies on some way from s.
func (s State) CanReach(target State) bool {
	seen := map[State]bool{s: true}
	todo := []State{s}
	for len(todo) > 0 {
		at := todo[0]
		if at == target {
			return true
		}
		todo = todo[1:]
		for _, n := range transitions[at] {
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return false
}

// Final reports whether nothing may follow.
func (s State) Final() bool { return len(transitions[s]) == 0 }

// CheckTransition gives an error for a step that is not in the table.
func CheckTransition(from, to State) error {
	if from.CanFollow(to) {
		return nil
	}
	return fmt.Errorf("an instance cannot go from %s to %s", from, to)
}

// Phase is what the worker does with an instance; it is apart from the placement state.
type Phase string

// Phases at the worker.
const (
	PhaseNone     Phase = ""
	PhaseFetching Phase = "Fetching"
	PhaseStarting Phase = "Starting"
	PhaseRunning  Phase = "Running"
	PhaseBackOff  Phase = "BackOff" // waits before the next restart
	PhaseStopping Phase = "Stopping"
	PhaseExited   Phase = "Exited"
	PhaseLeaving  Phase = "Leaving" // its state is written, and goes to another worker
	PhaseCutOff   Phase = "CutOff"  // stopped by its worker, which has lost its cluster, until that says otherwise
)

// LeadsTo reports whether next is a later phase of a first start, in which nothing runs yet.
func (p Phase) LeadsTo(next Phase) bool {
	return p == PhaseNone && next == PhaseFetching || (p == PhaseNone || p == PhaseFetching) && next == PhaseStarting
}

// ConditionType names a condition.
type ConditionType string

// Conditions of an instance.
const (
	Ready     ConditionType = "Ready"     // probes pass; it may get traffic
	Reachable ConditionType = "Reachable" // its worker and site are in touch
	UpToDate  ConditionType = "UpToDate"  // it runs the current version of its service
	Frozen    ConditionType = "Held"      // its worker waits with what was asked for; set once it did
	Satisfied ConditionType = "Satisfied" // its SLA holds; set once it was violated
	HeadRoom  ConditionType = "HeadRoom"  // its runtime is clear of its saturation point; set once it was not
	CrashLoop ConditionType = "CrashLoop" // it ends again and again soon after its start; set once it did
)

// CrashLoops is how many restarts in a row make a crash loop, each after less than SteadyTime.
const (
	CrashLoops = 3
	SteadyTime = 10 * time.Second
)

// Condition is a statement about an instance with its reason and since when it holds.
type Condition struct {
	Type   ConditionType `json:"type" cbor:"1,keyasint"`
	Status bool          `json:"status" cbor:"2,keyasint,omitempty"`
	Reason string        `json:"reason,omitempty" cbor:"3,keyasint,omitempty"`
	Since  time.Time     `json:"since" cbor:"4,keyasint"`
}

// SetCondition returns the list with one condition set; since changes only when the status does.
func SetCondition(list []Condition, now time.Time, t ConditionType, status bool, reason string) []Condition {
	for i, c := range list {
		if c.Type == t {
			if c.Status == status && c.Reason == reason {
				return list
			}
			out := slices.Clone(list)
			out[i].Reason = reason
			if c.Status != status {
				out[i].Status, out[i].Since = status, now
			}
			return out
		}
	}
	return append(slices.Clip(slices.Clone(list)), Condition{t, status, reason, now})
}

// HasCondition reports whether a condition is set to true.
func HasCondition(list []Condition, t ConditionType) bool {
	for _, c := range list {
		if c.Type == t {
			return c.Status
		}
	}
	return false
}
