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
