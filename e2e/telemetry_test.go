//go:build linux

package e2e

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/internal/testenv"
)

// spanSeen is a span that was pushed, with who pushed it.
type spanSeen struct {
	by, Name                      string
	TraceID, SpanID, ParentSpanID string
}

// receiver takes what roles push, after it has refused the first request of each kind.
type receiver struct {
	mu      sync.Mutex
	refused map[string]bool
	spans   []spanSeen
	metrics map[string][]string // names, by who pushed them
	logs    []string
	bodies  map[string]string // all of it, by who pushed it
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.refused[req.URL.Path] {
		r.refused[req.URL.Path] = true
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	type resource struct {
		Attributes []struct {
			Key   string
			Value struct{ StringValue string }
		}
	}
	var body struct {
		ResourceSpans []struct {
			Resource   resource
			ScopeSpans []struct{ Spans []spanSeen }
		}
		ResourceMetrics []struct {
			Resource     resource
			ScopeMetrics []struct{ Metrics []struct{ Name string } }
		}
		ResourceLogs []struct {
			Resource  resource
			ScopeLogs []struct {
				LogRecords []struct{ Body struct{ StringValue string } }
			}
		}
	}
	zip, err := gzip.NewReader(req.Body)
	var text []byte
	if err == nil {
		text, err = io.ReadAll(zip)
	}
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	who := func(from resource) (name string) {
		for _, a := range from.Attributes {
			if a.Key == "service.instance.id" {
				name = a.Value.StringValue
			}
		}
		r.bodies[name] += string(text)
		return name
	}
	for _, x := range body.ResourceSpans {
		by := who(x.Resource)
		for _, s := range x.ScopeSpans {
			for _, one := range s.Spans {
				one.by = by
				r.spans = append(r.spans, one)
			}
		}
	}
	for _, x := range body.ResourceMetrics {
		by := who(x.Resource)
		for _, s := range x.ScopeMetrics {
			for _, m := range s.Metrics {
				r.metrics[by] = append(r.metrics[by], m.Name)
			}
		}
	}
	for _, x := range body.ResourceLogs {
		who(x.Resource)
		for _, s := range x.ScopeLogs {
			for _, l := range s.LogRecords {
				r.logs = append(r.logs, l.Body.StringValue)
			}
		}
	}
	fmt.Fprint(w, "{}")
}

// tellsOf gives who has told of a deployment, by identifiers that fit, or nothing while not all have.
func (r *receiver) tellsOf(service string) (tiers []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var above spanSeen
	for _, tier := range []string{"root/root", "cluster/harbour", "worker/w1"} {
		at := slices.IndexFunc(r.spans, func(s spanSeen) bool {
			return s.by == tier && strings.HasSuffix(s.Name, " "+service) &&
				(above.SpanID == "" || s.TraceID == above.TraceID && s.ParentSpanID == above.SpanID)
		})
		if at < 0 {
			return tiers
		}
		above = r.spans[at]
		tiers = append(tiers, tier)
	}
	return tiers
}

// Root, cluster and worker push their metrics, logs and parts of the trace of one deployment, again after a refusal. The root pushes no
// name of a worker.
func TestTelemetryIsPushed(t *testing.T) {
	r := &receiver{refused: map[string]bool{}, metrics: map[string][]string{}, bodies: map[string]string{}}
	server := httptest.NewServer(r)
	defer server.Close()
	t.Setenv("SKERRY_OTLP", server.URL)
	t.Setenv("SKERRY_OTLP_INTERVAL", "1s")
	t.Setenv("SKERRY_OTLP_INSTANCE_LOGS", "true")
	p := newProcesses(t, "worker")
	p.threeRoles()
	root := p.stable(1)
	testenv.Build(t, filepath.Join(p.dir, "workload"), workload)
	pushFile(t, root, p.dir, "test/workload:1", filepath.Join(p.dir, "workload"))
	job := `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"brief"},"spec":{"services":[{"name":"job","mode":"job",
"image":"test/workload:1","command":["/workload","print","told at once"],"resources":{"cpu":0.1,"memory":"32Mi"}}]}}`
	if _, err := root.Apply(t.Context(), []byte(job), api.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "what a job writes that ends at once is told", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Contains(r.logs, "told at once")
	})
	await(t, "each tier has told its part of one trace", func() bool { return len(r.tellsOf("stable/web")) == 3 })
	await(t, "each tier has told its metrics, and the root its log", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, who := range []string{"root/root", "cluster/harbour", "worker/w1"} {
			if !slices.Contains(r.metrics[who], "skerry_ready") || !slices.Contains(r.metrics[who], "process_resident_memory_bytes") {
				return false
			}
		}
		return slices.Contains(r.metrics["worker/w1"], "skerry_instance_cpu_seconds_total") &&
			slices.Contains(r.metrics["root/root"], "skerry_api_request_duration_seconds") && slices.Contains(r.logs, "Scheduled")
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if text := r.bodies["root/root"]; strings.Contains(text, `"w1"`) || strings.Contains(text, p.data("worker")) {
		t.Error("the root pushed the name of a worker")
	}
}

// The OpenTelemetry collector takes what is pushed, all of it.
func TestCollector(t *testing.T) {
	testenv.Long(t, "TestTelemetryIsPushed, internal/otlp")
	build := exec.Command("../scripts/otelcollector/build")
	build.Stderr = os.Stderr
	program, err := build.Output()
	if err != nil {
		t.Skip(&testenv.Unsupported{What: "the OpenTelemetry collector", Why: "it cannot be built: " + err.Error()})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	out, err := os.Create(filepath.Join(t.TempDir(), "collected"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	config := `yaml:{receivers: {otlp: {protocols: {http: {endpoint: "` + addr + `"}}}}, exporters: {debug: {verbosity: detailed}},
service: {telemetry: {metrics: {level: none}}, pipelines: {traces: {receivers: [otlp], exporters: [debug]},
metrics: {receivers: [otlp], exporters: [debug]}, logs: {receivers: [otlp], exporters: [debug]}}}}`
	cmd := exec.Command(strings.TrimSpace(string(program)), "--config", config)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	t.Setenv("SKERRY_OTLP", "http://"+addr)
	t.Setenv("SKERRY_OTLP_INTERVAL", "1s")
	p := newProcesses(t, "worker")
	p.threeRoles()
	p.stable(1)
	traces := regexp.MustCompile(`Trace ID +: ([0-9a-f]{32})\n +Parent ID +: [0-9a-f]*\n +ID +: [0-9a-f]{16}\n +Name +: ` +
		`(root|cluster|worker) stable/web\n`)
	await(t, "the collector has the trace of three tiers", func() bool {
		text, err := os.ReadFile(out.Name())
		if err != nil {
			return false
		}
		ids, tiers := map[string]bool{}, map[string]bool{}
		for _, m := range traces.FindAllStringSubmatch(string(text), -1) {
			ids[m[1]], tiers[m[2]] = true, true
		}
		return len(ids) == 1 && len(tiers) == 3
	})
	await(t, "the collector has metrics and logs", func() bool {
		text, err := os.ReadFile(out.Name())
		return err == nil && !slices.ContainsFunc([]string{"Name: skerry_instance_cpu_seconds_total", "DataType: Histogram",
			"Body: Str(Scheduled)", "SeverityNumber: Info(9)"}, func(part string) bool { return !strings.Contains(string(text), part) })
	})
	if log, err := os.ReadFile(p.log.Name()); err != nil || strings.Contains(string(log), "telemetry is not taken") {
		t.Errorf("something was not taken, %v: %s", err, log)
	}
}
