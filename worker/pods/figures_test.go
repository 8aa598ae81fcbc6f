package pods

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
	"skerry.dev/skerry/worker/pods/podstest"
)

// measured is a worker with a running pod whose use a function answers; the API server is a fake otherwise.
func measured(t *testing.T, answer func(to http.ResponseWriter, r *http.Request)) (*figures, handle) {
	t.Helper()
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	named := running(t, worker, server, "web-1-x-1", "web-1", 1)
	relist(t, worker)
	server.Fault(func(to http.ResponseWriter, r *http.Request) bool {
		asked := strings.Contains(r.URL.Path, "stats/summary") || strings.Contains(r.URL.Path, "metrics.k8s.io")
		if asked {
			answer(to, r)
		}
		return asked
	})
	return &figures{w: worker}, named
}

// What the kubelet says of a pod is the use of its instance: of all containers, and of no pod that somebody else calls so.
func TestFiguresOfKubelet(t *testing.T) {
	text := ""
	reader, named := measured(t, func(to http.ResponseWriter, _ *http.Request) { fmt.Fprint(to, text) })
	ours := fmt.Sprintf(`{"name":%q,"namespace":"skerry","uid":%q}`, named.Pod, named.UID)
	const one, nothing = `{"cpu":{"usageNanoCores":1500000},"memory":{"workingSetBytes":2048}}`, `{"cpu":{},"memory":{"workingSetBytes":1}}`
	for name, given := range map[string]struct {
		pods string
		want map[skerry.InstanceID]wire.QoS
	}{
		"two containers": {`{"podRef":` + ours + `,"containers":[` + one + `,` + one + `]}`,
			map[skerry.InstanceID]wire.QoS{"web-1": {CPU: 3, Memory: 4096}}},
		"not measured yet": {`{"podRef":` + ours + `,"containers":[` + nothing + `]}`, nil},
		"another's":        {`{"podRef":` + strings.Replace(ours, "skerry", "other", 1) + `,"containers":[` + one + `]}`, nil},
		"of before":        {`{"podRef":{"name":"` + named.Pod + `","namespace":"skerry","uid":"old"},"containers":[` + one + `]}`, nil},
		"nonsense":         {`{"podRef":` + ours + `,"containers":[{"cpu":{"usageNanoCores":-1},"memory":{"workingSetBytes":"x"}}]}`, nil},
	} {
		text = `{"pods":[` + given.pods + `]}`
		got, fresh := reader.usage(t.Context(), time.Now())
		if !fresh || fmt.Sprint(got.Instances) != fmt.Sprint(given.want) && len(got.Instances)+len(given.want) > 0 {
			t.Errorf("%s: usage = %+v, fresh %v; want %+v", name, got.Instances, fresh, given.want)
		}
	}
}

// Where the kubelet is refused, metrics.k8s.io is asked, no more often than it has something new; where that is not there either, nothing
// is told, the log says so once, and both are asked again after a while.
func TestFiguresElsewhere(t *testing.T) {
	var kubelet, metrics atomic.Int64
	there := true
	var reader *figures
	var named handle
	reader, named = measured(t, func(to http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "stats/summary") {
			kubelet.Add(1)
			podstest.Refuse(to, 403, "Forbidden", "nodes/proxy is forbidden")
			return
		}
		metrics.Add(1)
		if !there {
			http.Error(to, "404 page not found", 404)
			return
		}
		if !strings.Contains(r.URL.Query().Get("labelSelector"), workerLabel+"=n1") {
			t.Errorf("metrics are asked for by %q, want those of this worker", r.URL.RawQuery)
		}
		fmt.Fprintf(to, `{"items":[{"metadata":{"name":%q},"containers":[{"usage":{"cpu":"12345678n","memory":"3Ki"}}]},
{"metadata":{"name":"other"},"containers":[{"usage":{"cpu":"1","memory":"1"}}]}]}`, named.Pod)
	})
	now := time.Now()
	got, fresh := reader.usage(t.Context(), now)
	if want := (wire.QoS{CPU: 12, Memory: 3072}); !fresh || len(got.Instances) != 1 || got.Instances["web-1"].CPU != want.CPU ||
		got.Instances["web-1"].Memory != want.Memory {
		t.Errorf("usage = %+v, fresh %v; want %+v of web-1 alone", got.Instances, fresh, want)
	}
	if _, fresh := reader.usage(t.Context(), now.Add(2*time.Second)); fresh || metrics.Load() != 1 || kubelet.Load() != 1 {
		t.Errorf("after 2 s it is fresh: %v, with %d and %d requests; want nothing new, and one each", fresh, kubelet.Load(), metrics.Load())
	}
	there = false
	for range 5 {
		now = now.Add(20 * time.Second)
		if got, _ := reader.usage(t.Context(), now); len(got.Instances) != 0 {
			t.Errorf("usage = %+v where nobody measures, want none", got.Instances)
		}
	}
	if reader.failure != noFigures || metrics.Load() != 2 {
		t.Errorf("the log says %q, after %d requests; want that there are no figures, and 2", reader.failure, metrics.Load())
	}
	there, now = true, now.Add(figuresAgain)
	if got, _ := reader.usage(t.Context(), now); len(got.Instances) != 1 || kubelet.Load() != 2 {
		t.Errorf("usage = %+v when there are figures again, with %d requests to the kubelet; want one instance, and 2", got.Instances,
			kubelet.Load())
	}
}

// A pod of the attempt before that still runs, as while it ends, is not taken for the instance, in which order ever they are told.
func TestFiguresOfTheLastAttempt(t *testing.T) {
	text := ""
	reader, last := measured(t, func(to http.ResponseWriter, _ *http.Request) { fmt.Fprint(to, text) })
	before := *reader.w.fleet.own["skerry/"+last.Pod]
	before.Metadata.Name, before.Metadata.UID = "web-1-x-0", "u0"
	before.Metadata.Annotations = maps.Clone(before.Metadata.Annotations)
	before.Metadata.Annotations[attemptNote] = "0"
	before.Metadata.DeletionTimestamp = Time{time.Now()}
	reader.w.fleet.own["skerry/web-1-x-0"] = &before
	one := func(uid string, n int) string {
		return fmt.Sprintf(`{"podRef":{"namespace":"skerry","uid":%q},"containers":[{"cpu":{"usageNanoCores":%d000000},
"memory":{"workingSetBytes":%d}}]}`, uid, n, n)
	}
	text = `{"pods":[` + one(last.UID, 5) + `,` + one("u0", 900) + `]}`
	for range 20 {
		got, _ := reader.usage(t.Context(), time.Now())
		if used := got.Instances["web-1"]; used.CPU != 5 || got.Used.CPU != 905 {
			t.Fatalf("usage = %+v of %+v, want 5 of the instance, and 905 of all pods", got.Instances, got.Used)
		}
	}
}

// An answer without end is not read to its end.
func TestFiguresAreBounded(t *testing.T) {
	var sent atomic.Int64
	reader, _ := measured(t, func(to http.ResponseWriter, r *http.Request) {
		line := []byte(strings.Repeat(" ", 1<<20))
		for r.Context().Err() == nil && sent.Load() < 1<<30 {
			n, err := to.Write(line)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	})
	got, _ := reader.usage(t.Context(), time.Now())
	if len(got.Instances) != 0 || !strings.Contains(reader.failure, errTooLarge.Error()) || sent.Load() > 64<<20 {
		t.Errorf("usage = %+v, %q, after %d bytes; want none, that it is too large, and a bounded number", got.Instances, reader.failure,
			sent.Load())
	}
}

// Nobody is asked for the use of what does not run.
func TestFiguresOfNothing(t *testing.T) {
	worker := alone(t, "http://127.0.0.1:1")
	f := &figures{w: worker}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, fresh := f.usage(ctx, time.Now()); !fresh || got.Instances != nil || f.failure != "" {
		t.Errorf("usage = %+v, fresh %v, %q; want none, and nobody asked", got, fresh, f.failure)
	}
	for range 3 {
		worker.act(core.MeasureEvery{Every: time.Second}) // nobody reads it, and nobody waits
	}
}

func FuzzFigures(f *testing.F) {
	f.Add([]byte(`{"pods":[{"podRef":{"name":"a","namespace":"skerry","uid":"u"},"containers":[{"cpu":{"usageNanoCores":1},` +
		`"memory":{"workingSetBytes":18446744073709551615}}]}]}`))
	f.Add([]byte(`{"items":[{"metadata":{"name":"a"},"containers":[{"usage":{"cpu":"9e99","memory":"-1"}},` +
		`{"usage":{"cpu":"1n","memory":3}}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		one, _ := readSummary(data, "skerry")
		two, _ := readMetrics(data)
		for _, list := range []map[string]use{one, two} {
			for key, u := range list {
				if u.nanoCPU < 0 || u.memory < 0 || u.nanoCPU > most || u.memory > most {
					t.Errorf("the use of %q is %+v, want nothing negative, and a bound", key, u)
				}
			}
		}
	})
}
