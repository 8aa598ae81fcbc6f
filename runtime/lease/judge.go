// Package lease bounds how long instances run without their cluster, by a process that does not hang with the agent.
// The agent writes down which instances these are (Set) and when it was in touch with the cluster (Contact); the guard,
// a process of its own, ends what has outlived that. It knows nothing of services, and of the machine only the cgroups
// of the tasks. The worker imports it.
//
//	contact ──Stop──> stop signal ──> killed at Kill, and whatever is started later, until the agent is in touch again
//
// The guard sleeps until the first lease would run out, and then looks whether it was renewed. Where nothing has a lease there is no guard.
package lease

import (
	"time"

	"skerry.dev/skerry"
)

// Lease is how long an instance runs without its cluster. Both times count from the last contact.
type Lease struct {
	Instance skerry.InstanceID `json:"instance"`
	Token    skerry.Fence      `json:"token"`
	Stop     time.Duration     `json:"stop"` // then it gets the stop signal, unless the agent is ending it
	Kill     time.Duration     `json:"kill"` // then it is killed
	// Ending says that the agent has begun to end it.
	Ending bool `json:"ending,omitempty"`
	// Main is the process that gets the signal; 0: it does not run.
	Main   int `json:"main,omitempty"`
	Signal int `json:"signal,omitempty"`
}

// Ended says that the guard has ended an instance under a token.
type Ended struct {
	Instance skerry.InstanceID `json:"instance"`
	Token    skerry.Fence      `json:"token"`
	Alone    time.Duration     `json:"alone"` // without contact, until then
}

// Due is what a guard is to do now, and when, in the machine's uptime, it is to look again.
type Due struct {
	Signal, Kill []End
	Next         time.Duration
}

// End is an instance that outlived its lease.
type End struct {
	Ended
	lease Lease
}

// Judge says what is due. Leases without a known contact have run out.
func Judge(leases []Lease, now time.Duration, contact func() (time.Duration, bool)) (due Due) {
	at, ok := contact()
	due.Next = now + time.Hour
	for _, l := range leases {
		next := at + l.Stop
		end := End{Ended{l.Instance, l.Token, now - at}, l}
		switch {
		case !ok || now >= at+l.Kill:
			due.Kill, next = append(due.Kill, end), now+again
		case now < next && !l.Ending:
		default:
			if next = at + l.Kill; !l.Ending && l.Main > 0 {
				due.Signal = append(due.Signal, end)
			}
		}
		due.Next = min(due.Next, next)
	}
	return due
}
