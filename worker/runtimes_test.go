//go:build linux

package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// slowTest is a driver whose self-test takes a while.
type slowTest struct {
	runtime.Driver
	name  string
	takes time.Duration
	runs  bool // a machine, since before
}

func (d slowTest) List(context.Context) (out []runtime.Handle, err error) {
	if d.runs {
		out = append(out, runtime.Handle{ID: "web.main.1", Driver: d.name})
	}
	return out, nil
}

func (d slowTest) Status(context.Context, runtime.Handle) (runtime.Status, error) {
	return runtime.Status{State: runtime.StateRunning}, nil
}

func (d slowTest) Name() string { return d.name }

func (d slowTest) Check(ctx context.Context) runtime.Report {
	select {
	case <-time.After(d.takes):
		return runtime.Report{Passed: true}
	case <-ctx.Done():
		return runtime.Report{Cause: ctx.Err().Error()}
	}
}

// A machine that boots for minutes holds up nothing but itself. Containers are waited for: whose users they get depends on their verdict.
func TestSlowSelfTestOfMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		rt := newRuntimes([]runtime.Driver{slowTest{name: spec.RuntimeMicroVM, takes: 5 * time.Minute},
			slowTest{name: spec.RuntimeOCI, takes: 20 * time.Second}, slowTest{name: spec.RuntimeVM, takes: 6 * time.Minute}}, "", false, slog.New(slog.DiscardHandler))
		patience, stop := context.WithTimeout(t.Context(), machineWait)
		defer stop()
		told := make(chan time.Duration, 3)
		passed := func(list []wire.RuntimeReport) (out [3]bool) {
			for n, r := range list {
				if out[n] = r.Passed; !r.Passed && (r.Cause == "" || r.Cure == "") {
					t.Errorf("%s has not passed, and says neither why nor what to do: %+v", r.Name, r)
				}
			}
			return out
		}
		first := rt.check(t.Context(), patience, func() { told <- time.Since(begin) })
		if took := time.Since(begin); took != 20*time.Second || passed(first) != [3]bool{false, true, false} {
			t.Errorf("it took %s, and %v passed", took, passed(first))
		}
		rt.pending.Wait()
		if got := passed(rt.last()); got != [3]bool{true, true, true} || len(told) != 2 {
			t.Errorf("in the end %v passed, and it was told %d times; want all, and 2", got, len(told))
		}
		if one, two := <-told, <-told; one != 5*time.Minute || two != 6*time.Minute {
			t.Errorf("it was told after %s and %s, want 5 and 6 minutes", one, two)
		}
		if passed(first) != [3]bool{false, true, false} {
			t.Error("the list that was given changed")
		}
	})
}

// An agent that starts again beside machines that run says nothing before it knows what their runtime can do: its cluster would take the
// worker for one without it, and an update of a service with a copy on each worker would end those there.
func TestSlowSelfTestOfMachinesThatRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newRuntimes([]runtime.Driver{slowTest{name: spec.RuntimeMicroVM, takes: time.Minute, runs: true},
			slowTest{name: spec.RuntimeVM, takes: 2 * time.Minute}}, "", false, slog.New(slog.DiscardHandler))
		patience, stop := context.WithTimeout(t.Context(), machineWait)
		defer stop()
		got := rt.check(t.Context(), patience, func() {})
		if !got[0].Passed || got[1].Passed {
			t.Errorf("it begins with %+v, want the verdict on what runs and no other", got)
		}
		rt.pending.Wait()
	})
}

// A check that is given up, as by whoever asked for it, takes nothing away from what is known.
func TestCheckThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newRuntimes([]runtime.Driver{slowTest{name: spec.RuntimeOCI, takes: time.Second}}, "", false, slog.New(slog.DiscardHandler))
		rt.check(t.Context(), t.Context(), nil)
		ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		if got := rt.check(ctx, t.Context(), nil); got[0].Passed {
			t.Errorf("the check that was given up says %+v", got[0])
		}
		if got := rt.last(); !got[0].Passed {
			t.Errorf("what is known is %+v now", got[0])
		}
	})
}

// A verdict that comes late does not replace that of a check that was begun, and ended, meanwhile.
func TestLateVerdictIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &changing{slowTest: slowTest{name: spec.RuntimeVM, takes: time.Minute}}
		rt := newRuntimes([]runtime.Driver{d}, "", false, slog.New(slog.DiscardHandler))
		patience, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		late := 0
		rt.check(t.Context(), patience, func() { late++ })
		d.works.Store(true)
		rt.check(t.Context(), context.Background(), nil)
		rt.pending.Wait()
		if got := rt.last(); !got[0].Passed || late != 0 {
			t.Errorf("what is known is %+v, told late %d times", got[0], late)
		}
	})
}

// changing is a driver that does not work, in the end, until somebody has put it right.
type changing struct {
	slowTest
	works atomic.Bool
}

func (d *changing) Check(context.Context) runtime.Report {
	if d.works.Load() {
		return runtime.Report{Passed: true}
	}
	time.Sleep(d.takes)
	return runtime.Report{Cause: "nobody has put it right"}
}

// Facts that were looked up before a verdict came, and are told after it, are told again.
func TestVerdictIsNotLost(t *testing.T) {
	rt := newRuntimes([]runtime.Driver{slowTest{name: spec.RuntimeVM}}, "", false, slog.New(slog.DiscardHandler))
	look := func() core.Facts { return core.Facts{Facts: wire.WorkerFacts{Runtimes: rt.last()}} }
	var told wire.WorkerFacts
	keep := func(m any) { told = m.(core.Facts).Facts }
	first := true
	rt.tell(look, func(m any) {
		if first { // the verdict comes between the look and its message
			first = false
			rt.check(t.Context(), t.Context(), nil)
			rt.tell(look, keep)
		}
		keep(m)
	})
	if len(told.Runtimes) != 1 || !told.Runtimes[0].Passed {
		t.Errorf("what was told last is %+v", told.Runtimes)
	}
}

// A worker that cannot live ends at once, whatever its self-tests still do.
func TestRunDoesNotWaitForMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewServer(ServerOptions{Name: "w", Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
			Drivers: []runtime.Driver{slowTest{name: spec.RuntimeVM, takes: time.Hour}}})
		if err != nil {
			t.Fatal(err)
		}
		s.Role.Load = func(context.Context) (loop.Core, wire.Effects, error) {
			return nil, wire.Effects{}, errors.New("no store")
		}
		begin := time.Now()
		if err := s.Run(t.Context()); err == nil || time.Since(begin) > 2*machineWait {
			t.Errorf("it ended after %s: %v", time.Since(begin), err)
		}
	})
}
