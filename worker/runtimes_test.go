//go:build linux

package worker

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// slowTest is a driver whose self-test takes a while.
type slowTest struct {
	runtime.Driver
	name  string
	takes time.Duration
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
