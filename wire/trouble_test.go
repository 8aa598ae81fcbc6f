package wire

import (
	"testing"

	"skerry.dev/skerry"
)

func TestTrouble(t *testing.T) {
	ready := skerry.Condition{Type: skerry.Ready, Status: true}
	for want, i := range map[string]Instance{
		"": {State: skerry.Running, Phase: skerry.PhaseRunning, Conditions: []skerry.Condition{ready}},
		"CrashLoop: restarted 3 times: ended with status 7": {State: skerry.Running, Conditions: []skerry.Condition{ready, {Type: skerry.CrashLoop, Status: true, Reason: "restarted 3 times: ended with status 7"}}},
		"NoPlace: needs 9Gi of memory":                      {State: skerry.Requested, Reason: "older", Why: []Reason{{Text: "needs 9Gi of memory"}}},
		"Failed: gave up":                                   {State: skerry.Requested, Reason: "failed: gave up"},
		"BackOff: ended with status 7":                      {State: skerry.Running, Phase: skerry.PhaseBackOff, Exit: &Exit{Code: 7}},
		"NotPrepared: no such image":                        {State: skerry.WorkerScheduled, Phase: skerry.PhaseFetching, Reason: "no such image"},
		"Fetching":                                          {State: skerry.WorkerScheduled, Phase: skerry.PhaseFetching},
		"NotReady: readiness probe fails: 503":              {State: skerry.Running, Phase: skerry.PhaseRunning, Reason: "readiness probe fails: 503"},
		"Unreachable: its worker is not in touch":           {State: skerry.Running, Conditions: []skerry.Condition{ready, {Type: skerry.Reachable, Reason: "its worker is not in touch"}}},
		"Outdated: its limits stay: in use":                 {State: skerry.Running, Conditions: []skerry.Condition{ready, {Type: skerry.UpToDate, Reason: "its limits stay: in use"}}},
		"Ending: scaled down":                               {State: skerry.Running, Stopping: true, Reason: "scaled down", Conditions: []skerry.Condition{ready}},
	} {
		if got := Summary(i.Trouble()); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	var w Worst
	for _, s := range []skerry.State{skerry.Requested, skerry.Failed, skerry.Failed} {
		w.See(&Instance{State: s, Reason: "x"})
	}
	if w.String() != "Failed (2 instances): x" {
		t.Error(w.String())
	}
}
