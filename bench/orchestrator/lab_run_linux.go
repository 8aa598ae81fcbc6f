package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/lab"
	"skerry.dev/skerry/spec"
)

// LabOptions say what to measure of Skerry in labs.
type LabOptions struct {
	Rounds        int
	Quick         bool     // fewer settings, shorter windows, unless given
	Only          []string // of LabParts; empty: all
	Workers       []int    // numbers of workers, each at least 1
	Delays        []time.Duration
	Losses        []float64 // in %
	Stress        []int     // instances on each of StressWorkers workers
	Clusters      []int
	Sizes         []string // of hosts: S, M, L, XL
	Sized         int      // instances in a federation whose hosts have a size
	StressWorkers int
	Window        time.Duration // in which messages and processor time are counted
	Timeout       time.Duration // of a deployment
	Settle        time.Duration // for how long a federation is left alone before it counts as idle; 0: 75 s, or 10 s with Quick
	Program       string        // skerry
	Service       string        // static program that serves; empty: bench/answer, compiled
	// Load is for how long requests are sent in the parts crowded and uncrowded, after a fifth of that which is not
	// counted, and ProfileRounds how often their profiles do the work.
	Load          time.Duration
	ProfileRounds int
	// Expect is the share of what an instance bears on the worker without neighbours, by that one's profile, that is expected of it, and sent.
	Expect float64
	Lab    lab.Options
	report.Measuring
}

func (o *LabOptions) wants(part string) bool {
	return len(o.Only) == 0 || slices.Contains(o.Only, part)
}

func (o *LabOptions) check() error {
	for _, p := range o.Only {
		if !slices.Contains(LabParts(), p) {
			return skerry.Errorf(skerry.CodeInvalid, "--only: there is no part %q", p).WithHint("%s", spec.Suggest(p, LabParts()))
		}
	}
	if o.Rounds < 1 || o.Rounds > 1000 {
		return skerry.Errorf(skerry.CodeInvalid, "%d rounds are not 1 to 1000", o.Rounds)
	}
	if len(o.Workers) == 0 || o.Window < time.Second || o.Timeout < time.Second {
		return skerry.Errorf(skerry.CodeInvalid, "numbers of workers are needed, and a window and a limit of at least 1s")
	}
	if o.Load < time.Second || o.Load > time.Hour || o.ProfileRounds < 1 || o.ProfileRounds > 100 {
		return skerry.Errorf(skerry.CodeInvalid, "a load of %v and %d rounds of a profile are not 1s to 1h and 1 to 100", o.Load, o.ProfileRounds)
	}
	if !(o.Expect >= 0.01 && o.Expect <= 10) {
		return skerry.Errorf(skerry.CodeInvalid, "a share of %g of what an instance bears is not 0.01 to 10", o.Expect)
	}
	for _, list := range [][]int{o.Workers, o.Clusters, o.Stress, {o.StressWorkers, max(1, o.Sized)}} {
		for _, n := range list {
			if n < 1 || n > 100 {
				return skerry.Errorf(skerry.CodeInvalid, "%d is not 1 to 100", n)
			}
		}
	}
	for _, s := range o.Sizes {
		if _, ok := labSizes()[s]; !ok {
			return skerry.Errorf(skerry.CodeInvalid, "there is no size %q of hosts", s).WithHint("use S, M, L or XL")
		}
	}
	if len(o.Sizes) > 0 && o.Sized < 1 {
		return skerry.Errorf(skerry.CodeInvalid, "sizes are measured with at least one instance")
	}
	for _, d := range o.Delays {
		if d < 0 || d > time.Minute {
			return skerry.Errorf(skerry.CodeInvalid, "a delay of %v is not 0 to 1m", d)
		}
	}
	for _, l := range o.Losses {
		if !(l >= 0 && l < 100) {
			return skerry.Errorf(skerry.CodeInvalid, "a loss of %g %% is not 0 to 99", l)
		}
	}
	return nil
}

// labRun is a benchmark under way.
type labRun struct {
	o         LabOptions
	r         *report.Report
	published *published.Set
	rate      float64 // what is expected of each instance in crowded and uncrowded, and sent, in requests per second; 0: not yet known
	dir       string
	service   string
	images    images
	open      map[plan]*federation
	next      int
}

// fresh gives a name that nothing had before.
func (m *labRun) fresh() string {
	m.next++
	return fmt.Sprintf("b%d", m.next)
}

// RunLab measures Skerry, with its real processes in labs on this machine. When ctx ends it takes the labs down, and
// returns what there is without an error.
func RunLab(ctx context.Context, o LabOptions) (_ *report.Report, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	m := &labRun{o: o, open: map[plan]*federation{}, r: report.New("orchestrator lab", "What orchestration costs", o.words())}
	m.r.Baseline = report.FirstPlace
	if m.published, err = published.Load(); err != nil {
		return nil, err
	}
	m.r.Note("All hosts share this machine, so what processors limit is slower here than on as many machines.")
	m.r.Note("What is published is of other systems on other machines, by comparisons alone: document 002 prints no absolute times.")
	if o.Quick {
		m.r.Note("Quick: fewer settings and shorter windows than a report to be quoted has.")
	}
	if m.dir, err = os.MkdirTemp("", "skerry-bench-lab-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(m.dir)) }()
	if m.service, err = m.compile(ctx); err != nil {
		return nil, err
	}
	defer func() {
		for _, f := range m.open {
			err = errors.Join(err, f.close())
		}
	}()
	for _, s := range o.steps() {
		if !slices.ContainsFunc(m.r.Places, func(p report.Place) bool { return p.Name == s.setting }) {
			m.r.Places = append(m.r.Places, report.Place{Name: s.setting}) // rounds begin elsewhere; this is the order of the plan
		}
	}
	if err := m.r.Continue(o.Measuring); err != nil {
		return nil, err
	}
	if f := m.r.Find(sentGroup, sentName, ""); f != nil && len(f.Samples) > 0 {
		m.rate = f.Samples[0]
	}
	steps, err := m.held(o.steps())
	if err != nil {
		return nil, err
	}
	if err = o.Quiet.Begin(ctx); err == nil {
		err = m.rounds(ctx, steps)
	}
	if ctx.Err() != nil {
		err = nil // what is complete is told
	}
	m.r.Finish(ctx, o.Measuring)
	return m.r, err
}

// words are the options that change what figures mean.
func (o *LabOptions) words() string {
	text := fmt.Sprintf("--window %v --timeout %v --load %v --expect %g", o.Window, o.Timeout, o.Load, o.Expect)
	if o.Quick {
		text = "--quick " + text
	}
	return text
}

func (m *labRun) rounds(ctx context.Context, steps []step) error {
	last := m.r.Rounds
	for round := range m.o.Rounds {
		m.r.Rounds = round
		for i := range steps {
			s := steps[(i+round)%len(steps)] // another begins in each round
			if m.has(s) {
				continue
			}
			m.o.Say("round %d of %d: %s: %s", round+1, m.o.Rounds, s.part, s.setting)
			err := m.r.Part(ctx, m.o.Measuring, s.part, s.setting, func() (string, error) { m.cell(ctx, s); return "", ctx.Err() })
			if err != nil {
				return err
			}
		}
	}
	m.r.Rounds = max(last, m.o.Rounds)
	return nil
}

// held leaves out the settings that this machine cannot hold, which the report tells. Where that is all, it is an error.
func (m *labRun) held(steps []step) (out []step, first error) {
	for _, s := range steps {
		if s.holds != nil {
			if err := s.holds(); err != nil {
				if first == nil {
					first = fmt.Errorf("%s, %s: %w", s.part, s.setting, err)
				}
				m.r.Figure(s.part, "ready", s.setting).Skip = skerry.AsError(err).Message
				continue
			}
		}
		out = append(out, s)
	}
	if len(out) > 0 {
		first = nil
	}
	return out, first
}

// has reports whether the present round has a step already, measured or failed.
func (m *labRun) has(s step) bool {
	round := m.r.Rounds + 1
	return slices.ContainsFunc(m.r.Figures, func(f *report.Figure) bool {
		return f.Group == s.part && f.Place == s.setting && slices.Contains(f.Rounds, round)
	}) || slices.ContainsFunc(m.r.Failed, func(f report.Mark) bool { return f.Round == round && f.Group == s.part && f.Place == s.setting })
}

// cell does a step once. What fails is taken down, so that the next finds nothing of it.
func (m *labRun) cell(ctx context.Context, s step) {
	var values map[string]float64
	f, err := m.federation(ctx, s.plan)
	if err == nil {
		if values, err = s.do(ctx, m, f); err != nil {
			delete(m.open, s.plan)
			err = errors.Join(err, f.close())
		}
	}
	if err != nil {
		m.r.Fail(s.part, s.setting, reason(strings.ReplaceAll(err.Error(), "\n", "; ")))
		return
	}
	cellFigures(m.r, m.published, s.part, s.setting, values)
}

// federation gives one of a plan; those of a benchmark stay until its end.
func (m *labRun) federation(ctx context.Context, p plan) (*federation, error) {
	if f := m.open[p]; f != nil {
		return f, nil
	}
	m.o.Say("starting a root with %d clusters of %d workers", p.clusters, p.workers)
	m.next++
	o := m.o.Lab
	o.Binary = m.o.Program
	f, err := open(ctx, p, o, fmt.Sprintf("bench-%d-%d", os.Getpid(), m.next), m.service, m.dir)
	if err == nil {
		m.open[p] = f
	}
	return f, err
}

// compile makes the program of the instances, unless it is given.
func (m *labRun) compile(ctx context.Context) (string, error) {
	if m.o.Service != "" {
		return m.o.Service, nil
	}
	return m.build(ctx, "bench/answer", "or give a static program by --service that serves HTTP at the address that is its argument")
}

// build makes a program of this source tree.
func (m *labRun) build(ctx context.Context, source, otherwise string) (string, error) {
	to := filepath.Join(m.dir, filepath.Base(source))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", to, "skerry.dev/skerry/"+source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", skerry.Errorf(skerry.CodeUnavailable, "compile %s: %v: %s", source, err, strings.TrimSpace(string(out))).
			WithHint("run it in a checkout with Go installed, %s", otherwise)
	}
	return to, nil
}
