package uplink

import (
	"slices"
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
