//go:build linux

package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/processstats"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// Bounds of one scrape of an instance.
const (
	scrapeWait = 10 * time.Second
	scrapeSize = 16 << 20
)

// serveMetrics fetches what an instance offers at the port and path of its service's metrics.
func (q requests) serveMetrics(w http.ResponseWriter, r *http.Request, id skerry.InstanceID) error {
	var m *spec.Metrics
	found := false
	err := q.Role.View(r.Context(), func(c loop.Core) {
		if v, ok := core.ViewOf(c.(*core.Core), id); ok {
			m, found = v.Assignment().Spec.Metrics, true
		}
	})
	switch {
	case err != nil:
		return err
	case !found:
		return skerry.Errorf(skerry.CodeNotFound, "instance %q is not on this worker", id)
	case m == nil:
		return skerry.Errorf(skerry.CodeNotFound, "the service of %s declares no metrics", id).WithHint("add metrics: {port: PORT} to it")
	}
	path := m.Path
	if path == "" {
		path = "/metrics"
	}
	ctx, cancel := context.WithTimeout(r.Context(), scrapeWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort("localhost", strconv.Itoa(m.Port))+path, nil)
	if err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "metrics of %s: %w", id, err)
	}
	req.Header.Set("Accept", "text/plain")
	t := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: maxAnswerHeader, DialContext: func(ctx context.Context,
		_, _ string) (net.Conn, error) {
		return q.dialInstance(ctx, id, m.Port)
	}}
	res, err := (&http.Client{Transport: t, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}).Do(req)
	if refused, ok := errors.AsType[*skerry.Error](err); ok {
		return refused
	}
	if err != nil {
		return skerry.Errorf(skerry.CodeUnavailable, "metrics of %s cannot be read: %v", id,
			err).WithHint("does the service listen on port %d, on all addresses?", m.Port)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return skerry.Errorf(skerry.CodeUnavailable, "%s answers %s at %s", id, res.Status, path).WithHint("check metrics.path of the service")
	}
	// Never the instance's own type: what it sends comes to a browser from the address of the API.
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	io.Copy(w, io.LimitReader(res.Body, scrapeSize))
	return nil
}

// Handler offers /metrics, /healthz and /readyz of the worker itself. It asks nobody who they are: it is for a listener
// on loopback or one that a firewall guards.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, err error) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, "ok")
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { answer(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answer(w, s.Ready()) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		var buf bytes.Buffer
		if err := s.WriteMetrics(r.Context(), &buf); err != nil {
			answer(w, err)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Write(buf.Bytes())
	})
	return mux
}

// shares remembers the last scrape, to tell how much of its limit a container used since.
type shares struct {
	mu   sync.Mutex
	last map[string]runtime.Stats
}

// sample is a container's counters with what follows from the last scrape.
type sample struct {
	InstanceStats
	ratio float64 // of the CPU limit; negative: not known yet
}

func (h *shares) samples(stats []InstanceStats) []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := make(map[string]runtime.Stats, len(stats))
	out := make([]sample, 0, len(stats))
	for _, x := range stats {
		key := string(x.Instance) + "/" + x.Container
		now[key] = x.Stats
		r := -1.0
		if old, ok := h.last[key]; ok && x.CPULimit > 0 && x.Stats.At.After(old.At) && x.Stats.CPU >= old.CPU {
			r = (x.Stats.CPU - old.CPU).Seconds() / x.Stats.At.Sub(old.At).Seconds() / (float64(x.CPULimit) / 1000)
		}
		out = append(out, sample{x, r})
	}
	h.last = now
	return out
}

// metricOf is one metric per container.
type metricOf struct {
	name, kind, help string
	value            func(x *sample) (float64, bool)
}

func always(f func(x *sample) float64) func(x *sample) (float64, bool) {
	return func(x *sample) (float64, bool) { return f(x), true }
}

// containerMetrics lists what is exported of each container. Network counters are the instance's and come with its main
// container only.
func containerMetrics() []metricOf {
	return []metricOf{
		{"skerry_instance_cpu_seconds_total", "counter", "Processor time used.",
			always(func(x *sample) float64 { return x.Stats.CPU.Seconds() })},
		{"skerry_instance_cpu_limit_cores", "gauge", "Cores that it may use.",
			func(x *sample) (float64, bool) { return float64(x.CPULimit) / 1000, x.CPULimit > 0 }},
		{"skerry_instance_cpu_limit_ratio", "gauge", "Share of its limit that it used since the last scrape.",
			func(x *sample) (float64, bool) { return x.ratio, x.CPULimit > 0 && x.ratio >= 0 }},
		{"skerry_instance_cpu_throttled_seconds_total", "counter", "Time that the limit withheld.",
			always(func(x *sample) float64 { return x.Stats.Throttled.Seconds() })},
		{"skerry_instance_cpu_periods_total", "counter", "Periods of the limit.",
			always(func(x *sample) float64 { return float64(x.Stats.Periods) })},
		{"skerry_instance_cpu_throttled_periods_total", "counter", "Periods in which it was throttled.",
			always(func(x *sample) float64 { return float64(x.Stats.ThrottledPeriods) })},
		{"skerry_instance_memory_bytes", "gauge", "Memory charged, page cache included.",
			always(func(x *sample) float64 { return float64(x.Stats.Memory) })},
		{"skerry_instance_memory_working_set_bytes", "gauge", "Memory that the kernel cannot drop at no cost.",
			always(func(x *sample) float64 { return float64(x.Stats.MemoryWorkingSet) })},
		{"skerry_instance_memory_peak_bytes", "gauge", "The most memory ever charged.",
			always(func(x *sample) float64 { return float64(x.Stats.MemoryPeak) })},
		{"skerry_instance_memory_limit_bytes", "gauge", "Memory that it may use.",
			func(x *sample) (float64, bool) { return float64(x.Stats.MemoryLimit), x.Stats.MemoryLimit > 0 }},
		{"skerry_instance_oom_kills_total", "counter", "Processes killed for want of memory.",
			always(func(x *sample) float64 { return float64(x.Stats.OOMKills) })},
		{"skerry_instance_pids", "gauge", "Processes and threads.", always(func(x *sample) float64 { return float64(x.Stats.Pids) })},
		{"skerry_instance_disk_read_bytes_total", "counter", "Bytes read from disks.",
			always(func(x *sample) float64 { return float64(x.Stats.DiskRead) })},
		{"skerry_instance_disk_written_bytes_total", "counter", "Bytes written to disks.",
			always(func(x *sample) float64 { return float64(x.Stats.DiskWrite) })},
		{"skerry_instance_network_received_bytes_total", "counter", "Bytes received.",
			func(x *sample) (float64, bool) { return float64(x.RxBytes), x.Container == spec.MainContainer }},
		{"skerry_instance_network_sent_bytes_total", "counter", "Bytes sent.",
			func(x *sample) (float64, bool) { return float64(x.TxBytes), x.Container == spec.MainContainer }},
	}
}

// WriteMetrics writes the worker's Prometheus text: of itself, and of each container that runs.
func (s *Server) WriteMetrics(ctx context.Context, out io.Writer) error {
	stats, err := s.Stats(ctx)
	if err != nil {
		return err
	}
	samples := s.meter.shares.samples(stats)
	for _, m := range containerMetrics() {
		fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
		for i := range samples {
			x := &samples[i]
			if v, ok := m.value(x); ok {
				fmt.Fprintf(out, "%s{instance=%q,namespace=%q,app=%q,service=%q,container=%q} %s\n", m.name, x.Instance, x.App.App.Namespace,
					x.App.App.Name, x.App.Service, x.Container, strconv.FormatFloat(v, 'g', -1, 64))
			}
		}
	}
	list, err := s.Instances(ctx)
	if err != nil {
		return err
	}
	state, ready, restarts := map[skerry.State]int{}, 0, 0
	for i := range list {
		state[list[i].State]++
		restarts += list[i].Restarts
		if list[i].Ready {
			ready++
		}
	}
	fmt.Fprint(out, "# HELP skerry_instances Instances by state.\n# TYPE skerry_instances gauge\n")
	for _, st := range skerry.States {
		fmt.Fprintf(out, "skerry_instances{state=%q} %d\n", st, state[st])
	}
	fmt.Fprintf(out, "# HELP skerry_instances_ready Instances that may get traffic.\n# TYPE skerry_instances_ready gauge\nskerry_instances_ready %d\n", ready)
	fmt.Fprintf(out, "# HELP skerry_instances_restarts Restarts of the instances that there are.\n# TYPE skerry_instances_restarts gauge\nskerry_instances_restarts %d\n", restarts)
	ok := 0
	if s.Ready() == nil {
		ok = 1
	}
	fmt.Fprintf(out, "# HELP skerry_ready Whether the role can do its work.\n# TYPE skerry_ready gauge\nskerry_ready %d\n", ok)
	s.Role.WriteLoop(out)
	if up := s.up.Load(); up != nil {
		tier.WriteParent(out, up)
	}
	fmt.Fprintf(out, "# HELP skerry_build_info The program.\n# TYPE skerry_build_info gauge\nskerry_build_info{version=%q,role=\"worker\",name=%q} 1\n", s.opt.Version, s.opt.Name)
	processstats.Write(out)
	return nil
}
