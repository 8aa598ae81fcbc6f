//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// hooked is a driver with one task that runs commands and ends when it is told to.
type hooked struct {
	runtime.Driver
	takes time.Duration
	code  int
	ran   []string
	ends  chan struct{}
	gone  bool            // what ended was removed at once
	apart bool            // its output and its errors go to different writers
	asked []time.Duration // to end, within these times
}

func (h *hooked) Stop(_ context.Context, _ runtime.Handle, grace time.Duration) error {
	h.asked = append(h.asked, grace)
	return nil
}

func (h *hooked) Exec(ctx context.Context, _ runtime.Handle, e runtime.ExecSpec) (int, error) {
	h.ran = append(h.ran, e.Args...)
	h.apart = e.Stdout != e.Stderr
	select {
	case <-time.After(h.takes):
		return h.code, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (h *hooked) Wait(ctx context.Context, _ runtime.Handle) (runtime.Exit, error) {
	select {
	case <-h.ends:
		if h.gone {
			return runtime.Exit{}, fmt.Errorf("its records: %w", runtime.ErrNotFound)
		}
		return runtime.Exit{}, nil
	case <-ctx.Done():
		return runtime.Exit{}, ctx.Err()
	}
}

func (h *hooked) Name() string { return "oci" }

// A hook takes from the time that the container has to end, and never more; one that fails is told of.
func TestHooksTakeFromTheGrace(t *testing.T) {
	run := &spec.Hook{Exec: &spec.ExecProbe{Command: []string{"bye"}}}
	for name, c := range map[string]struct {
		hook       *spec.Hook
		takes, end time.Duration // end: when the container ends by itself
		code       int
		left       time.Duration
		told       string
		gone       bool
	}{
		"none":      {nil, 0, 0, 0, 10 * time.Second, "", false},
		"a command": {run, 3 * time.Second, 0, 0, 7 * time.Second, "", false},
		"a failure": {run, time.Second, 0, 7, 9*time.Second - lateEnd, "preStop: status 7: ", false},
		"too long":  {run, time.Minute, 0, 0, 0, "preStop was not done within terminationGrace, 10s", false},
		"it ends":   {run, time.Minute, 4 * time.Second, 0, 6 * time.Second, "", false},
		// With the program all processes of its namespace are killed, and only when they are gone it has ended.
		"it ends, and takes it along": {run, 4 * time.Second, 4100 * time.Millisecond, 137, 5900 * time.Millisecond, "", false},
		"a wait":                      {&spec.Hook{Sleep: spec.Duration(5 * time.Second)}, 0, 0, 0, 5 * time.Second, "", false},
		"a wait, and it is removed":   {&spec.Hook{Sleep: spec.Duration(8 * time.Second)}, 0, time.Second, 0, 9 * time.Second, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &hooked{takes: c.takes, code: c.code, ends: make(chan struct{}), gone: c.gone}
				s := serverWith(map[string]runtime.Driver{"oci": d})
				if c.end > 0 {
					time.AfterFunc(c.end, func() { close(d.ends) })
				}
				handle := encode(runtime.Handle{ID: "a.main.1", Driver: "oci"})
				stop := core.StopContainer{ID: "a", Name: "main", Handle: handle, Grace: 10 * time.Second, PreStop: c.hook}
				left, err := preStop(t.Context(), s, d, runtime.Handle{}, stop)
				if left != c.left || c.hook == run != slices.Equal(d.ran, []string{"bye"}) {
					t.Errorf("%s are left, and it ran %q", left, d.ran)
				}
				told := ""
				if err != nil {
					told = err.Error()
				}
				if told != c.told {
					t.Errorf("it tells %q, expected %q", told, c.told)
				}
			})
		})
	}
	d := &hooked{}
	stop := core.StopContainer{PreStop: run, Handle: encode(runtime.Handle{ID: "a.main.1", Driver: "oci"})}
	server := serverWith(map[string]runtime.Driver{"oci": d})
	if err := doHook(t.Context(), server, run, core.ProbeOn{Handle: stop.Handle}); err != nil || d.apart {
		// Drivers copy each from a goroutine of its own, and what a program says is kept in one buffer.
		t.Errorf("%v; two are written to at once: %v", err, d.apart)
	}
	if err := doHook(t.Context(), serverWith(nil), run, core.ProbeOn{}); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a container that cannot be found: %v", err)
	}
}

// An agent that ends in the middle of a hook, as one that is upgraded, leaves the program alone: the next life begins anew with the hook,
// and the program was not asked to end without it.
func TestHookOfAnAgentThatEnds(t *testing.T) {
	for name, cut := range map[string]bool{"it ends": true, "it stays": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &hooked{takes: 5 * time.Second, ends: make(chan struct{})}
				s := serverWith(map[string]runtime.Driver{"oci": d})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if cut {
					time.AfterFunc(2*time.Second, cancel)
				}
				handle := encode(runtime.Handle{ID: "a.main.1", Driver: "oci"})
				s.stopContainer(ctx, core.StopContainer{ID: "a", Name: "main", Handle: handle, Grace: 30 * time.Second,
					PreStop: &spec.Hook{Exec: &spec.ExecProbe{Command: []string{"bye"}}}})
				if want := map[bool][]time.Duration{false: {25 * time.Second}}[cut]; !slices.Equal(d.asked, want) {
					t.Errorf("it was asked to end within %v, want %v", d.asked, want)
				}
			})
		})
	}
}

// What is done after the start is told of, unless the container, and with it the hook, ends before.
func TestPostStart(t *testing.T) {
	run := spec.Hook{Exec: &spec.ExecProbe{Command: []string{"warm"}}}
	for name, c := range map[string]struct {
		takes, end time.Duration
		code       int
		want       string // "" for done, "-" where nothing is told
		removed    bool
	}{
		"done":         {time.Second, 0, 0, "", false},
		"failed":       {time.Second, 0, 7, "status 7", false},
		"it ends":      {time.Minute, 4 * time.Second, 0, "-", false},
		"it goes with": {4 * time.Second, 4100 * time.Millisecond, 137, "-", false},
		"is removed":   {4 * time.Second, time.Second, 137, "-", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &hooked{takes: c.takes, code: c.code, ends: make(chan struct{}), gone: c.removed}
				s := serverWith(map[string]runtime.Driver{"oci": d})
				if c.end > 0 {
					time.AfterFunc(c.end, func() { close(d.ends) })
				}
				done, told := postStart(t.Context(), s, core.RunHook{ID: "a", Name: "main", Attempt: 3, Hook: run,
					Handle: encode(runtime.Handle{ID: "a.main.1", Driver: "oci"})})
				if told == (c.want == "-") || told && (!strings.Contains(done.Err, c.want) || (done.Err == "") != (c.want == "") || done.Attempt != 3) {
					t.Errorf("told %t: %+v, expected %q", told, done, c.want)
				}
			})
		})
	}
}
