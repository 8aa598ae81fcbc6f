package cluster

import (
	"context"
	"errors"
	"maps"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/core"
)

// TestRestartsAreOfTheirMinute: a worker that comes into touch, at first or again, brings all restarts that its instances ever had. They
// are not of that minute.
func TestRestartsAreOfTheirMinute(t *testing.T) {
	use := func(name string, restarts map[skerry.InstanceID]int) core.WorkerUse {
		return core.WorkerUse{Name: name, Restarts: restarts}
	}
	var r restartCount
	for _, step := range []struct {
		what string
		list []core.WorkerUse
		want map[string]int
	}{
		{"first reading", []core.WorkerUse{use("a", map[skerry.InstanceID]int{"x": 40})}, nil},
		{"late worker", []core.WorkerUse{use("a", map[skerry.InstanceID]int{"x": 41}), use("b", map[skerry.InstanceID]int{"y": 700})},
			map[string]int{"a": 1}},
		{"a is away", []core.WorkerUse{use("b", map[skerry.InstanceID]int{"y": 702, "new": 3})}, map[string]int{"b": 5}},
		{"a is back", []core.WorkerUse{use("a", map[skerry.InstanceID]int{"x": 43}), use("b", map[skerry.InstanceID]int{"y": 702})}, nil},
		{"a lies",
			[]core.WorkerUse{use("a", map[skerry.InstanceID]int{"x": math.MinInt, "y": math.MaxInt})}, map[string]int{"a": mostRestarts}},
		{"a lies on", []core.WorkerUse{use("a", map[skerry.InstanceID]int{"x": math.MaxInt, "y": 0})}, map[string]int{"a": mostRestarts}},
		{"a tells the truth", []core.WorkerUse{use("a", map[skerry.InstanceID]int{"x": 43})}, nil},
		{"a goes on", []core.WorkerUse{use("a", map[skerry.InstanceID]int{"x": 44})}, map[string]int{"a": 1}},
	} {
		got := r.since(step.list)
		maps.DeleteFunc(got, func(_ string, n int) bool { return n == 0 })
		if !maps.Equal(got, step.want) {
			t.Errorf("%s: got restarts %v, want %v", step.what, got, step.want)
		}
	}
}

// TestTheHistoryHoldsNoRole: a role that ends does not wait for a disk that hangs, but for one that is slow.
func TestTheHistoryHoldsNoRole(t *testing.T) {
	ends := errors.New("another machine leads")
	for _, c := range []struct {
		takes, want time.Duration
	}{{time.Second, time.Second}, {time.Hour, lastWrite}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := beside(t.Context(), func(context.Context) error { return ends }, func(context.Context) { time.Sleep(c.takes) })
			if got := time.Since(began); err != ends || got != c.want {
				t.Errorf("a write of %v: got %v after %v, want %v after %v", c.takes, err, got, ends, c.want)
			}
			time.Sleep(c.takes) // until nothing is left
		})
	}
}
