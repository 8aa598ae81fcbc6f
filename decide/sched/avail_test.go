package sched

import (
	"math/rand/v2"
	"slices"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Summaries that followed single changes are those that are made from scratch.
func TestSummariesFollowWhatIsLeft(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	s := benchSite(superBlocks*64+1000, false)
	closed := s.blocks[3]
	s.open[3] = 0 // a block in which nobody takes anything new
	s.touch(3 * 64)
	s.refresh()
	r := request(100, skerry.MiB)
	for range 20_000 {
		name := s.names[rng.IntN(len(s.names))]
		switch rng.IntN(4) {
		case 0:
			s.Take(name, r)
		case 1:
			s.Give(name, r)
		case 2: // of the extremes, too
			s.SetAvailable(name, spec.Resources{CPU: skerry.MilliCPU(500 * rng.IntN(20)), Memory: skerry.Bytes(rng.IntN(9)) * skerry.GiB,
				GPUs: rng.IntN(2)})
		default:
			if rng.IntN(100) == 0 {
				s.refresh()
			}
		}
	}
	s.refresh()
	anew := s.Clone()
	for n := range anew.names {
		anew.touch(n)
	}
	anew.refresh()
	if !slices.Equal(s.blocks, anew.blocks) || !slices.Equal(s.supers, anew.supers) || !slices.Equal(s.levels, anew.levels) {
		t.Error("summaries differ from those made from scratch")
	}
	if s.blocks[3] == closed {
		t.Error("nothing was changed")
	}
}
