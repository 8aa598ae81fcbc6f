package uplink

import (
	"testing"

	"skerry.dev/skerry"
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
