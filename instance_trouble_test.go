package skerry

import "testing"

func TestTrouble(t *testing.T) {
	ready := Condition{Type: Ready, Status: true}
	for want, i := range map[string]Instance{
		"": {State: Running, Phase: PhaseRunning, Conditions: []Condition{ready}},
		"CrashLoop: restarted 3 times: ended with status 7": {State: Running, Conditions: []Condition{ready, {Type: CrashLoop, Status: true, Reason: "restarted 3 times: ended with status 7"}}},
		"NoPlace: needs 9Gi of memory":                      {State: Requested, Reason: "older", Why: []Reason{{Text: "needs 9Gi of memory"}}},
		"Failed: gave up":                                   {State: Requested, Reason: "failed: gave up"},
		"BackOff: ended with status 7":                      {State: Running, Phase: PhaseBackOff, Exit: &Exit{Code: 7}},
		"NotPrepared: no such image":                        {State: WorkerScheduled, Phase: PhaseFetching, Reason: "no such image"},
		"Fetching":                                          {State: WorkerScheduled, Phase: PhaseFetching},
		"NotReady: readiness probe fails: 503":              {State: Running, Phase: PhaseRunning, Reason: "readiness probe fails: 503"},
		"Unreachable: its worker is not in touch":           {State: Running, Conditions: []Condition{ready, {Type: Reachable, Reason: "its worker is not in touch"}}},
		"Outdated: its limits stay: in use":                 {State: Running, Conditions: []Condition{ready, {Type: UpToDate, Reason: "its limits stay: in use"}}},
		"Ending: scaled down":                               {State: Running, Stopping: true, Reason: "scaled down", Conditions: []Condition{ready}},
	} {
		if got := Summary(i.Trouble()); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	var w Worst
	for _, s := range []State{Requested, Failed, Failed} {
		w.See(&Instance{State: s, Reason: "x"})
	}
	if w.String() != "Failed (2 instances): x" {
		t.Error(w.String())
	}
}
