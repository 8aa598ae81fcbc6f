package link_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/wire"
)

// TestExpiredRenewsAndReturns follows a device that comes back after a long time: refused with a word, renewed, let in.
func TestExpiredRenewsAndReturns(t *testing.T) {
	var later atomic.Int64
	s := newSite(t, "harbour", wire.TierCluster, func(_ *link.ServerConfig, a *auth.AuthorityConfig) {
		a.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	m := s.join(wire.TierWorker, "w1")
	later.Store(int64(1000 * time.Hour))
	c := s.child(m, func(cfg *link.ClientConfig, _ *wire.Hello) {
		told := cfg.Refused
		cfg.Refused = func(ctx context.Context, r *wire.Refuse) {
			told(ctx, r)
			if r.Code == wire.RefuseExpired {
				if err := m.Renew(ctx, s.dialing("m-w1")); err != nil {
					t.Error(err)
				}
			}
		}
	})
	wantRefuse(t, c.rec.next("refused").err, wire.RefuseExpired)
	c.rec.next("up")
	if p := s.rec.next("up").peer; p.Identity().Counter != 2 {
		t.Errorf("counter %d", p.Identity().Counter)
	}
}

// TestCloneIsQuarantined joins link and authority as a role server does: the copy stays out, also when the first is away.
func TestCloneIsQuarantined(t *testing.T) {
	var s *site
	s = newSite(t, "harbour", wire.TierCluster, func(c *link.ServerConfig, _ *auth.AuthorityConfig) {
		c.Clone = func(first *link.Peer, later *wire.Hello, addr net.Addr) {
			id := first.Identity()
			if err := s.auth.Quarantine(context.Background(), id.Tier, id.Name, first.Hello().Machine, later.Machine, addr.String(), "both were connected"); err != nil {
				t.Error(err)
			}
		}
	})
	m := s.join(wire.TierWorker, "w1")
	s.child(m, nil).rec.next("up")
	p := s.rec.next("up").peer
	c := s.child(m, func(cfg *link.ClientConfig, h *wire.Hello) { h.Boot, h.Machine = "other", "copy" })
	for range 3 {
		wantRefuse(t, c.rec.next("refused").err, wire.RefuseClone, `"m-w1"`, `"copy"`)
	}
	p.Close()
	s.rec.next("down")
	if h := s.rec.next("up"); h.peer.Hello().Machine != "m-w1" {
		t.Errorf("%q took the place", h.peer.Hello().Machine)
	}
}
