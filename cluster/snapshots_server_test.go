package cluster

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

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
	volume := spec.VolumeClaim{Service: key("acme", "shop")}
	site := newFabricSite(t)
	site.join(1)
	memory, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	asking, leave := context.WithCancel(t.Context())
	r := tier.NewRole()
	r.Store, r.Log, r.Host = &commits{memory, func() {
		if _, taking := site.c.volumes.SnapshotsOf("acme"); taking > 0 {
			leave()
		}
	}}, slog.New(slog.DiscardHandler), noHost{}
	r.Load = func(context.Context) (loop.Core, wire.Effects, error) { return site.c, wire.Effects{}, nil }
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
		if _, taking := site.c.volumes.SnapshotsOf("acme"); taking > 0 {
			t.Error("it goes on without end")
		}
	}); err != nil {
		t.Error(err)
	}
}
