package link_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// pipes is a listener without a network, whose connections live in a bubble of simulated time.
type pipes struct {
	ch   chan net.Conn
	done chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.ch:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(context.Context, string) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case p.ch <- b:
		return a, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// TestSilenceIsNoticedInTime shows the deadlines on a simulated clock: an idle link pings and stays; a silent one ends after
// three intervals at both sides, not before.
func TestSilenceIsNoticedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, err := store.Open(t.Context(), "memory:", store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		a, err := auth.OpenAuthority(t.Context(), auth.AuthorityConfig{Site: "harbour", Tier: wire.TierCluster, Store: st})
		if err != nil {
			t.Fatal(err)
		}
		const keep = 15 * time.Second
		parent, here := newRecorder(t), newRecorder(t)
		srv, err := link.NewServer(link.ServerConfig{TLS: a.ServerTLS(), Identify: a.Identify, Admit: a.Admit, Join: a.ServeJoin,
			Handler: parent, KeepAlive: keep,
			Welcome: func(*link.Peer) (*wire.Welcome, error) { return &wire.Welcome{}, nil }})
		if err != nil {
			t.Fatal(err)
		}
		l := &pipes{ch: make(chan net.Conn), done: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		token, _, err := a.CreateToken(t.Context(), auth.TokenOptions{Tier: wire.TierWorker, Name: "w1"})
		if err != nil {
			t.Fatal(err)
		}
		m, err := auth.Enter(t.Context(), auth.Entry{Dialing: auth.Dialing{Addrs: []string{"x"}, Dial: l.dial}, Dir: filepath.Join(t.TempDir(), "w1"), Token: token})
		if err != nil {
			t.Fatal(err)
		}
		var conn *hole
		client, err := link.NewClient(link.ClientConfig{Addrs: func() []string { return []string{"x"} }, TLS: m.TLS, Identify: m.Identify,
			Handler: here, MinBackoff: time.Hour, MaxBackoff: time.Hour,
			Hello: func() *wire.Hello { return &wire.Hello{Tier: wire.TierWorker, Name: "w1", Boot: "b"} },
			Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				c, err := l.dial(ctx, addr)
				conn = newHole(c)
				return conn, err
			}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); client.Run(ctx) }()
		child := parent.next("up").peer
		here.next("up")
		time.Sleep(time.Hour)
		if len(parent.ch)+len(here.ch) != 0 || srv.Stats().FramesIn.Load() < 100 {
			t.Fatalf("an idle hour: %d frames, happenings %d and %d", srv.Stats().FramesIn.Load(), len(parent.ch), len(here.ch))
		}
		// Beats make a link patient, and when they cease it asks at once.
		asked := func(d time.Duration) int64 {
			before := srv.Stats().FramesIn.Load()
			time.Sleep(d)
			synctest.Wait()
			return srv.Stats().FramesIn.Load() - before
		}
		if got := asked(time.Hour); got < int64(time.Hour/keep)-1 || got > int64(time.Hour/keep)+1 {
			t.Errorf("an idle hour took %d signs of life", got)
		}
		client.Peer().SetBeating(true)
		child.SetBeating(true)
		if got := asked(time.Hour); got < 15 || got > 17 {
			t.Errorf("an idle hour with beats took %d signs of life", got)
		}
		asked(2 * keep)
		client.Peer().SetBeating(false)
		child.SetBeating(false)
		if got := asked(0); got != 1 {
			t.Errorf("when beats ceased it asked %d times", got)
		}
		close(conn.shut)
		since := time.Now()
		for _, r := range []*recorder{here, parent} {
			h := <-r.ch
			if took := time.Since(since); reason(h.err) != link.ReasonSilent || took < keep || took > 4*keep {
				t.Errorf("%s after %s", h, took)
			}
		}
		cancel()
		<-done
		conn.Conn.Close()
		srv.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		st.Close()
		synctest.Wait()
	})
}
