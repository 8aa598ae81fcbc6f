package interference

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime/native"
	"skerry.dev/skerry/runtime/wasm"
	"skerry.dev/skerry/spec"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == node.ShimCommand {
		os.Exit(native.ShimMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == node.WasmCommand {
		os.Exit(wasm.RunMain(os.Args[2:]))
	}
	os.Exit(testenv.Main(m, testenv.Options{NetNS: true}))
}

// Every service answers in a process, a container and a module, or tells why it cannot.
func TestServices(t *testing.T) {
	places := []string{Bare, spec.RuntimeOCI}
	if testenv.Systems() { // with the race detector it takes minutes to compile one
		places = append(places, spec.RuntimeWasm)
	}
	o := Options{Choice: Choice{Services: Services(), Rates: []float64{4}}, Places: places, Warm: time.Millisecond, Load: 500 * time.Millisecond, Settle: time.Millisecond}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range Services() {
		for _, place := range o.Places {
			x := &row{place: place, Setting: newGroup(service, 0.5, PinNone, 0, "", nil).Setting, rate: 4}
			if skip := x.ran(r).Skip; skip != "" {
				if place != spec.RuntimeWasm || service != Database && service != MQTT || !strings.Contains(skip, "WebAssembly") {
					t.Errorf("%s in %s: %s", service, place, skip)
				}
				continue
			}
			answered(t, r, x)
		}
	}
}

// answered checks that a service answered rightly, and was counted; how long it took is the machine's.
func answered(t *testing.T, r *report.Report, x *row) {
	t.Helper()
	values := map[string]float64{}
	for _, m := range metrics() {
		if f := m.figure(r, x); len(f.Samples) > 0 {
			values[m.name] = f.Samples[len(f.Samples)-1]
		}
	}
	if values[success] != 100 || values[inService] <= 0 || values[meanLatency] < values[inService] || values["processor time"] <= 0 {
		t.Errorf("%s in %s at %g: %v", x.name(), x.place, x.rate, values)
	}
	if v, has := values["processor time of the neighbour"]; has != (x.Interference > 0) || has && v <= 0 {
		t.Errorf("beside %s in %s: %v", x.name(), x.place, values)
	}
}

// An answer that is not the one that is known is an error.
func TestWrongAnswer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"total":1,"sum":"%s"}`, r.FormValue("n"))
	}))
	defer s.Close()
	c := newClient(strings.TrimPrefix(s.URL, "http://"), []string{"0", "1", "other"}, false)
	defer c.close()
	for n, right := range []bool{true, true, false, true} {
		if a, err := c.get(t.Context()); (err == nil) != right || right && a.Total != 1 {
			t.Errorf("request %d: %+v %v", n, a, err)
		}
	}
}

// The service answers, as a process and in a container, alone and beside a neighbour; what does not fit is listed.
func TestRun(t *testing.T) {
	service := filepath.Join(t.TempDir(), "services")
	testenv.Build(t, service, "skerry.dev/skerry/examples/services")
	kept := 0
	o := Options{Choice: Choice{CPU: []float64{0.5, 4096}, Rates: []float64{2}, Interference: []float64{0, 0.25}, Pin: []string{PinBoth}}, Places: []string{Bare, "oci"},
		Warm: 500 * time.Millisecond, Load: 1500 * time.Millisecond, Settle: time.Millisecond, Program: service, Measuring: report.Measuring{Keep: func(*report.Report) error { kept++; return nil }}}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if kept != 8 || r.Unfinished || r.Rounds != 4 {
		t.Fatalf("%d kept, %d rounds, unfinished %v", kept, r.Rounds, r.Unfinished)
	}
	for _, cpu := range o.CPU {
		for _, load := range o.Interference {
			for _, place := range o.Places {
				x := &row{place: place, Setting: newGroup(Image, cpu, PinBoth, load, "cpu", nil).Setting, rate: 2}
				if cpu < 4000 {
					answered(t, r, x)
				} else if skip := x.ran(r).Skip; !strings.Contains(skip, "needs 4096 processors") {
					t.Errorf("%+v: %q", x, skip)
				}
			}
		}
	}
	const changed = "image, 0.5 CPU: beside cpu 0.25, pin both against alone, pin both"
	if len(r.Disturbed) == 0 && (r.Find(changed, "mean latency, 2/s", Bare) == nil || r.Find(changed, "mean latency, 2/s", "oci") == nil) { // a busy machine's generator is late
		t.Error("with a neighbour is not compared with alone")
	}
	t.Run("interrupted", func(t *testing.T) { interrupted(t, service) })
	own := fmt.Sprintf("skerry-bench-%d", os.Getpid()) // other packages' tests make such cgroups, too
	for _, pattern := range []string{filepath.Join(os.TempDir(), "skerry-bench-interference-*"), filepath.Join(cgroups, "*", own), filepath.Join(cgroups, "*", own+"-*")} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// interrupted: Ctrl-C leaves what is complete, and another run goes on from there.
func interrupted(t *testing.T, service string) {
	ctx, interrupt := context.WithCancel(t.Context())
	o := Options{Choice: Choice{CPU: []float64{0.5}, Rates: []float64{2, 4}}, Places: []string{Bare}, Warm: time.Millisecond, Load: 500 * time.Millisecond, Settle: time.Millisecond, Program: service,
		Measuring: report.Measuring{Keep: func(*report.Report) error { interrupt(); return nil }}}
	r, err := Run(ctx, o)
	rows := func(r *report.Report) (out []int) {
		for _, rate := range o.Rates {
			x := &row{place: Bare, Setting: newGroup(Image, 0.5, PinNone, 0, "", nil).Setting, rate: rate}
			out = append(out, len(x.ran(r).Samples))
		}
		return out
	}
	if err != nil || !r.Unfinished || !slices.Equal(rows(r), []int{1, 0}) {
		t.Errorf("%+v %v", r, err)
	}
	o.Keep, o.Resume = nil, r
	again, err := Run(t.Context(), o)
	if err != nil || again.Unfinished || !slices.Equal(rows(again), []int{1, 1}) || !again.Began.Equal(r.Began) || again.Seconds <= r.Seconds || again.Rounds != 2 {
		t.Errorf("%+v %v", again, err)
	}
	o.Load *= 2
	if _, err := Run(t.Context(), o); skerry.AsError(err).Code != skerry.CodeConflict {
		t.Errorf("a report of other times was gone on from: %v", err)
	}
	o.Places, o.Resume = []string{"moon"}, nil
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "moon") {
		t.Error(err)
	}
}

// What perf does not count is missing, not 0.
func TestPerf(t *testing.T) {
	text := "<not supported>,,cycles,0,100.00,,\n6150,,context-switches,2019378496,100.00,,\n72,,cpu-migrations,2019379457,100.00,,\n"
	counters, missing := parsePerf(text)
	if len(counters) != 2 || counters["context-switches"] != 6150 || counters["cpu-migrations"] != 72 || len(missing) != 1 || missing[0] != "cycles: perf says <not supported>" {
		t.Error(counters, missing)
	}
	if _, missing := parsePerf("Error: not permitted\n"); len(missing) != 1 {
		t.Error(missing)
	}
}
