package pods

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// look reads a status as the API server sends it.
func look(t *testing.T, text string) Sight {
	t.Helper()
	var p Pod
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatalf("status %s: %v", text, err)
	}
	return Look(&p, time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
}

// What Kubernetes says of a pod becomes a stage, with the reason in its own words.
func TestLook(t *testing.T) {
	main := func(state string) string {
		return `{"spec":{"nodeName":"n1"},"status":{"phase":"Running","containerStatuses":[{"name":"main","ready":true,"state":` + state + `}]}}`
	}
	for _, c := range []struct {
		name, text string
		stage      Stage
		reason     string // of the sight, or of its exit
		code       int
		signal     string
	}{
		{"new", `{"status":{"phase":"Pending"}}`, Pending, "its pod is pending", 0, ""},
		{"no place", `{"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable",
			"message":"0/3 nodes are available"}]}}`, Unplaced, "Unschedulable: 0/3 nodes are available", 0, ""},
		{"creating", main(`{"waiting":{"reason":"ContainerCreating"}}`), Pending, "ContainerCreating", 0, ""},
		{"no image", main(`{"waiting":{"reason":"ImagePullBackOff","message":"Back-off\npulling"}}`), Stuck,
			"ImagePullBackOff: Back-off pulling", 0, ""},
		{"runs", main(`{"running":{"startedAt":"2026-05-01T11:00:00Z"}}`), Running, "", 0, ""},
		{"done", main(`{"terminated":{"exitCode":0,"reason":"Completed"}}`), Ended, "", 0, ""},
		{"failed", main(`{"terminated":{"exitCode":3,"reason":"Error"}}`), Ended, "", 3, ""},
		{"killed", main(`{"terminated":{"exitCode":137,"reason":"OOMKilled"}}`), Ended, "", 137, "SIGKILL"},
		{"no program", main(`{"terminated":{"exitCode":128,"reason":"StartError","message":"no such file"}}`), Ended,
			"StartError: no such file", 127, ""},
		{"evicted", `{"status":{"phase":"Failed","reason":"Evicted","message":"Pod ephemeral local storage usage exceeds the total limit"}}`,
			Ended,
			"Evicted: Pod ephemeral local storage usage exceeds the total limit", 255, ""},
		{"refused by its node", `{"status":{"phase":"Failed","reason":"OutOfcpu","message":"Node didn't have enough resource"}}`, Ended,
			"OutOfcpu: Node didn't have enough resource", 255, ""},
		{"a code out of range", main(`{"terminated":{"exitCode":-9}}`), Ended, "", 255, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := look(t, c.text)
			reason := got.Reason
			if got.Stage == Ended {
				reason = got.Exit.Message
			}
			if got.Stage != c.stage || reason != c.reason || got.Exit.Code != c.code || got.Exit.Signal != c.signal {
				t.Errorf("Look = stage %d, reason %q, code %d, signal %q; want %d, %q, %d, %q", got.Stage, reason, got.Exit.Code, got.Exit.Signal,
					c.stage, c.reason, c.code, c.signal)
			}
		})
	}
	if got := look(t, main(`{"terminated":{"exitCode":137,"reason":"OOMKilled"}}`)); !got.Exit.OOMKilled {
		t.Errorf("Look of a pod that was killed for its memory: OOMKilled is %v, want true", got.Exit.OOMKilled)
	}
}

// Whatever a status holds, an observation of it is bounded: somebody else writes it.
func FuzzLook(f *testing.F) {
	for _, text := range []string{`{"status":{"phase":"Failed","reason":"Evicted"}}`,
		`{"status":{"containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":-1,"finishedAt":"x"}}}]}}`,
		`{"status":{"containerStatuses":[{"name":"main","state":{"waiting":{"reason":"ErrImagePull","message":"\u0000\ud800"}}}]}}`,
		`{"status":{"containerStatuses":[{"name":"main","state":{"running":{"startedAt":"9999-01-01T00:00:00Z"}}}]}}`,
		`{"spec":{"containers":[{"resources":{"requests":{"cpu":"9e99","memory":-1}},"ports":[{"hostPort":-1}]}]}}`} {
		f.Add([]byte(text))
	}
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Pod
		if json.Unmarshal(data, &p) != nil {
			return
		}
		s := Look(&p, now)
		for _, text := range []string{s.Reason, s.Exit.Message} {
			if len(text) > maxReason+100 || !utf8.ValidString(text) || strings.ContainsAny(text, "\n\x00\x1b") {
				t.Errorf("a reason is %q: want one printable line of at most %d bytes", text, maxReason+100)
			}
		}
		if s.Exit.Code < 0 || s.Exit.Code > 255 || s.Exit.At.After(now) || s.Since.After(now) {
			t.Errorf("the exit is %+v, since %s: want a code from 0 to 255, and no time to come", s.Exit, s.Since)
		}
		for _, name := range sidecars(&p) {
			if m, ok := sideOf(&p, name, now); ok && (m.Ends < 1 || m.Ends > endsMost+1 || m.Ran < 0 || m.Since.After(now) || m.Exit.At.After(now)) {
				t.Errorf("sidecar %q has ended: %+v; want a bounded number, and no time to come", name, m)
			}
		}
		n := needOf(&p)
		if n.resources.CPU < 0 || n.resources.Memory < 0 || n.resources.Storage < 0 || n.resources.GPUs < 0 {
			t.Errorf("the pod needs %+v: want nothing negative", n.resources)
		}
		_, _ = taskOf(&p, s)
	})
}
