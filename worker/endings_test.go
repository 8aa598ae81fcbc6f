//go:build linux

package worker

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// slowStop is a driver whose tasks take their time to end.
type slowStop struct {
	runtime.Driver
	takes time.Duration
	ended time.Time
}

func (d *slowStop) Name() string { return "oci" }

func (d *slowStop) Stop(context.Context, runtime.Handle, time.Duration) error {
	time.Sleep(d.takes)
	d.ended = time.Now()
	return nil
}

func (d *slowStop) Remove(context.Context, runtime.Handle) error {
	time.Sleep(d.takes)
	d.ended = time.Now()
	return nil
}

// An instance that comes back under a new token has a task of the same name as before: what was ordered to end the old one is over
// before the new one starts, and what was ordered for others is not waited for.
func TestStartWaitsForTheEndOfItsName(t *testing.T) {
	old, other := encode(runtime.Handle{ID: "web-r1.main.1", Driver: "oci"}), encode(runtime.Handle{ID: "web-r1.main.2", Driver: "oci"})
	for name, c := range map[string]struct {
		order any
		waits time.Duration
	}{
		"a stop":                {core.StopContainer{ID: "web-r1", Name: spec.MainContainer, Attempt: 1, Handle: old}, 5 * time.Second},
		"a removal":             {core.Discard{Handle: old}, 5 * time.Second},
		"the stop of another":   {core.StopContainer{ID: "web-r1", Name: spec.MainContainer, Attempt: 2, Handle: other}, 0},
		"the end of what is no": {core.Discard{Handle: []byte("{")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				driver := &slowStop{takes: 5 * time.Second}
				server := serverWith(map[string]runtime.Driver{"oci": driver})
				server.Role = tier.NewRole()
				server.opt.Log = slog.New(slog.DiscardHandler)
				server.leases = &leases{}
				server.work.Store(tier.NewWork(t.Context()))
				begin := time.Now()
				server.act(c.order)
				server.startContainer(t.Context(), core.StartContainer{A: spec.Assignment{ID: "web-r1", Runtime: "none"},
					Name: spec.MainContainer, Attempt: 1}) // is refused, in its turn
				if took := time.Since(begin); took != c.waits {
					t.Errorf("the start waited for %s, want %s", took, c.waits)
				}
				time.Sleep(10 * time.Second)
			})
		})
	}
}
