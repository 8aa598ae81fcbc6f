package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/quiet"
	"skerry.dev/skerry/bench/report"
)

// Options say what to measure.
type Options struct {
	Adapters []string      // files; at least one
	Image    string        // that every orchestrator can fetch
	Rounds   int           // at least 1
	Sizes    []int         // replicas of a deployment, at least one, each at least 1
	Watch    time.Duration // of processes at rest
	Timeout  time.Duration // of each step of an adapter, at least a second
	Quick    bool          // told in the report
	// Quiet waits for a quiet machine before the first round and after each; nil: it does not wait.
	Quiet *quiet.Watch
	// Progress is told what is being done; Keep is given the report after each round. Both may be nil.
	Progress func(string)
	Keep     func(*Report) error
}

// maxReplicas bounds a deployment.
const maxReplicas = 10_000

func (o *Options) check() error {
	switch {
	case len(o.Adapters) == 0:
		return skerry.Errorf(skerry.CodeInvalid, "no adapter was given").WithHint("examples/adapters has some; docs/BENCH-ADAPTERS.md tells how to write one")
	case o.Image == "":
		return skerry.Errorf(skerry.CodeInvalid, "no image was given")
	case o.Rounds < 1 || o.Rounds > 1000:
		return skerry.Errorf(skerry.CodeInvalid, "%d rounds are not 1 to 1000", o.Rounds)
	case len(o.Sizes) == 0:
		return skerry.Errorf(skerry.CodeInvalid, "no number of replicas was given")
	case o.Watch <= 0 || o.Timeout < time.Second:
		return skerry.Errorf(skerry.CodeInvalid, "a rest of %v or a limit of %v cannot be", o.Watch,
			o.Timeout).WithHint("more than 0, and 1s at least")
	}
	for i, n := range o.Sizes {
		if n < 1 || n > maxReplicas || slices.Contains(o.Sizes[:i], n) {
			return skerry.Errorf(skerry.CodeInvalid, "%d replicas are not 1 to %d, or there twice", n, maxReplicas)
		}
	}
	return nil
}

// runner is a benchmark under way.
type runner struct {
	o    Options
	r    *Report
	all  []*adapter
	name string // of what is deployed, with a number behind
	next int
}

// Run measures. When ctx ends it removes what is deployed, and returns what is complete without an error.
func Run(ctx context.Context, opt Options) (*Report, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	if opt.Progress == nil {
		opt.Progress = func(string) {}
	}
	set, err := published.Load()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	m := &runner{o: opt, name: "bench-" + strconv.FormatInt(began.Unix(), 36),
		r: &Report{Schema: Schema, Began: began.UTC(), Machine: report.MachineFacts(),
			Quick: opt.Quick, Image: opt.Image, Sizes: opt.Sizes, Rounds: opt.Rounds, Watch: opt.Watch.Seconds()}}
	for _, file := range opt.Adapters {
		path, err := filepath.Abs(file) // a bare name is a file here, not a command
		if err != nil {
			return nil, err
		}
		a := &adapter{Adapter: Adapter{Name: nameOf(file)}, file: path, timeout: opt.Timeout, cannot: map[int]string{}}
		if slices.ContainsFunc(m.all, func(b *adapter) bool { return a.Name == b.Name }) {
			return nil, skerry.Errorf(skerry.CodeInvalid, "two adapters are called %s", a.Name)
		}
		m.all = append(m.all, a)
	}
	for _, a := range m.all {
		m.meet(ctx, a)
	}
	opt.Quiet.Own(func() []int { return m.measured(ctx) })
	_ = opt.Quiet.Begin(ctx) // it fails with ctx alone
	for round := 1; round <= opt.Rounds && m.able() && ctx.Err() == nil; round++ {
		m.round(ctx, round)
		if ctx.Err() != nil {
			break
		}
		came, err := opt.Quiet.Round(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return nil, err
		}
		if came != "" {
			m.r.Disturbed = append(m.r.Disturbed, quiet.Mark{Round: round, By: came})
		}
		m.r.Done = round
		m.finish(set, began)
		if opt.Keep != nil {
			if err := opt.Keep(m.r); err != nil {
				return nil, err
			}
		}
	}
	m.finish(set, began)
	return m.r, nil
}

// finish brings the report up to date.
func (m *runner) finish(set *published.Set, began time.Time) {
	m.r.Seconds, m.r.Adapters, m.r.Quiet = time.Since(began).Seconds(), nil, m.o.Quiet.Record()
	for _, a := range m.all {
		m.r.Adapters = append(m.r.Adapters, a.Adapter)
	}
	m.r.trim()
	m.r.fold(set)
}

// measured are the processes of all adapters: their time is no other's.
func (m *runner) measured(ctx context.Context) (pids []int) {
	for _, a := range m.all {
		if a.Skip != "" || a.Unwatched != "" {
			continue
		}
		list, err := a.processes(ctx)
		if err != nil {
			continue // what they are seen to be next counts
		}
		for _, p := range list {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

func (m *runner) able() bool {
	return slices.ContainsFunc(m.all, func(a *adapter) bool { return a.Skip == "" })
}

// meet asks an adapter who it is and has it deploy once, which is not counted: images are fetched then.
func (m *runner) meet(ctx context.Context, a *adapter) {
	if ctx.Err() != nil {
		return
	}
	m.o.Progress("warm-up: " + a.Name)
	var err error
	if a.Version, err = a.version(ctx); err != nil {
		a.Skip = err.Error()
		return
	}
	if _, _, err := m.snapshot(ctx, a); err != nil {
		a.Unwatched = err.Error()
	}
	least := slices.Min(m.o.Sizes)
	if turn := m.deployment(ctx, a, 0, least, false); !turn.ok() && a.Skip == "" {
		a.Skip = "its first deployment: " + turn.Cannot + turn.Failed
	}
}

// round has each adapter rest, then deploy each size. Another begins in each round.
func (m *runner) round(ctx context.Context, round int) {
	for _, n := range append([]int{0}, m.o.Sizes...) {
		for i := range m.all {
			a := m.all[(i+round-1)%len(m.all)]
			if a.Skip != "" || a.cannot[n] != "" || n == 0 && a.Unwatched != "" || ctx.Err() != nil {
				continue
			}
			m.o.Progress(fmt.Sprintf("round %d of %d: %s, %d replicas", round, m.o.Rounds, a.Name, n))
			if n == 0 {
				if use := m.rest(ctx, a); use != nil {
					m.r.Turns = append(m.r.Turns, Turn{Adapter: a.Name, Round: round, Resting: use})
				}
				continue
			}
			m.r.Turns = append(m.r.Turns, m.deployment(ctx, a, round, n, true))
		}
	}
}

// deployment is one from deploy to delete. What failed is deleted all the same; an adapter that cannot delete is out, for what it leaves
// behind is in the way of all that comes.
func (m *runner) deployment(ctx context.Context, a *adapter, round, n int, watch bool) (turn Turn) {
	m.next++
	name := fmt.Sprintf("%s-%d", m.name, m.next)
	turn = Turn{Adapter: a.Name, Round: round, Replicas: n}
	before := m.counters(ctx, a)
	began := time.Now()
	err := a.deploy(ctx, name, m.o.Image, n)
	if err == nil {
		err = a.wait(ctx, name, n)
	}
	ready := time.Since(began)
	if err == nil {
		after := m.counters(ctx, a)
		if before != nil && after != nil {
			turn.Deploying = spent(before, after)
		}
		if watch && a.Unwatched == "" {
			turn.Resting = m.rest(ctx, a)
		}
	}
	began = time.Now()
	gone := a.remove(context.WithoutCancel(ctx), name) // Ctrl-C leaves nothing behind
	turn.Ready, turn.Gone = ready.Seconds(), time.Since(began).Seconds()
	if err == nil && gone == nil {
		return turn
	}
	turn = Turn{Adapter: a.Name, Round: round, Replicas: n}
	var cannot cannotError
	switch {
	case errors.As(err, &cannot):
		turn.Cannot, a.cannot[n] = cannot.reason, cannot.reason
	case err != nil:
		turn.Failed = err.Error()
	}
	if gone != nil {
		if turn.Cannot == "" {
			turn.Failed = errors.Join(err, gone).Error()
		}
		a.Skip = fmt.Sprintf("it could not delete %s: %v", name, gone)
	}
	return turn
}

// snapshot lists an adapter's processes with their counters.
func (m *runner) snapshot(ctx context.Context, a *adapter) ([]Process, counters, error) {
	list, err := a.processes(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(list) == 0 {
		return nil, nil, errors.New("it has none on this machine")
	}
	c, err := count(list)
	if err == nil {
		_, err = weigh(list)
	}
	return list, c, err
}

// counters are those of now; nil where they cannot be had, which the adapter is marked with.
func (m *runner) counters(ctx context.Context, a *adapter) counters {
	if a.Unwatched != "" {
		return nil
	}
	list, err := a.processes(ctx)
	var c counters
	if err == nil {
		c, err = count(list)
	}
	if err != nil && ctx.Err() == nil {
		a.Unwatched = err.Error()
	}
	return c
}

// rest watches processes while nothing is to be done. It gives nil if that cannot be had, or ctx ended.
func (m *runner) rest(ctx context.Context, a *adapter) map[Kind]Use {
	before := m.counters(ctx, a)
	began := time.Now()
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(m.o.Watch):
	}
	list, after, err := m.snapshot(ctx, a)
	took := time.Since(began).Seconds()
	var all map[Kind]Use
	if err == nil && before != nil {
		all, err = weigh(list)
	}
	if err != nil && ctx.Err() == nil {
		a.Unwatched = err.Error()
	}
	if err != nil || before == nil {
		return nil
	}
	for kind, seconds := range spent(before, after) {
		u := all[kind]
		u.CPU = seconds / took
		all[kind] = u
	}
	return all
}
