package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
)

// TestSuccessorsTakeOver adds successions to scenarios full of other faults: with each the site's core begins in a later term from
// what was committed, and what runs goes on under it.
func TestSuccessorsTakeOver(t *testing.T) {
	var all uint64
	for seed := range uint64(testenv.Times(8, 60)) {
		s := Generate(seed)
		rng := rand.New(rand.NewPCG(seed, 9))
		end := s.Actions[len(s.Actions)-1].At
		for range 3 {
			s.Actions = append(s.Actions, Action{At: time.Duration(rng.Int64N(int64(end) + 1)), Verb: "succeed", Target: s.Sites[rng.IntN(len(s.Sites))],
				Args: map[string]string{"after": []string{"0s", "1s", "12s"}[rng.IntN(3)]}})
		}
		slices.SortStableFunc(s.Actions, func(a, b Action) int { return int(a.At - b.At) })
		res := Run(s, RunOptions{})
		if res.Broken != nil {
			t.Errorf("seed %d: %+v", seed, res.Broken)
			t.Log(s.String())
		}
		var successions uint64
		for _, n := range res.World.Clusters {
			successions += n.successions
		}
		all += successions
	}
	if all < uint64(testenv.Times(6, 40)) {
		t.Errorf("%d successions", all)
	}
}
