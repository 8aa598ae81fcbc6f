package root

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/apps"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/journal"
	"skerry.dev/skerry/store"
)

// Images is what the server needs of the image store.
type Images interface {
	// Resolve gives the digest of an image reference. Known is false when no registry that knows it could be reached.
	Resolve(ctx context.Context, ref string) (digest string, known bool, err error)
	http.Handler // the distribution API, below /v2/
}

// ServerOptions set up a root server. Name, Store and Link are needed.
type ServerOptions struct {
	Name    string // of the federation
	Version string
	Store   store.Store
	Link    string // address to listen on for clusters, host:port
	Images  Images
	Journal journal.Limits
	// LostAfter is Options.LostAfter.
	LostAfter time.Duration
	CertLife  time.Duration
	KeepAlive time.Duration
	Log       *slog.Logger
}

// Server is the root with goroutines, store and links. It implements api.Backend.
type Server struct {
	*tier.Role
	opt       ServerOptions
	authority *auth.Authority
	journal   *journal.Journal
	life      tier.Life
	down      atomic.Pointer[tier.Down]
	listen    atomic.Pointer[net.TCPAddr]
	started   time.Time
}

// NewServer opens what the root keeps; Run starts it.
func NewServer(ctx context.Context, opt ServerOptions) (*Server, error) {
	s := &Server{Role: tier.NewRole(), opt: opt, started: time.Now()}
	var err error
	if s.life, err = tier.OpenLife(ctx, opt.Store); err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	if s.authority, err = auth.OpenAuthority(ctx, auth.AuthorityConfig{Site: opt.Name, Tier: skerry.TierRoot, Store: opt.Store, CertLife: opt.CertLife, Log: opt.Log}); err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	s.journal = journal.New(opt.Journal)
	s.Role.Store, s.Role.Log, s.Role.Load, s.Role.Host, s.Role.Serve = opt.Store, opt.Log, s.load, (*host)(s), s.serve
	return s, nil
}

func (s *Server) load(ctx context.Context) (loop.Core, skerry.Effects, error) {
	c := New(Options{Incarnation: s.life.Incarnation, Epoch: s.life.Epoch, Seed: tier.Seed(), LostAfter: s.opt.LostAfter})
	j := journal.New(s.opt.Journal)
	err := loop.Load(ctx, s.opt.Store, func(key string, value []byte) error {
		if strings.HasPrefix(key, "meta/") || strings.HasPrefix(key, "auth/") || strings.HasPrefix(key, "user/") {
			return nil
		}
		if ours, err := j.Load(key, value); ours {
			return err
		}
		return c.Load(key, value)
	})
	if err != nil {
		return nil, skerry.Effects{}, err
	}
	s.journal.Replace(j)
	return c, c.Start(time.Now()), nil
}

// serve runs the links of one life.
func (s *Server) serve(ctx context.Context, l *loop.Loop) error {
	addr := s.opt.Link
	if a := s.listen.Load(); a != nil {
		addr = a.String() // keep the port that was given in the first life
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for clusters: %w", err)
	}
	s.listen.Store(ln.Addr().(*net.TCPAddr))
	down, err := tier.NewDown(tier.DownConfig{
		Authority: s.authority, Child: skerry.TierCluster, Version: s.opt.Version, KeepAlive: s.opt.KeepAlive, Log: s.opt.Log,
		Up: func(ctx context.Context, hello *skerry.Hello) (*skerry.Welcome, error) {
			res, err := l.Do(ctx, ChildUp{Hello: hello})
			if err != nil {
				return nil, err
			}
			return res.(*skerry.Welcome), nil
		},
		Frame: func(name string, m skerry.Message) { l.Post(ChildFrame{Name: name, Msg: m}) },
		Down:  func(name string) { l.Post(ChildDown{Name: name}) },
		HTTP:  s.opt.Images,
	})
	if err != nil {
		ln.Close()
		return err
	}
	s.down.Store(down)
	done := make(chan error, 1)
	go func() { done <- down.Serve(ln) }()
	select {
	case <-ctx.Done():
	case err = <-done:
	}
	down.Close()
	return err
}

// LinkAddr is where clusters connect, or nil before the start.
func (s *Server) LinkAddr() *net.TCPAddr { return s.listen.Load() }

// host carries out the core's effects.
type host Server

func (h *host) Record(now time.Time, events []skerry.Event) []skerry.Write {
	return h.journal.Record(now, events)
}

func (h *host) Send(to string, m skerry.Message) {
	if d := h.down.Load(); d != nil {
		d.Send(to, m)
	}
}

func (h *host) Announce(events []skerry.Event, changed []skerry.Change) {
	for _, e := range events {
		h.opt.Log.Info(e.Reason, "app", e.App.String(), "service", e.Service, "instance", string(e.Instance), "cluster", string(e.Cluster), "text", e.Text)
	}
	h.journal.Announce(events, changed)
}

func (h *host) Act(action any) { panic(fmt.Sprintf("the root has no action %T", action)) }

// Do carries out a user's message. Images of an application are resolved first.
func (s *Server) Do(ctx context.Context, msg any) (any, error) {
	if a, ok := msg.(apps.Apply); ok {
		digests, err := tier.ResolveImages(ctx, s.opt.Images, &a.App)
		if err != nil {
			return nil, err
		}
		a.Digests = digests
		msg = a
	}
	return s.Role.Do(ctx, msg)
}
