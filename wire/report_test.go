package wire

import (
	"testing"
)

func TestMoments(t *testing.T) {
	m := MomentsOf([]float64{2, 4, 4, 4, 5, 5, 7, 9})
	if m.Sum != 40 || m.Mean != 5 || m.StdDev != 2 {
		t.Errorf("%+v", m)
	}
}
