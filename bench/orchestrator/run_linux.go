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
	report.Measuring
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
	r    *report.Report
	set  *published.Set
	all  []*adapter
	name string // of what is deployed, with a number behind
	next int
}

// Run measures. When ctx ends it removes what is deployed, and returns what is complete without an error.
func Run(ctx context.Context, opt Options) (*report.Report, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	set, err := published.Load()
	if err != nil {
		return nil, err
	}
	m := &runner{o: opt, set: set, name: "bench-" + strconv.FormatInt(time.Now().Unix(), 36),
		r: report.New("orchestrator", "Orchestrators side by side", opt.words())}
	m.r.Note("What is published comes from figures and prose of document 002, and from its machines; it was not measured here.")
	for _, file := range opt.Adapters {
		path, err := filepath.Abs(file) // a bare name is a file here, not a command
		if err != nil {
			return nil, err
		}
		a := &adapter{Place: report.Place{Name: nameOf(file)}, file: path, timeout: opt.Timeout, cannot: map[int]string{}}
		if slices.ContainsFunc(m.all, func(b *adapter) bool { return a.Name == b.Name }) {
			return nil, skerry.Errorf(skerry.CodeInvalid, "two adapters are called %s", a.Name)
		}
		m.all = append(m.all, a)
	}
	for _, a := range m.all {
		m.meet(ctx, a)
	}
	m.r.Baseline = m.all[0].Name
	opt.Quiet.Own(func() []int { return m.measured(ctx) })
	err = opt.Quiet.Begin(ctx)
	for err == nil && m.r.Rounds < opt.Rounds && m.able() {
		err = m.r.Round(ctx, opt.Measuring, func() error { m.round(ctx); return ctx.Err() })
	}
	if ctx.Err() != nil {
		err = nil // what is complete is told
	}
	m.places()
	m.r.Finish(ctx, opt.Measuring)
	return m.r, err
}

// words are the options that change what figures mean.
func (o *Options) words() string {
	text := fmt.Sprintf("--image %s --rest %v", o.Image, o.Watch)
	if o.Quick {
		text = "--quick " + text
	}
	return text
}

// places brings what the report says of the adapters up to date.
func (m *runner) places() {
	m.r.Places = nil
	for _, a := range m.all {
		m.r.Places = append(m.r.Places, a.Place)
		if a.unwatched != "" {
			m.r.Note("Not measured: processes of %s: %s", a.Name, a.unwatched)
		}
	}
}

// measured are the processes of all adapters: their time is no other's.
func (m *runner) measured(ctx context.Context) (pids []int) {
	for _, a := range m.all {
		if a.Skip != "" || a.unwatched != "" {
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
	m.o.Say("warm-up: %s", a.Name)
	var err error
	if a.Text, err = a.version(ctx); err != nil {
		a.Skip = err.Error()
		return
	}
	if _, _, err := m.snapshot(ctx, a); err != nil {
		a.unwatched = err.Error()
	}
	least := slices.Min(m.o.Sizes)
	if turn := m.deployment(ctx, a, least, false); !turn.ok() && a.Skip == "" {
		a.Skip = "its first deployment: " + turn.Cannot + turn.Failed
	}
}

// round has each adapter rest, then deploy each size. Another begins in each round.
func (m *runner) round(ctx context.Context) {
	rests := map[string]*Turn{}
	for _, n := range append([]int{0}, m.o.Sizes...) {
		for i := range m.all {
			a := m.all[(i+m.r.Rounds)%len(m.all)]
			if a.Skip != "" || a.cannot[n] != "" || n == 0 && a.unwatched != "" || ctx.Err() != nil {
				continue
			}
			m.o.Say("round %d of %d: %s, %d replicas", m.r.Rounds+1, m.o.Rounds, a.Name, n)
			var turn Turn
			if n > 0 {
				turn = m.deployment(ctx, a, n, true)
			} else if turn = (Turn{Adapter: a.Name, Resting: m.rest(ctx, a)}); turn.Resting != nil {
				rests[a.Name] = &turn
			}
			turn.add(m.r, rests[a.Name], m.set)
		}
	}
	m.places()
}

// deployment is one from deploy to delete. What failed is deleted all the same; an adapter that cannot delete is out, for what it leaves
// behind is in the way of all that comes.
func (m *runner) deployment(ctx context.Context, a *adapter, n int, watch bool) (turn Turn) {
	m.next++
	name := fmt.Sprintf("%s-%d", m.name, m.next)
	turn = Turn{Adapter: a.Name, Replicas: n}
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
		if watch && a.unwatched == "" {
			turn.Resting = m.rest(ctx, a)
		}
	}
	began = time.Now()
	gone := a.remove(context.WithoutCancel(ctx), name) // Ctrl-C leaves nothing behind
	turn.Ready, turn.Gone = ready.Seconds(), time.Since(began).Seconds()
	if err == nil && gone == nil {
		return turn
	}
	turn = Turn{Adapter: a.Name, Replicas: n}
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
	if a.unwatched != "" {
		return nil
	}
	list, err := a.processes(ctx)
	var c counters
	if err == nil {
		c, err = count(list)
	}
	if err != nil && ctx.Err() == nil {
		a.unwatched = err.Error()
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
		a.unwatched = err.Error()
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
