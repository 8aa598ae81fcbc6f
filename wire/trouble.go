package wire

import (
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry"
)

// Trouble tells why an instance is not as it should be: one code word, and a text for people. Both are empty if all is well.
func (i *Instance) Trouble() (code, text string) {
	condition := func(t skerry.ConditionType, bad bool) (string, bool) {
		for _, c := range i.Conditions {
			if c.Type == t {
				return c.Reason, c.Status == bad
			}
		}
		return "", false
	}
	if why, bad := condition(skerry.CrashLoop, true); bad {
		return "CrashLoop", why
	}
	if i.Stopping {
		return "Ending", i.Reason
	}
	if why, bad := condition(skerry.Frozen, true); bad {
		return "Held", why
	}
	if why, bad := condition(skerry.Reachable, false); bad {
		return "Unreachable", why
	}
	switch i.State {
	case skerry.Terminated:
		return "", ""
	case skerry.Failed:
		return "Failed", i.why()
	case skerry.Registered, skerry.Requested, skerry.ClusterScheduled:
		switch {
		case len(i.Why) > 0:
			return "NoPlace", i.Why[0].Text
		case i.Phase == skerry.PhaseCutOff:
			return "CutOff", i.Reason
		}
		if why, failed := strings.CutPrefix(i.Reason, "failed: "); failed {
			return "Failed", why
		}
		return "Placing", i.Reason
	}
	if why, ready := condition(skerry.Ready, true); !ready {
		switch {
		case i.Phase == skerry.PhaseBackOff:
			return "BackOff", i.why()
		case i.Phase == skerry.PhaseFetching && i.Reason != "":
			return "NotPrepared", i.Reason
		case i.Phase != skerry.PhaseRunning && i.Phase != "":
			return string(i.Phase), i.why()
		case i.Reason == "" && why != "not ready":
			return "NotReady", why
		}
		return "NotReady", i.why()
	}
	for _, c := range []struct {
		condition skerry.ConditionType
		code      string
	}{{skerry.UpToDate, "Outdated"}, {skerry.Satisfied, "SLA"}, {skerry.HeadRoom, "Crowded"}} {
		if why, bad := condition(c.condition, false); bad {
			return c.code, why
		}
	}
	return "", ""
}

// why is the reason of an instance, or how it ended last.
func (i *Instance) why() string {
	switch {
	case i.Reason != "":
		return i.Reason
	case i.Exit != nil:
		return i.Exit.String()
	}
	return ""
}

// String tells how a container ended.
func (e *Exit) String() string {
	switch {
	case e.OOMKilled:
		return "killed: out of memory"
	case e.StorageExceeded:
		return "killed: out of storage: " + e.Message
	case e.Message != "":
		return e.Message
	case e.Signal != "":
		return "ended by " + e.Signal
	}
	return "ended with status " + strconv.Itoa(e.Code)
}

// Summary is a code word and a text in one, as a column shows them; empty if all is well.
func Summary(code, text string) string {
	if code == "" || text == "" {
		return code
	}
	return code + ": " + text
}

// troubles are code words, the worst first.
var troubles = []string{"CrashLoop", "Failed", "NotPrepared", "NoPlace", "BackOff", "NotReady", "Unreachable", "CutOff", "Held", "Outdated", "SLA", "Crowded",
	"Fetching", "Starting", "Placing", "Ending"}

// Worst is the summary of the worst trouble of instances, with how many share it; empty if all is well.
type Worst struct {
	code, text string
	count      int
}

// See takes an instance into account.
func (w *Worst) See(i *Instance) {
	code, text := i.Trouble()
	if code == "" {
		return
	}
	rank := func(code string) int {
		if n := slices.Index(troubles, code); n >= 0 {
			return n
		}
		return len(troubles)
	}
	switch {
	case code == w.code:
		w.count++
	case w.code == "" || rank(code) < rank(w.code):
		w.code, w.text, w.count = code, text, 1
	}
}

// String gives it in one line.
func (w *Worst) String() string {
	if w.count > 1 {
		return Summary(w.code+" ("+strconv.Itoa(w.count)+" instances)", w.text)
	}
	return Summary(w.code, w.text)
}
