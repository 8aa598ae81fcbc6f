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
	for what, ask := range map[string]func(ctx context.Context, s *Server) error{
		"import": func(ctx context.Context, s *Server) error {
			_, err := s.ImportSnapshot(ctx, volume, "acme", "", "ann", strings.NewReader("x"), -1)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			site := newFabricSite(t)
			site.join(1)
			site.do(BeginSnapshot{ID: "one", Claim: volume, Import: true, Org: "acme"})
			site.do(EndSnapshot{ID: "one", Info: &spec.Snapshot{SHA256: strings.Repeat("0", 64)}})
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
			if err := ask(asking, &Server{Hub: &tier.Hub{Role: r}}); err == nil || asking.Err() == nil {
				t.Fatalf("nobody has gone: %v", err)
			}
			if err := r.View(t.Context(), func(loop.Core) {
				if _, taking := site.c.volumes.SnapshotsOf("acme"); taking > 0 {
					t.Error("it goes on without end")
				}
			}); err != nil {
				t.Error(err)
			}
		})
	}
}
