package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/store/journal"
	"skerry.dev/skerry/wire"
)

func exporter(t *testing.T, endpoint string, log io.Writer) *Exporter {
	t.Helper()
	e, err := New(Options{Endpoint: endpoint, Interval: time.Second, Headers: map[string]string{"Authorization": "Bearer token"},
		Resource: map[string]string{"service.name": "skerry"}, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// collector answers with a function, which gets what was sent.
func collector(t *testing.T, answer func(w http.ResponseWriter, path string, body map[string]any)) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := map[string]any{}
		zip, err := gzip.NewReader(r.Body)
		if err == nil {
			err = json.NewDecoder(zip).Decode(&body)
		}
		if err != nil || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "Bearer token" {
			t.Errorf("%s: %v, headers %v", r.URL, err, r.Header)
		}
		answer(w, r.URL.Path, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestAddress(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1:4318", "ftp://c", "http://", "http://u:p@c", "http://c?x=1", "http://c#x", "http://[::1"} {
		if _, err := New(Options{Endpoint: bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// What the collector may be sent again is, in the time that it asks for; what it will never take is not, and is told once.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		status  int
		header  string
		body    string
		again   bool
		after   time.Duration
		message string
	}{
		"taken":               {200, "", "{}", false, 0, ""},
		"taken in silence":    {200, "", "", false, 0, ""},
		"the page of a proxy": {200, "", "<html>Log in", true, 0, "no OTLP"},
		"taken in part": {200, "", `{"partialSuccess":{"rejectedLogRecords":"3","errorMessage":"too old"}}`, false, 0,
			"did not take 3 of a request: too old"},
		"busy":           {429, "7", "", true, 7 * time.Second, "429"},
		"away":           {503, "soon", "", true, 0, "503"},
		"for ever":       {503, "999999999", "", true, time.Hour, "503"},
		"wrong":          {400, "", `{"message":"no such field"}`, false, 0, "no such field"},
		"somewhere else": {307, "", "", false, 0, "307"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			e := exporter(t, collector(t, func(w http.ResponseWriter, _ string, _ map[string]any) {
				asked++
				w.Header().Set("Retry-After", c.header)
				w.Header().Set("Location", "/v1/other")
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			}), io.Discard)
			err := e.send(t.Context(), "logs", e.logBody(nil))
			var later *retryable
			if again := errors.As(err, &later); again != c.again || again && later.after != c.after || (err == nil) != (c.message == "") {
				t.Errorf("err = %v, again = %v; want again = %v after %s", err, again, c.again, c.after)
			}
			if err != nil && !strings.Contains(err.Error(), c.message) {
				t.Errorf("err = %v, want %q in it", err, c.message)
			}
			if asked != 1 {
				t.Errorf("asked %d times, want once", asked)
			}
		})
	}
}

// A log reaches the collector with its groups and level, also what was written before it was there and as the role ends. It is written as
// before.
func TestLogs(t *testing.T) {
	var mu sync.Mutex
	var got []string
	up := false
	url := collector(t, func(w http.ResponseWriter, _ string, body map[string]any) {
		mu.Lock()
		defer mu.Unlock()
		if !up {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		text, _ := json.Marshal(body)
		got = append(got, string(text))
	})
	var written, away bytes.Buffer
	e := exporter(t, url, &away)
	log := slog.New(e.Tee(slog.NewTextHandler(&written, nil)))
	peer := slog.GroupValue(slog.String("name", "a"), slog.Duration("for", time.Second))
	log.With("role", "root").WithGroup("link").Warn("lost", "peer", peer)
	for range batchLimit {
		log.Info("more")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		e.Run(ctx)
		close(ended)
	}()
	for asked := false; !asked; {
		e.logs.mu.Lock()
		asked = len(e.logs.full) == 0
		e.logs.mu.Unlock()
	}
	mu.Lock()
	up = true
	mu.Unlock()
	cancel()
	<-ended
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(got, "\n")
	for _, want := range []string{`"severityNumber":13`, `"stringValue":"lost"`, `{"key":"role","value":{"stringValue":"root"}}`,
		`{"key":"link.peer.name","value":{"stringValue":"a"}}`, `{"key":"link.peer.for","value":{"stringValue":"1s"}}`} {
		if strings.Count(all, want) != 1 {
			t.Errorf("%s came %d times, want once", want, strings.Count(all, want))
		}
	}
	if n := strings.Count(all, `"stringValue":"more"`); n != batchLimit {
		t.Errorf("%d records more, want %d", n, batchLimit)
	}
	if !strings.Contains(written.String(), "role=root link.peer.name=a link.peer.for=1s") {
		t.Errorf("the log itself: %.200s", written.String())
	}
}

// What waits for a collector that is away is bounded, and the oldest goes first, also while it is being sent.
func TestQueueIsBounded(t *testing.T) {
	var q queue[int]
	q.full = make(chan struct{}, 1)
	for i := range queueLimit {
		q.add(i)
	}
	batch, before := q.next()
	for i := range 3 {
		q.add(queueLimit + i)
	}
	q.done(len(batch), before, 0)
	if next, _ := q.next(); next[0] != batchLimit || q.lost() != 3 || len(q.items) != queueLimit-batchLimit+3 {
		t.Errorf("next = %d, lost = %d, %d wait; want %d, 3, %d", next[0], q.lost(), len(q.items), batchLimit, queueLimit-batchLimit+3)
	}
}

// What a collector refuses, in whole or in part, is counted as what there was no room for, and that is told also where the collector was
// never away.
func TestLossIsCounted(t *testing.T) {
	answers := []string{`{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"too old"}}`, "{}", "wrong", "{}", "{}"}
	var log strings.Builder
	e := exporter(t, collector(t, func(w http.ResponseWriter, _ string, _ map[string]any) {
		answer := answers[0]
		answers = answers[1:]
		if answer == "wrong" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, answer)
	}), &log)
	var state teller
	round := func(n int, drop int) string {
		t.Helper()
		for range n {
			e.logs.add(logRecord{})
		}
		e.logs.dropped += drop
		log.Reset()
		deliver(t.Context(), t.Context(), e, &e.logs, "logs", e.logBody, &state)
		return log.String()
	}
	for n, c := range []struct {
		records, dropped int
		want             string
	}{{5, 0, "did not take 2"}, {1, 0, "lost=2"}, {3, 0, "400"}, {1, 0, "lost=3"}, {1, 7, "lost=7"}} {
		if got := round(c.records, c.dropped); !strings.Contains(got, c.want) {
			t.Errorf("request %d: it logs %q, want %q", n+1, got, c.want)
		}
	}
}

// What could not be sent by the end is said to be left behind.
func TestWhatIsLeftBehindIsTold(t *testing.T) {
	var log strings.Builder
	away := func(w http.ResponseWriter, _ string, _ map[string]any) { w.WriteHeader(http.StatusServiceUnavailable) }
	e := exporter(t, collector(t, away), &log)
	for range 3 {
		e.logs.add(logRecord{})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	push(ctx, e, &e.logs, "logs", e.logBody)
	if !strings.Contains(log.String(), "left behind") || !strings.Contains(log.String(), "lost=3") {
		t.Errorf("it logs %q, want that 3 were left behind", log.String())
	}
}

// What instances write waits for room, and goes on when there is some.
func TestLinesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := exporter(t, "http://127.0.0.1:1", io.Discard)
		var wg sync.WaitGroup
		const writers, each = 3, queueLimit
		for range writers {
			wg.Go(func() {
				for range each {
					e.Line(t.Context(), time.Now(), "line", nil)
				}
			})
		}
		synctest.Wait()
		if n := len(e.lines.items); n != queueLimit {
			t.Errorf("%d lines wait, want %d", n, queueLimit)
		}
		got := 0
		for got < writers*each {
			batch, before := e.lines.next()
			if len(batch) == 0 {
				t.Fatalf("nothing waits after %d lines, want %d", got, writers*each)
			}
			got += len(batch)
			e.lines.done(len(batch), before, 0)
			synctest.Wait()
		}
		wg.Wait()
		if e.lines.lost() != 0 {
			t.Errorf("lost = %d, want none", e.lines.lost())
		}
	})
}

// Long lines wait in few bytes, and reach the collector in requests that it takes.
func TestLongLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := exporter(t, "http://127.0.0.1:1", io.Discard)
		const lines, long = 100, 1 << 20
		text := strings.Repeat("x", long)
		var wg sync.WaitGroup
		for n := range lines {
			wg.Go(func() { e.Line(t.Context(), time.Now(), text, map[string]string{"n": strconv.Itoa(n)}) })
		}
		synctest.Wait()
		if n := len(e.lines.items); n > 8 {
			t.Errorf("%d MiB wait in the agent", n)
		}
		got := map[string]int{}
		for len(got) < lines {
			batch, before := e.lines.next()
			if len(batch) == 0 || len(batch) > 8 {
				t.Fatalf("%d lines of a MiB in one request, after %d", len(batch), len(got))
			}
			for _, r := range batch {
				got[r.Attributes[0].Value.String]++
			}
			e.lines.done(len(batch), before, 0)
			synctest.Wait()
		}
		wg.Wait()
		if len(e.lines.items) != 0 || e.lines.weight != 0 || e.lines.lost() != 0 {
			t.Errorf("%d lines, %d bytes wait, %d lost; want none", len(e.lines.items), e.lines.weight, e.lines.lost())
		}
		for range lines { // the role's own drop the oldest
			slog.New(e.Tee(slog.NewTextHandler(io.Discard, nil))).Info(text)
		}
		if n := len(e.logs.items); n == 0 || n > 8 || e.logs.lost() != lines-n {
			t.Errorf("%d MiB of the role wait, %d are lost", n, e.logs.lost())
		}
	})
}

// Metrics keep their kinds: counters have a beginning, buckets of histograms are counted apart.
func TestMetrics(t *testing.T) {
	text := `# HELP a_total Help, "quoted".
# TYPE a_total counter
a_total{x="1",y="a\"b,c}\n"} 3
a_total 4e+06
# TYPE g gauge
g -0.5
g{nan="yes"} NaN
# TYPE h histogram
h_bucket{op="get",le="0.1"} 2
h_bucket{op="get",le="1"} 5
h_bucket{op="get",le="+Inf"} 6
h_sum{op="get"} 3.5
h_count{op="get"} 6
h_bucket{op="put",le="+Inf"} 1
h_sum{op="put"} 2
h_count{op="put"} 1
`
	e := exporter(t, "http://127.0.0.1:1", io.Discard)
	body, err := e.metricBody(strings.NewReader(text), e.began.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name":"a_total","description":"Help, \"quoted\".","sum":`, `"asDouble":4000000}`, `"isMonotonic":true`,
		`{"key":"y","value":{"stringValue":"a\"b,c}\n"}}`, `"name":"g","gauge":{"dataPoints":[{"timeUnixNano":`,
		`"count":"6","sum":3.5,"bucketCounts":["2","3","1"],"explicitBounds":[0.1,1],"attributes":[{"key":"op","value":{"stringValue":"get"}}]`,
		`"count":"1","sum":2,"bucketCounts":["1"],"explicitBounds":null`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("there is no %s in %s", want, data)
		}
	}
	if strings.Contains(string(data), "nan") {
		t.Errorf("NaN is no number of JSON: %s", data)
	}
	for _, bad := range []string{"a", "{} 1", `a{x} 1`, `a{x=1} 1`, `a{x="1} 1`, `a{x="1"`, "a one", `a{="1"} 1`, "a{x='1'} 1"} {
		if _, err := e.metricBody(strings.NewReader(bad), time.Now()); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzMetrics(f *testing.F) {
	f.Add("# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_sum 1\n")
	f.Add("a{x=\"1\",} 1e9\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parse(strings.NewReader(text), time.Unix(1, 0), time.Unix(2, 0))
		if err != nil {
			return
		}
		if _, err := json.Marshal(list); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// The parts of a deployment that three tiers tell apart make one trace, each below the one before. What was there before, and what is none
// of the root's, has no beginning above.
func TestDeployments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tell := func(tier wire.Tier, id skerry.InstanceID, states ...skerry.State) []span {
			e := exporter(t, "http://127.0.0.1:1", io.Discard)
			d := e.Deployments(tier, "x")
			for _, s := range states {
				time.Sleep(time.Second)
				i := &wire.Instance{ID: id, Gen: 3, State: s, Conditions: []skerry.Condition{{Type: skerry.Ready, Status: s == skerry.Running}}}
				i.Service.Service = "web"
				d.saw(i)
			}
			if len(d.under) != len(d.order) {
				t.Errorf("%d are under way, %d in order", len(d.under), len(d.order))
			}
			return e.spans.items
		}
		const id = "web-rabcdefgh"
		root := tell(wire.TierRoot, id, skerry.Registered, skerry.ClusterScheduled, skerry.Running)
		site := tell(wire.TierCluster, id, skerry.ClusterScheduled, skerry.Running)
		worker := tell(wire.TierWorker, id, skerry.WorkerScheduled, skerry.Running)
		if len(root) != 3 || len(site) != 2 || len(worker) != 2 {
			t.Fatalf("%d, %d and %d spans, want 3, 2, 2", len(root), len(site), len(worker))
		}
		same := func(a, b hexID) bool { return len(a) > 0 && bytes.Equal(a, b) }
		if !same(root[0].Trace, site[0].Trace) || !same(root[0].Trace, worker[0].Trace) || len(root[0].Trace) != 16 || len(root[0].ID) != 8 {
			t.Errorf("traces %x, %x, %x", root[0].Trace, site[0].Trace, worker[0].Trace)
		}
		if root[0].Parent != nil || !same(site[0].Parent, root[0].ID) || !same(worker[0].Parent, site[0].ID) ||
			!same(root[1].Parent, root[0].ID) {
			t.Errorf("parents: %x, %x, %x", root[0].Parent, site[0].Parent, worker[0].Parent)
		}
		if took := root[0].End - root[0].Start; took != wholeNumber(2*time.Second) || root[1].End != root[2].Start {
			t.Errorf("the root's part took %d ns, want 2 s; steps %+v", took, root[1:])
		}
		if s := tell(wire.TierRoot, id, skerry.Running, skerry.Running); len(s) != 0 {
			t.Errorf("what ran already has a beginning: %+v", s)
		}
		if s := tell(wire.TierCluster, "web-cabcdefgh", skerry.ClusterScheduled, skerry.Running); len(s) != 2 || s[0].Parent != nil {
			t.Errorf("a site's own has a parent: %+v", s)
		}
		failed := tell(wire.TierWorker, id, skerry.WorkerScheduled, skerry.Failed)
		if len(failed) != 2 || failed[0].Status == nil || failed[0].Status.Code != codeError {
			t.Errorf("a failure: %+v", failed)
		}
	})
}

// An instance that does not get ready and has ever other words for it takes no more memory, nor crowds out what others tell.
func TestStepsAreBounded(t *testing.T) {
	e := exporter(t, "http://127.0.0.1:1", io.Discard)
	d := e.Deployments(wire.TierRoot, "")
	i := &wire.Instance{ID: "web-rabcdefgh", Gen: 1, State: skerry.ClusterScheduled}
	for n := range 10000 {
		i.Phase = skerry.Phase("phase " + strconv.Itoa(n))
		d.saw(i)
	}
	if n := len(d.under[i.ID].steps); n > stepLimit {
		t.Errorf("%d steps are kept, want %d at most", n, stepLimit)
	}
	for range 10000 {
		i.Timeline = append(i.Timeline, wire.Step{At: time.Now(), State: skerry.ClusterScheduled})
	}
	first := i.Timeline[0].At
	i.State = skerry.Failed
	d.saw(i)
	if n := len(e.spans.items); n > stepLimit+2 || e.spans.items[0].Start != at(first) {
		t.Errorf("%d spans, from %d; want %d at most, from %d", n, e.spans.items[0].Start, stepLimit+2, at(first))
	}
}

// A role with many instances, of which one changes all the time, has time for something else than to list them. None is missed.
func TestDeploymentsAreListedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e := exporter(t, "http://127.0.0.1:1", io.Discard)
		j := journal.New(journal.Limits{})
		const takes = 50 * time.Millisecond
		listed, inst := 0, wire.Instance{ID: "web-rabcdefgh", Gen: 1, State: skerry.ClusterScheduled}
		var mu sync.Mutex
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = e.Deployments(wire.TierRoot, "").Follow(ctx, j, func(context.Context) ([]wire.Instance, error) {
				time.Sleep(takes)
				mu.Lock()
				defer mu.Unlock()
				listed++
				return []wire.Instance{inst}, nil
			})
		}()
		for range 10000 {
			time.Sleep(time.Millisecond)
			j.Announce(nil, []wire.Change{{Instance: inst.ID}})
		}
		time.Sleep(2 * time.Second)
		mu.Lock()
		if busy := time.Duration(listed) * takes; busy > 2*time.Second {
			t.Errorf("%s of 12 s went into lists", busy)
		}
		inst.State, inst.Conditions = skerry.Running, []skerry.Condition{{Type: skerry.Ready, Status: true}}
		mu.Unlock()
		j.Announce(nil, []wire.Change{{Instance: inst.ID}})
		time.Sleep(2 * time.Second)
		cancel()
		<-ended
		if len(e.spans.items) == 0 {
			t.Error("the last change is not told")
		}
	})
}

// A role that cannot say what runs, as while it starts, is asked again now and then, and what changed meanwhile is told.
func TestDeploymentsWaitForTheRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := exporter(t, "http://127.0.0.1:1", io.Discard)
		d := e.Deployments(wire.TierRoot, "x")
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		ended := make(chan error, 1)
		go func() {
			ended <- d.Follow(ctx, journal.New(journal.Limits{}), func(context.Context) ([]wire.Instance, error) {
				if asked++; asked > 100 {
					cancel()
				}
				return nil, errors.New("the role is starting")
			})
		}()
		time.Sleep(10 * time.Second)
		cancel()
		if err := <-ended; err != nil || asked < 5 || asked > 15 {
			t.Errorf("asked %d times in ten seconds, %v; want once a second", asked, err)
		}
	})
}
