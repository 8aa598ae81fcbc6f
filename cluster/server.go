package cluster

import (
	"context"
	"errors"
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
	"skerry.dev/skerry/sched"
	"skerry.dev/skerry/store"
)

// Images is what the server needs of the image store.
type Images interface {
	// Resolve gives the digest of an image reference. Known is false when no registry that knows it could be reached.
	Resolve(ctx context.Context, ref string) (digest string, known bool, err error)
	http.Handler // the distribution API, below /v2/; on a miss it asks the root, then the registry named
}

// ServerOptions set up a cluster server. Name, Store and Link are needed.
type ServerOptions struct {
	Name      string
	Version   string
	Store     store.Store
	Link      string // address to listen on for workers, host:port
	Images    Images
	Admission Admission
	Policies  map[string]sched.Policy
	Journal   journal.Limits
	LostAfter time.Duration
	CertLife  time.Duration
	KeepAlive time.Duration // default 2 s, so that a silent worker is noticed within 6 s

	// Root tells how to reach the root; nil for a site of its own.
	Root *RootLink
	Log  *slog.Logger
}

// RootLink is the way to the root.
type RootLink struct {
	Member  *auth.Member
	Addrs   func() []string
	Boot    string
	Machine string
	// OnUp is given the link once it exists, so that images can be fetched over it.
	OnUp func(*tier.Up)
}

// Server is a cluster orchestrator with goroutines, store and links. It implements api.Backend.
type Server struct {
	*tier.Role
	opt       ServerOptions
	authority *auth.Authority
	journal   *journal.Journal
	life      tier.Life
	down      atomic.Pointer[tier.Down]
	up        atomic.Pointer[tier.Up]
	listen    atomic.Pointer[net.TCPAddr]
	started   time.Time
}

// NewServer opens what the cluster keeps; Run starts it.
func NewServer(ctx context.Context, opt ServerOptions) (*Server, error) {
	if opt.KeepAlive == 0 {
		opt.KeepAlive = 2 * time.Second
	}
	s := &Server{Role: tier.NewRole(), opt: opt, started: time.Now()}
	var err error
	if s.life, err = tier.OpenLife(ctx, opt.Store); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	if s.authority, err = auth.OpenAuthority(ctx, auth.AuthorityConfig{Site: opt.Name, Tier: skerry.TierCluster, Store: opt.Store, CertLife: opt.CertLife, Log: opt.Log}); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	s.journal = journal.New(opt.Journal)
	s.Role.Store, s.Role.Log, s.Role.Load, s.Role.Host, s.Role.Serve = opt.Store, opt.Log, s.load, (*host)(s), s.serve
	return s, nil
}

func (s *Server) load(ctx context.Context) (loop.Core, skerry.Effects, error) {
	c := New(Options{Name: s.opt.Name, Incarnation: s.life.Incarnation, Term: s.life.Epoch, Seed: tier.Seed(), LostAfter: s.opt.LostAfter,
		Admission: s.opt.Admission, Policies: s.opt.Policies})
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
		return fmt.Errorf("listen for workers: %w", err)
	}
	s.listen.Store(ln.Addr().(*net.TCPAddr))
	down, err := tier.NewDown(tier.DownConfig{
		Authority: s.authority, Child: skerry.TierWorker, Version: s.opt.Version, KeepAlive: s.opt.KeepAlive, Log: s.opt.Log,
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 2)
	go func() { done <- down.Serve(ln) }()
	parts := 1
	if s.opt.Root != nil {
		up, err := s.connect(l)
		if err != nil {
			down.Close()
			return err
		}
		parts++
		go func() { done <- up.Run(ctx) }()
	}
	var first error
	stopped := 0
	select {
	case <-ctx.Done():
	case first = <-done:
		stopped++
	}
	cancel()
	down.Close()
	for ; stopped < parts; stopped++ {
		first = errors.Join(first, <-done)
	}
	return first
}

// connect makes the link to the root.
func (s *Server) connect(l *loop.Loop) (*tier.Up, error) {
	r := s.opt.Root
	up, err := tier.NewUp(tier.UpConfig{
		Member: r.Member, Addrs: r.Addrs, Boot: r.Boot, Machine: r.Machine, Version: s.opt.Version, SiteCA: s.authority.CA(), Log: s.opt.Log,
		Sets: func() (sets []skerry.SetAck) {
			s.Role.View(context.Background(), func(c loop.Core) { sets = c.(*Core).Up.Hello() })
			return sets
		},
		Up:    func(w *skerry.Welcome) { l.Post(ParentUp{Welcome: w}) },
		Frame: func(m skerry.Message) { l.Post(ParentFrame{Msg: m}) },
		Down:  func() { l.Post(ParentDown{}) },
		HTTP:  http.HandlerFunc(s.fromParent),
	})
	if err != nil {
		return nil, err
	}
	s.up.Store(up)
	if r.OnUp != nil {
		r.OnUp(up)
	}
	return up, nil
}

// fromParent serves what the root asks: requests for an instance, which go on to its worker.
func (s *Server) fromParent(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/instances/")
	id, path, _ := strings.Cut(rest, "/")
	if !ok || id == "" {
		tier.WriteProblem(w, skerry.Errorf(skerry.CodeNotFound, "a cluster does not answer %s to the root", r.URL.Path))
		return
	}
	s.ServeInstance(w, r, skerry.InstanceID(id), "/"+path)
}

// LinkAddr is where workers connect, or nil before the start.
func (s *Server) LinkAddr() *net.TCPAddr { return s.listen.Load() }

// Parent tells whether the root is connected, and if not, why; ok is false for a site of its own.
func (s *Server) Parent() (connected bool, why string, ok bool) {
	up := s.up.Load()
	if up == nil {
		return false, "", false
	}
	connected, why = up.Connected()
	return connected, why, true
}

// host carries out the core's effects.
type host Server

func (h *host) Record(now time.Time, events []skerry.Event) []skerry.Write {
	return h.journal.Record(now, events)
}

func (h *host) Send(to string, m skerry.Message) {
	if to == "" {
		if u := h.up.Load(); u != nil {
			u.Send(m)
		}
	} else if d := h.down.Load(); d != nil {
		d.Send(to, m)
	}
}

func (h *host) Announce(events []skerry.Event, changed []skerry.Change) {
	for _, e := range events {
		h.opt.Log.Info(e.Reason, "app", e.App.String(), "service", e.Service, "instance", string(e.Instance), "worker", string(e.Worker), "text", e.Text)
	}
	h.journal.Announce(events, changed)
}

func (h *host) Act(action any) { panic(fmt.Sprintf("a cluster has no action %T", action)) }

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
