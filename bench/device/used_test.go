package device

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
)

func TestUsed(t *testing.T) {
	// A machine of two processors with a guest; user time has the guest's in it.
	before, err := parseUsed("cpu  1000 50 300 9000 10 20 30 0 400 10\ncpu0 1 2 3\n")
	if err != nil || before != (Used{User: 6.4, System: 3, SoftIRQ: 0.5, Guest: 4.1}) {
		t.Fatalf("%+v %v", before, err)
	}
	after, err := parseUsed("cpu  1200 50 350 9100 10 20 50 0 500 10\n")
	if err != nil || after.since(before) != (Used{User: 1, System: 0.5, SoftIRQ: 0.2, Guest: 1}) {
		t.Errorf("%+v %v", after.since(before), err)
	}
	for _, bad := range []string{"", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2", "cpu a b c d e f g h"} {
		if _, err := parseUsed(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
	joules := func(v float64) *float64 { return &v }
	// The same work with twice the processor time and twice the energy is half the work for each.
	r := &Report{Done: 2, Places: []Told{{Name: Bare}, {Name: "oci"}}, Cases: []Measured{{Case: Case{ID: "os.fork", Group: "os", Class: System, Better: Lower, Tool: toolKernels}, Results: map[string]*Result{
		Bare:  {Samples: []float64{1, 1}, Used: []Used{{Seconds: 1, User: 0.5, System: 0.5, Joules: joules(2)}, {Seconds: 1, User: 0.5, System: 0.5, Joules: joules(4)}}},
		"oci": {Samples: []float64{2, 2}, Used: []Used{{Seconds: 2, User: 1, System: 1, Joules: joules(6)}, {Seconds: 2, User: 1, System: 0.5, SoftIRQ: 0.5, Joules: joules(6)}}}}}}}
	r.fold()
	e := r.Cases[0].Results["oci"].Efficiency
	if e == nil || math.Abs(e.CPU+50) > 1e-9 || e.Joules == nil || math.Abs(*e.Joules+50) > 1e-9 {
		t.Errorf("%+v", e)
	}
	// A case of a fixed time does as much work as its figure says.
	r.Cases[0].Tool, r.Cases[0].Better = "fio", Higher
	r.fold()
	if e := r.Cases[0].Results["oci"].Efficiency; e == nil || math.Abs(e.CPU) > 1e-9 {
		t.Errorf("%+v", e)
	}
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil || !strings.Contains(out.String(), "processor: os in oci: 2.00 s a run of 2.00 s: user 50 %, system 38 %, interrupts 12 %, guest 0 %; 6.00 J; work for a processor second +0 %") {
		t.Errorf("%v\n%s", err, out.String())
	}
	// One run without a meter, and nothing is told of energy.
	r.Cases[0].Results["oci"].Used[1].Joules = nil
	r.fold()
	if m := r.Cases[0].Results["oci"].Mean; m.Joules != nil || m.CPU() != 2 {
		t.Errorf("%+v", m)
	}
}

func TestParseMeter(t *testing.T) {
	now := time.Unix(110, 0)
	if v, err := parseMeter(strings.NewReader("time,watts\n100,5\n102, 10\n104,0.5\n106,"), now); err != nil || math.Abs(v-(10+20+3)) > 1e-9 {
		t.Error(v, err)
	}
	for _, bad := range []string{"", "time,watts\n", "100,5\n99,5\n", "100,5\n101,x\n", "100,NaN\n"} {
		if v, err := parseMeter(strings.NewReader(bad), now); err == nil {
			t.Errorf("%q is %v", bad, v)
		}
	}
}

func FuzzParseMeter(f *testing.F) {
	f.Add("time,watts\n100,5\n102,10\n")
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := parseMeter(strings.NewReader(text), time.Unix(1e9, 0)); err == nil && (math.IsNaN(v) || v < 0) {
			t.Errorf("%q gives %v", text, v)
		}
	})
}
