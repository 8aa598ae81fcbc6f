package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// SweepOptions say which seeds are tried.
type SweepOptions struct {
	First uint64
	// Seeds is how many, one after the other; 0: as many as For allows.
	Seeds int
	For   time.Duration
	// Parallel is how many run at the same time; at least 1.
	Parallel int
	// Minimise makes a failing scenario small, with at most this many runs; 0: it stays as it is.
	Minimise int
	Progress func(done int, failed int)
	// Found, if not nil, is told of each failure as soon as there is one, with the whole scenario, and once more when that was made small.
	// It gives where it keeps the scenario, which may be nowhere, and may be called for several seeds at the same time.
	Found func(f Failure) (file string)
	run   RunOptions
}

// Swept is what came of many seeds.
type Swept struct {
	First     uint64        `json:"first"`
	Seeds     int           `json:"seeds"`
	Steps     int64         `json:"steps"`
	Actions   int64         `json:"actions"`
	Acked     int64         `json:"acknowledged"`
	Simulated time.Duration `json:"simulatedNs"`
	// Converged is the longest that a fleet took to be what was asked for after its last fault.
	Converged     time.Duration `json:"convergedNs"`
	ConvergedSeed uint64        `json:"convergedSeed"`
	Failures      []Failure     `json:"failures"`
}

// Failure is a seed that broke an invariant.
type Failure struct {
	Seed     uint64 `json:"seed"`
	Broken   *Break `json:"broken"`
	Scenario string `json:"scenario"`       // the smallest that breaks it, too
	File     string `json:"file,omitempty"` // where it is kept
}

// found makes the failure of a scenario. Its first notes say what broke.
func found(s *Scenario, b *Break, opt *SweepOptions) Failure {
	text, _, _ := strings.Cut(b.Error(), "\n") // a panic has its stack after it
	kept := *s
	kept.Notes = append([]string{fmt.Sprintf("seed %d: %s", s.Seed, text)}, s.Notes...)
	f := Failure{Seed: s.Seed, Broken: b, Scenario: kept.String()}
	if opt.Found != nil {
		f.File = opt.Found(f)
	}
	return f
}

// Sweep runs many generated scenarios. It ends early when ctx does.
func Sweep(ctx context.Context, opt SweepOptions) Swept {
	out := Swept{First: opt.First, Failures: []Failure{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := time.Now()
	next := opt.First
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil || opt.Seeds > 0 && next-opt.First >= uint64(opt.Seeds) || opt.Seeds == 0 && time.Since(begin) >= opt.For {
			return 0, false
		}
		next++
		return next - 1, true
	}
	for range max(1, opt.Parallel) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				seed, ok := take()
				if !ok {
					return
				}
				s := Generate(seed)
				r := Run(s, opt.run)
				var f *Failure
				if r.Broken != nil {
					whole := found(s, r.Broken, &opt)
					f = &whole
					if opt.Minimise > 0 {
						small := found(Minimise(s, opt.run, r.Broken.Invariant, opt.Minimise, nil), r.Broken, &opt)
						f = &small
					}
				}
				mu.Lock()
				out.Seeds++
				out.Steps += int64(r.Steps)
				out.Actions += int64(len(s.Actions))
				out.Acked += int64(r.Acknowledged)
				out.Simulated += r.Simulated
				if r.Broken == nil && r.Converged > out.Converged {
					out.Converged, out.ConvergedSeed = r.Converged, seed
				}
				if f != nil {
					out.Failures = append(out.Failures, *f)
				}
				if opt.Progress != nil {
					opt.Progress(out.Seeds, len(out.Failures))
				}
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	slices.SortFunc(out.Failures, func(a, b Failure) int { return cmp.Compare(a.Seed, b.Seed) })
	return out
}
