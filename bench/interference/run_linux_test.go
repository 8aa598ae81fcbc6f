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
	if len(r.Rows) != len(Services())*len(o.Places) {
		t.Fatalf("%d rows", len(r.Rows))
	}
	for _, row := range r.Rows {
		if row.Place == spec.RuntimeWasm && (row.Service == Database || row.Service == MQTT) {
			if !strings.Contains(row.Skip, "WebAssembly") {
				t.Errorf("%+v", row)
			}
			continue
		}
		if row.Skip != "" {
			t.Errorf("%s in %s: %s", row.Service, row.Place, row.Skip)
			continue
		}
		if o := row.Outcome; o.Sent != 2 || o.Success != 100 || o.Application.Total <= 0 || o.Latency.Mean < o.Application.Total {
			t.Errorf("%s in %s: %+v %+v", row.Service, row.Place, o, o.Latency)
		}
		if s := row.System; s.CPU == nil || *s.CPU <= 0 {
			t.Errorf("%s in %s: %+v", row.Service, row.Place, s)
		}
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
		Warm: 500 * time.Millisecond, Load: 1500 * time.Millisecond, Settle: time.Millisecond, Program: service, Keep: func(*Report) error { kept++; return nil }}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 8 || kept != 8 {
		t.Fatalf("%d rows, %d kept", len(r.Rows), kept)
	}
	for _, row := range r.Rows {
		if row.CPU > 4000 {
			if !strings.Contains(row.Skip, "needs 4096 processors") {
				t.Errorf("%+v", row)
			}
			continue
		}
		if row.Skip != "" {
			t.Fatalf("%s: %s", row.Place, row.Skip)
		}
		// How long it took is the machine's; that it was answered rightly, and was counted, is not.
		o := row.Outcome
		if o.Sent != 3 || o.Success != 100 || o.Application.Total <= 0 || o.Latency.Mean < o.Application.Total {
			t.Errorf("%s: %+v %+v", row.Place, o, o.Latency)
		}
		if n := row.System.Neighbour; (n != nil) != (row.Interference > 0) || n != nil && *n <= 0 {
			t.Errorf("%s beside %s: %v", row.Place, row.interference(), n)
		}
		if s := row.System; s.CPU == nil || *s.CPU <= 0 || s.Throttled == nil {
			t.Errorf("%s: %+v", row.Place, s)
		}
	}
	late := slices.ContainsFunc(r.Rows, func(row *Row) bool { return row.Outcome != nil && row.Outcome.Invalid != "" }) // a busy machine's generator
	if len(r.Changes) != 2 && !late {
		t.Errorf("%+v", r.Changes)
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
		Keep: func(*Report) error { interrupt(); return nil }}
	r, err := Run(ctx, o)
	if err != nil || !r.Unfinished || len(r.Rows) != 1 || r.Rows[0].Rate != 2 {
		t.Errorf("%+v %v", r, err)
	}
	o.Keep, o.Resume = nil, r
	if again, err := Run(t.Context(), o); err != nil || again.Unfinished || len(again.Rows) != 2 || again.Rows[0] != r.Rows[0] || again.Rows[1].Outcome == nil || !again.Began.Equal(r.Began) || again.Seconds <= r.Seconds {
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
