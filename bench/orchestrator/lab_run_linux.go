package orchestrator

import (
	"cmp"
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
	"skerry.dev/skerry/bench/quiet"
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
	// Resume is a report to go on from; nil: none.
	Resume *LabReport
	// Quiet waits for a quiet machine before the first cell and after each; nil: it does not wait.
	Quiet *quiet.Watch
	// Progress is told what is being done; Keep is given the report after each cell. Both may be nil.
	Progress func(string)
	Keep     func(*LabReport) error
	Lab      lab.Options
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
	o       LabOptions
	r       *LabReport
	dir     string
	service string
	images  images
	open    map[plan]*federation
	next    int
}

// fresh gives a name that nothing had before.
func (m *labRun) fresh() string {
	m.next++
	return fmt.Sprintf("b%d", m.next)
}

// RunLab measures Skerry, with its real processes in labs on this machine. When ctx ends it takes the labs down, and
// returns what there is without an error.
func RunLab(ctx context.Context, o LabOptions) (_ *LabReport, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	set, err := published.Load()
	if err != nil {
		return nil, err
	}
	m := &labRun{o: o, open: map[plan]*federation{}, r: &LabReport{Schema: LabSchema, Began: time.Now().UTC().Truncate(time.Second),
		Machine: report.MachineFacts(), Quick: o.Quick,
		Rounds: o.Rounds, Window: o.Window.Seconds(), Timeout: o.Timeout.Seconds(), Load: o.Load.Seconds(), Expect: o.Expect}}
	if was := o.Resume; was != nil {
		if was.Window != m.r.Window || was.Timeout != m.r.Timeout || was.Quick != o.Quick || was.Load != m.r.Load || was.Expect != o.Expect {
			return nil, skerry.Errorf(skerry.CodeConflict, "the report to go on from has a window of %g s, a limit of %g s, loads of %g s, %g of what is borne expected and quick %v, and this run others", was.Window, was.Timeout, was.Load, was.Expect, was.Quick)
		}
		if len(was.Cells) > 0 {
			m.r.Began, m.r.Cells, m.r.Noise, m.r.Rate, m.r.Profiles = was.Began, slices.Clone(was.Cells), was.Noise, was.Rate,
				slices.Clone(was.Profiles)
			o.Quiet.Resume(was.Quiet)
		}
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
	steps, err := m.held(o.steps())
	if err != nil {
		return nil, err
	}
	interrupted := func() (*LabReport, error) {
		m.r.Unfinished, m.r.Quiet = true, o.Quiet.Record()
		m.r.fold(set)
		return m.r, nil
	}
	if err := o.Quiet.Begin(ctx); err != nil {
		return interrupted()
	}
	began := time.Now()
	before := 0.0
	if o.Resume != nil {
		before = o.Resume.Seconds
	}
	for round := 1; round <= o.Rounds; round++ {
		for i := range steps {
			s := steps[(i+round-1)%len(steps)] // another begins in each round
			if m.has(s, round) {
				continue
			}
			o.Progress(fmt.Sprintf("round %d of %d: %s: %s", round, o.Rounds, s.part, s.setting))
			cell := m.cell(ctx, s, round)
			if ctx.Err() != nil {
				return interrupted()
			}
			m.r.Cells, m.r.Quiet = append(m.r.Cells, cell), o.Quiet.Record()
			m.r.Seconds = before + time.Since(began).Seconds()
			m.r.fold(set)
			if o.Keep != nil {
				if err := o.Keep(m.r); err != nil {
					return nil, err
				}
			}
		}
	}
	m.r.fold(set)
	return m.r, nil
}

// held leaves out the settings that this machine cannot hold, which the report tells. Where that is all, it is an error.
func (m *labRun) held(steps []step) (out []step, first error) {
	for _, s := range steps {
		if s.holds != nil {
			if err := s.holds(); err != nil {
				if first == nil {
					first = fmt.Errorf("%s, %s: %w", s.part, s.setting, err)
				}
				e := skerry.AsError(err)
				m.r.NotRun = append(m.r.NotRun, LabNotRun{s.part, s.setting, e.Code, e.Message})
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

func (m *labRun) has(s step, round int) bool {
	return slices.ContainsFunc(m.r.Cells, func(c LabCell) bool { return c.Part == s.part && c.Setting == s.setting && c.Round == round })
}

// cell does a step once, and sees whether others came. What fails is taken down, so that the next finds nothing of it.
func (m *labRun) cell(ctx context.Context, s step, round int) LabCell {
	c := LabCell{Part: s.part, Setting: s.setting, Round: round}
	f, err := m.federation(ctx, s.plan)
	if err == nil {
		if c.Values, err = s.do(ctx, m, f); err != nil {
			c.Values = nil
			delete(m.open, s.plan)
			err = errors.Join(err, f.close())
		}
	}
	if err != nil {
		c.Failed = reason(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if ctx.Err() == nil {
		if c.Disturbed, err = m.o.Quiet.Round(ctx); err != nil {
			c.Failed = cmp.Or(c.Failed, reason(err.Error()))
		}
	}
	return c
}

// federation gives one of a plan; those of a benchmark stay until its end.
func (m *labRun) federation(ctx context.Context, p plan) (*federation, error) {
	if f := m.open[p]; f != nil {
		return f, nil
	}
	m.o.Progress(fmt.Sprintf("starting a root with %d clusters of %d workers", p.clusters, p.workers))
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
