package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry/internal/processstats"
)

// meter counts requests. The histogram is our own, because dashboards and alerts expect Prometheus' cumulative buckets.
type meter struct {
	mu       sync.Mutex
	requests map[requestKey]int64
	took     map[string]*durations
}

type requestKey struct {
	operation string
	status    int
}

// buckets are the upper bounds of durations in seconds.
var buckets = [...]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

type durations struct {
	count [len(buckets) + 1]int64 // by the first bound that holds; the last is for the rest
	sum   float64
}

func newMeter() *meter {
	return &meter{requests: map[requestKey]int64{}, took: map[string]*durations{}}
}

// request counts a request. The operations are those of the table, so the maps stay small.
func (m *meter) request(operation string, status int, took time.Duration, stream bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[requestKey{operation, status}]++
	if stream {
		return // how long somebody watched says nothing of the server
	}
	d := m.took[operation]
	if d == nil {
		d = &durations{}
		m.took[operation] = d
	}
	i, _ := slices.BinarySearch(buckets[:], took.Seconds())
	d.count[i]++
	d.sum += took.Seconds()
}

func (m *meter) write(out io.Writer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := make([]requestKey, 0, len(m.requests))
	for k := range m.requests {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b requestKey) int {
		if n := strings.Compare(a.operation, b.operation); n != 0 {
			return n
		}
		return a.status - b.status
	})
	fmt.Fprint(out, "# HELP skerry_api_requests_total Requests by operation and status.\n# TYPE skerry_api_requests_total counter\n")
	for _, k := range keys {
		fmt.Fprintf(out, "skerry_api_requests_total{operation=%q,status=\"%d\"} %d\n", k.operation, k.status, m.requests[k])
	}
	names := make([]string, 0, len(m.took))
	for k := range m.took {
		names = append(names, k)
	}
	slices.Sort(names)
	const name = "skerry_api_request_duration_seconds"
	fmt.Fprintf(out, "# HELP %s Time to answer, streams left out.\n# TYPE %s histogram\n", name, name)
	for _, o := range names {
		d, n := m.took[o], int64(0)
		for i, le := range buckets {
			n += d.count[i]
			fmt.Fprintf(out, "%s_bucket{operation=%q,le=\"%g\"} %d\n", name, o, le, n)
		}
		n += d.count[len(buckets)]
		fmt.Fprintf(out, "%s_bucket{operation=%q,le=\"+Inf\"} %d\n%s_sum{operation=%q} %g\n%s_count{operation=%q} %d\n", name, o, n, name, o,
			d.sum, name, o, n)
	}
}

func (h *Handler) serveMetrics(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	h.WriteMetrics(r.Context(), w)
}

// WriteMetrics writes what the role and its API have measured as Prometheus text.
func (h *Handler) WriteMetrics(ctx context.Context, w io.Writer) {
	h.opt.Backend.WriteMetrics(ctx, w)
	fmt.Fprintf(w, "# HELP skerry_build_info The program.\n# TYPE skerry_build_info gauge\nskerry_build_info{version=%q,role=%q,name=%q} 1\n", h.opt.Version, h.opt.Backend.Tier(), h.opt.Backend.Name())
	fmt.Fprintf(w, "# HELP skerry_start_time_seconds When the role was started.\n# TYPE skerry_start_time_seconds gauge\nskerry_start_time_seconds %d\n", h.opt.Backend.Started().Unix())
	h.limits.mu.Lock()
	open := h.limits.open
	h.limits.mu.Unlock()
	fmt.Fprintf(w, "# HELP skerry_api_streams Logs, terminals, forwards and watches that are open.\n# TYPE skerry_api_streams gauge\nskerry_api_streams %d\n", open)
	h.meter.write(w)
	processstats.Write(w)
}
