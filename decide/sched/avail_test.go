package sched

import (
	"math/rand/v2"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Summaries that follow single changes are those that are made from scratch, after each of them.
func TestSummariesFollowWhatIsLeft(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	s := benchSite(superBlocks*64+1000, false)
	s.open[3] = 0 // a block in which nobody takes anything new
	s.touch(3 * 64)
	r := request(100, skerry.MiB)
	var blocks, closed, supers int // that followed a change
	for range 8000 {
		if rng.IntN(2) == 0 {
			s.refresh()
		}
		n := rng.IntN(len(s.names))
		if rng.IntN(20) == 0 {
			n = 3*64 + rng.IntN(64)
		}
		switch name := s.names[n]; rng.IntN(3) {
		case 0:
			s.Take(name, r)
		case 1:
			s.Give(name, r)
		default: // of the extremes, too
			s.SetAvailable(name, spec.Resources{CPU: skerry.MilliCPU(rng.IntN(10_000)), Memory: skerry.Bytes(rng.IntN(9)) * skerry.GiB,
				Storage: skerry.Bytes(rng.IntN(1000)) * skerry.GiB, GPUs: rng.IntN(1000)})
		}
		block, super := followed(t, s, n/64)
		switch {
		case block && s.open[n/64] == 0:
			closed++
		case block:
			blocks++
		}
		if super {
			supers++
		}
	}
	if min(blocks, closed, supers) < 100 {
		t.Errorf("%d summaries of open blocks, %d of a closed one, and %d of many blocks followed a change", blocks, closed, supers)
	}
}

// followed has the summaries of a block, and of those beside it, be what is made from scratch, unless they are out of date.
func followed(t *testing.T, s *Site, b int) (block, super bool) {
	t.Helper()
	top := b / superBlocks
	if block = s.stale[top]>>(b%superBlocks)&1 == 0; block {
		sum, levels := s.blocks[b], s.levels[b]
		if s.summarise(b); s.blocks[b] != sum || s.levels[b] != levels {
			t.Fatalf("block %d has\n%+v, %x, made from scratch\n%+v, %x", b, sum, levels, s.blocks[b], s.levels[b])
		}
	}
	if super = s.stale[top] == 0; super {
		want := emptySummary
		for b := top * superBlocks; b < min((top+1)*superBlocks, len(s.blocks)); b++ {
			want.join(&s.blocks[b])
		}
		if s.supers[top] != want {
			t.Fatalf("blocks from %d have\n%+v, made from scratch\n%+v", top*superBlocks, s.supers[top], want)
		}
	}
	return block, super
}
