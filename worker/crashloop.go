package worker

import (
	"fmt"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// ranSteadily reports whether an instance that has ended had run for so long that it is in no crash loop.
func ranSteadily(now time.Time, i *inst, exit *wire.Exit) bool {
	started := exit.Message == "" || exit.StorageExceeded
	return started && !i.StartedAt.IsZero() && now.Sub(i.StartedAt) >= skerry.SteadyTime
}

// steadyAt is when an instance that runs after a crash loop has run for long enough; zero: it is in none, or does not run.
func steadyAt(i *inst) time.Time {
	if k := i.Containers[spec.MainContainer]; k == nil || k.Crashes < skerry.CrashLoops || i.Phase != skerry.PhaseRunning || !k.Running {
		return time.Time{}
	}
	return i.StartedAt.Add(skerry.SteadyTime)
}

// crashLoop tells of a crash loop, or gives "".
func crashLoop(i *inst) string {
	k := i.Containers[spec.MainContainer]
	if k == nil || k.Crashes < skerry.CrashLoops || i.Ending {
		return ""
	}
	why := i.Reason
	if i.Exit != nil && (why == "" || i.Phase == skerry.PhaseRunning) {
		why = describe(*i.Exit)
	}
	return fmt.Sprintf("restarted %d times without running for %s: %s", k.Crashes, skerry.SteadyTime, why)
}

func (i *inst) observation() wire.Observation {
	o := wire.Observation{ID: i.A.ID, Gen: i.A.Gen, Fence: i.A.Fence, State: i.State, Phase: i.Phase, Ready: i.Ready, Reason: i.Reason,
		Restarts: i.Restarts, Restart: i.Restart, Exit: i.Exit, StartedAt: i.StartedAt, Ports: i.Ports, Address: i.Address, Runtime: i.Runtime, Digest: i.Digest,
		Revision: i.revision(), Limits: i.Limits, Recipient: i.recipient, Devices: i.A.Devices, CrashLoop: crashLoop(i)}
	if i.restarting || i.State != skerry.Running {
		o.Ready = false
	}
	o.Reason, o.CrashLoop = shortened(o.Reason), shortened(o.CrashLoop)
	return o
}

// tell has the cluster know how an instance fares.
func (c *Core) tell(i *inst) {
	o := i.observation()
	o.Held = c.heldText(o.ID)
	// It has bounded texts, so it always fits.
	_, _ = c.Up.Observed.Put(wire.AssignmentKey(o.ID), c.codec.Marshal(&o))
}

func shortened(text string) string {
	if len(text) > 500 {
		return text[:500] + "..."
	}
	return text
}
