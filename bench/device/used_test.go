package device

import (
	"math"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/bench/report"
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
}

// What follows from a round is made of its runs: the same work with twice the processor time and twice the energy is half the
// work for each.
func TestDerive(t *testing.T) {
	fork := &Case{ID: "os.fork", Group: "os", Class: System, Better: report.Lower, Tool: toolKernels}
	fio := &Case{ID: "disk.read", Group: "disk", Class: System, Better: report.Higher, Tool: "fio"}
	oom := &Case{ID: "os.oom", Group: "os", Class: System, Better: report.Higher, killed: true}
	r := report.New("runtime", "", "")
	r.Baseline = Bare
	nan := math.NaN()
	derive(r, []ran{
		{fork, Bare, 1, Used{User: 0.5, System: 0.5, Joules: 2}}, {fork, "oci", 2, Used{User: 1, System: 0.5, SoftIRQ: 0.5, Joules: 4}},
		{fio, Bare, 100, Used{User: 1, Joules: nan}}, {fio, "oci", 50, Used{User: 1, Joules: nan}},
		{fio, "gvisor", 0, Used{Joules: nan}}, {oom, "oci", 1, Used{User: 9, Joules: nan}},
	})
	r.Rounds++
	r.Fold()
	for _, c := range []struct {
		group, name, place string
		want               float64
	}{
		{"whole machine, cases of os", "user", "oci", 5}, {"whole machine, cases of os", "interrupts", "oci", 0.25},
		{"whole machine, cases of os", workPerCPU, "oci", 0.5}, {"whole machine, cases of os", "work for a joule", "oci", 0.5},
		{"whole machine, cases of os", "energy", "oci", 4}, {"whole machine, cases of disk", workPerCPU, "oci", 0.5},
		{profileGroup, "os", "oci", 2}, {profileGroup, "disk", "oci", 2}, {profileGroup, System, "oci", 2},
	} {
		if f := r.Find(c.group, c.name, c.place); f == nil || f.Value == nil || math.Abs(f.Value.Value-c.want) > 1e-9 || f.Unit == "" {
			t.Errorf("%s, %s in %s is %+v, want %v", c.group, c.name, c.place, f, c.want)
		}
	}
	for _, f := range r.Figures {
		if f.Value == nil && f.Place != "gvisor" || strings.HasSuffix(f.Group, "disk") && strings.Contains(f.Name, "joule") {
			t.Errorf("%+v has no value", f)
		}
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
