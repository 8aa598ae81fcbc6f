package api_test

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/internal/tier"
	rootcore "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/wire"
)

// odd is a message that no core knows, on which it panics. Nothing outside can send it.
type odd struct{ N int }

// A message that makes the root panic ends neither the process nor a session: it is refused, again without being tried, and the next
// request finds what was acknowledged.
func TestPanicEndsNothing(t *testing.T) {
	s := newRoot(t)
	c := s.admin()
	ctx := t.Context()
	res, err := c.Apply(ctx, []byte(shop), api.ApplyOptions{Register: true})
	if err != nil {
		t.Fatal(err)
	}
	internal := func(err error) {
		t.Helper()
		if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeInternal || e.Hint == "" {
			t.Errorf("the answer is %v", err)
		}
	}
	there := func() {
		t.Helper()
		list, err := c.Apps(ctx, "")
		if err != nil || len(list) != 1 || list[0].Gen != res.Gen {
			t.Fatalf("%+v %v", list, err)
		}
	}
	core := func() *rootcore.Core {
		t.Helper()
		now, err := tier.View(ctx, s.Root.Role, func(c *rootcore.Core) (*rootcore.Core, error) { return c, nil })
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	first := core()
	_, err = s.Root.Do(ctx, odd{1})
	internal(err)
	there()
	second := core()
	if second == first {
		t.Error("a core that panicked goes on")
	}
	for range 3 {
		_, err = s.Root.Do(ctx, odd{1})
		internal(err)
	}
	if core() != second {
		t.Error("the same message was tried again")
	}
	_, err = tier.View(ctx, s.Root.Role, func(c *rootcore.Core) (int, error) { panic("planted") })
	internal(err)
	there()
	if core() == second {
		t.Error("a core that panicked while it was looked at goes on")
	}
	if _, err := c.Apply(ctx, []byte(shop), api.ApplyOptions{}); err != nil {
		t.Error(err)
	}
	events, err := c.Events(ctx, api.EventFilter{})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, e := range events {
		if e.Reason == "MessageRefused" && e.Type == wire.EventWarning && time.Since(e.At) < time.Hour {
			told++
		}
	}
	if told != 2 {
		t.Errorf("%d events tell of two panics", told)
	}
}

// The schedule that ended the root: it is refused by name, as a manifest and as a plan.
func TestScheduleThatPanicked(t *testing.T) {
	s := newRoot(t)
	c := s.admin()
	manifest := []byte(`
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - {name: web, runtime: native, command: [/bin/true], mode: cron, cron: {schedule: "TZ=0"}}
`)
	_, applied := c.Apply(t.Context(), manifest, api.ApplyOptions{})
	_, planned := c.Plan(t.Context(), manifest)
	for _, err := range []error{applied, planned} {
		e := skerry.AsError(err)
		if e == nil || e.Code != skerry.CodeInvalid || len(e.Problems) != 1 || e.Problems[0].Path != "spec.services[0].cron.schedule" {
			t.Errorf("%v", err)
		}
	}
	if _, err := c.Whoami(t.Context()); err != nil {
		t.Error(err)
	}
}
