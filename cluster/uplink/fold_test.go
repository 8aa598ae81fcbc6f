package uplink

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func TestSmallClassesAreCoarse(t *testing.T) {
	a := wire.ClassAggregate{Workers: 1}
	a.Available[0] = wire.MomentsOf([]float64{1730})
	a.Available[1] = wire.MomentsOf([]float64{float64(700 * skerry.MiB)})
	coarsen(&a)
	if !a.Coarse || a.Available[0] != (wire.Moments{Sum: 2000, Mean: 1500}) || a.Available[1] != (wire.Moments{Sum: float64(768 * skerry.MiB), Mean: float64(512 * skerry.MiB)}) {
		t.Errorf("%+v", a.Available[:2])
	}
}

// A site passes up what it knows itself: of a service with other fields it would drop these on their way to the worker.
func TestFeaturesOfLaterWorkers(t *testing.T) {
	facts := &wire.WorkerFacts{Features: []string{spec.FeatureSubPath, "ofTomorrow", spec.FeatureAliases, spec.FeatureAliases}}
	report := Fold([]Member{{Facts: facts, Class: ClassKey(facts)}})
	if got := report.Classes[0].Class.Features; !slices.Equal(got, []string{spec.FeatureAliases, spec.FeatureSubPath}) {
		t.Errorf("the root is told of %q", got)
	}
}

// However much a worker says of itself, the report of its site fits a frame.
func TestOneWorkerDoesNotFillTheReport(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	facts := &wire.WorkerFacts{Arch: long, Area: long, Devices: []string{"fpga", long},
		Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}, {Name: long, Passed: true}}}
	for n := range 20_000 {
		facts.Attachable = append(facts.Attachable, fmt.Sprintf("class-%05d=%s", n, "a"), fmt.Sprintf("/dev/serial/by-id/%05d", n))
	}
	honest := &wire.WorkerFacts{Arch: "arm64", Attachable: []string{"plc=b", "plc=a", "vendor.com/gpu=0"}}
	report := Fold([]Member{{Facts: facts, Class: ClassKey(facts)}, {Facts: honest, Class: ClassKey(honest)}})
	if n := len(wire.New().Marshal(&report)); n > 100_000 {
		t.Errorf("the report has %d bytes, want a tenth of a frame", n)
	}
	for _, c := range report.Classes {
		if c.Class.Arch == "arm64" && !slices.Equal(c.Class.Devices, []string{"plc", "vendor.com/gpu"}) {
			t.Errorf("of the other worker the root is told %q", c.Class.Devices)
		} else if c.Class.Arch != "arm64" && (!slices.Equal(c.Class.Runtimes, []string{"oci"}) || len(c.Class.Devices) < 500) {
			t.Errorf("of the first worker the root is told runtimes %q and %d devices", c.Class.Runtimes, len(c.Class.Devices))
		}
	}
}

// Nor do many of them together fill it.
func TestManyWorkersDoNotFillTheReport(t *testing.T) {
	var members []Member
	for worker := range 300 {
		facts := &wire.WorkerFacts{Arch: fmt.Sprint("arch", worker), Area: strings.Repeat("x", 250) + fmt.Sprint(worker)}
		for n := range 5000 {
			facts.Attachable = append(facts.Attachable, fmt.Sprintf("class-%03d-%05d=a", worker, n))
		}
		members = append(members, Member{Facts: facts, Class: ClassKey(facts)})
	}
	honest := &wire.WorkerFacts{Arch: "arm64", Attachable: []string{"plc=b", "vendor.com/gpu=0"},
		Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}}}
	report := Fold(append(members, Member{Facts: honest, Class: ClassKey(honest)}))
	if n := len(wire.New().Marshal(&report)); n > 900_000 {
		t.Errorf("the report has %d bytes, want less than a frame may have", n)
	}
	i := slices.IndexFunc(report.Classes, func(c wire.ClassAggregate) bool { return c.Class.Arch == "arm64" })
	if i < 0 || !slices.Equal(report.Classes[i].Class.Devices, []string{"plc", "vendor.com/gpu"}) ||
		!slices.Equal(report.Classes[i].Class.Runtimes, []string{"oci"}) {
		t.Errorf("of the honest worker the root is told %+v, want its devices and runtime", report.Classes)
	}
}
