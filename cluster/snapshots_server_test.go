package cluster

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// commits calls a function before each commit.
type commits struct {
	store.Store
	each func()
}

func (c *commits) Commit(ctx context.Context, ops []store.Op) (int64, error) {
	c.each()
	return c.Store.Commit(ctx, ops)
}

type noHost struct{}

func (noHost) Record(time.Time, []wire.Event) []wire.Write { return nil }
func (noHost) Send(string, wire.Message)                   {}
func (noHost) Announce([]wire.Event, []wire.Change)        {}
func (noHost) Act(any)                                     {}

// TestAskerGoes: who asks for a snapshot goes while its beginning is written down. It ends all the same: else it would keep its room until the
// next start.
func TestAskerGoes(t *testing.T) {
	volume := spec.VolumeClaim{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: "web"}}
	site, now := core.New(core.Options{Name: "harbour", Incarnation: "a", Admission: core.Admission{Trusted: []string{"acme"}}}), time.Now()
	site.Start(now)
	facts := &wire.WorkerFacts{Arch: "amd64", Capacity: spec.Resources{CPU: 4000, Memory: 4 * skerry.GiB}}
	report := &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&wire.WorkerReport{Facts: facts})}
	for _, m := range []any{apps.PutOrg{Org: apps.Org{Name: "acme"}}, apps.PutNamespace{Namespace: apps.Namespace{Name: "acme", Org: "acme"}},
		core.ChildUp{Hello: &wire.Hello{Name: "w1"}}, core.ChildFrame{Name: "w1", Msg: report}} {
		if fx := site.Step(now, m); fx.Err != nil {
			t.Fatal(fx.Err)
		}
	}
	taking := func() bool {
		return slices.ContainsFunc(site.Snapshots(), func(s spec.Snapshot) bool { return s.State == spec.SnapshotTaking })
	}
	memory, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	asking, leave := context.WithCancel(t.Context())
	r := tier.NewRole()
	r.Store, r.Log, r.Host = &commits{memory, func() {
		if taking() {
			leave()
		}
	}}, slog.New(slog.DiscardHandler), noHost{}
	r.Load = func(context.Context) (loop.Core, wire.Effects, error) { return site, wire.Effects{}, nil }
	r.Serve = func(ctx context.Context, _ *loop.Loop) error { <-ctx.Done(); return nil }
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() { end(); <-done }()
	<-r.Up()
	server := &Server{Hub: &tier.Hub{Role: r}}
	if _, err := server.ImportSnapshot(asking, volume, "acme", "", "ann", strings.NewReader("x"), -1); err == nil || asking.Err() == nil {
		t.Fatalf("nobody has gone: %v", err)
	}
	if err := r.View(t.Context(), func(loop.Core) {
		if taking() {
			t.Error("it goes on without end")
		}
	}); err != nil {
		t.Error(err)
	}
}
