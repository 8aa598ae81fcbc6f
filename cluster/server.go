// Package cluster is the server of a cluster: goroutines, store, links and the API around cluster/core, which decides. Only the places that
// put roles together import it.
package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/cluster/history"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/roundtrip"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/overlay/relay"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/journal"
	"skerry.dev/skerry/store/vault"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// ServerOptions set up a cluster server. Name, Store and Link are needed.
type ServerOptions struct {
	// Options are the site's. Each life of the core gets an incarnation, a term, a seed, secrets, a pace and name servers of its own.
	core.Options
	Version  string
	Store    store.Store
	Link     string                 // address to listen on for workers, host:port
	MQTT     string                 // address to listen on for agents of others, host:port; empty: none are taken
	Images   tier.Registry          // on a miss it asks the root, then the registry named
	Secrets  *vault.Key             // nil: the site has no secrets
	Places   func() (Places, error) // where snapshots of schedules may go; nil: nowhere
	Plugins  PluginHost             // nil: none
	Journal  journal.Limits
	Profile  core.Profile // the zero value: Fast
	CertLife time.Duration
	// Relay is where the site's relay listens, by UDP and by TLS over TCP, host:port; empty: the site has none. RelayPublic is
	// where the relays of other sites reach it; empty: found out.
	Relay, RelayPublic string
	Names              tier.NameOptions // answers for host names of services
	ACME               ACMEOptions      // of what orders certificates of a public authority
	KeepAlive          time.Duration    // 0: the profile's
	// Leadership decides whether this process leads the site; nil: it does.
	Leadership tier.Leadership
	// Root tells how to reach the root; nil for a site of its own.
	Root *RootLink
	// History is the file of the site's history; empty: it is in memory alone.
	History string
	Log     *slog.Logger
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
	*tier.Hub
	notRoot
	orderAudit
	siteHistory
	opt     ServerOptions
	up      atomic.Pointer[tier.Up]
	answers atomic.Pointer[answerer] // of this life
	relay   atomic.Pointer[relay.Server]
	meter   atomic.Pointer[roundtrip.Meter]
	// rootUsers answers users of the root; nil: the site has no API
	rootUsers atomic.Pointer[http.Handler]
}

// NewServer opens what the cluster keeps; Run starts it.
func NewServer(ctx context.Context, opt ServerOptions) (*Server, error) {
	if opt.Profile == (core.Profile{}) {
		opt.Profile = core.Fast
	}
	if opt.KeepAlive == 0 {
		opt.KeepAlive = opt.Profile.KeepAlive
	}
	if opt.LostAfter == 0 {
		opt.LostAfter = opt.Profile.LostAfter
	}
	s := &Server{opt: opt}
	hub, err := tier.NewHub(ctx, tier.HubConfig{Tier: wire.TierCluster, Name: opt.Name, Version: opt.Version, Store: opt.Store,
		Link: opt.Link, MQTT: opt.MQTT, Images: opt.Images, Secrets: opt.Secrets,
		Asked: map[string]http.Handler{checkpointPath: http.HandlerFunc(s.serveCheckpoint),
			tier.SecretsPath: tier.SecretHandler(opt.Secrets, s.findSecret)},
		Journal: opt.Journal, Leadership: opt.Leadership, Reenrol: opt.Rebuild, CertLife: opt.CertLife, KeepAlive: opt.KeepAlive,
		Beat: opt.Profile.Beat, QuietAfter: max(opt.LostAfter*11/20, opt.Profile.Beat*3/2), Log: opt.Log})
	if err != nil {
		return nil, err
	}
	s.Hub, s.siteHistory = hub, siteHistory{history.New(opt.History, opt.Log), hub, s.up.Load}
	tier.LimitPulls(opt.Images, s.pulls)
	tier.KeepImages(opt.Images, s.imageUses)
	tier.LimitPushes(opt.Images, s)
	s.Role.Load, s.Role.Host, s.Role.Serve = s.load, (*host)(s), s.serve
	return s, nil
}

func (s *Server) load(ctx context.Context) (loop.Core, wire.Effects, error) {
	var secret [32]byte
	rand.Read(secret[:])
	authority, err := newIngressAuthority(s.opt.Name, time.Now())
	if err != nil {
		return nil, wire.Effects{}, err
	}
	account, err := newAccountKey()
	if err != nil {
		return nil, wire.Effects{}, err
	}
	opt := s.opt.Options
	opt.AccountKey = account
	opt.Incarnation, opt.Term, opt.Seed, opt.Secret, opt.Pace = s.Life().Incarnation, s.Life().Epoch, tier.Seed(), secret, s.opt.Profile.Pace()
	opt.IngressAuthority, opt.Zone, opt.NameServers, opt.Standalone = authority, s.opt.Names.Zone(), s.opt.Names.Addrs, s.opt.Root == nil
	c := core.New(opt)
	writes, err := s.LoadCore(ctx, Records(), loop.InTurn(c.Load))
	if err != nil {
		return nil, wire.Effects{}, err
	}
	fx := c.Start(time.Now())
	fx.Writes = append(fx.Writes, writes...)
	return c, fx, nil
}

// serve runs the links of one life. When one of them ends, so does the other.
func (s *Server) serve(ctx context.Context, life *loop.Loop) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts := []func() error{func() error {
		return s.ServeChildren(ctx, life, tier.Children{
			Up:    func(hello *wire.Hello) any { return core.ChildUp{Hello: hello} },
			Frame: func(name string, m wire.Message) any { return core.ChildFrame{Name: name, Msg: m} },
			Down:  func(name string) any { return core.ChildDown{Name: name} },
			Quiet: func(name string, heard time.Time) any { return core.Quiet{Name: name, Heard: heard} },
			Alive: func(name string) any { return core.Alive{Name: name} },
		})
	}}
	if s.opt.Root != nil {
		up, err := s.connect(ctx, life)
		if err != nil {
			return err
		}
		parts = append(parts, func() error { return up.Run(ctx) })
	}
	if run := s.startRelay(ctx, life); run != nil {
		parts = append(parts, run)
	}
	if s.opt.Names.Listen != "" {
		parts = append(parts, func() error { return newNameServer(s).run(ctx) })
	}
	answers := newAnswerer(ctx, s, life)
	s.answers.Store(answers)
	defer answers.certs.close()
	defer answers.work.End()
	done := make(chan error, len(parts))
	for _, run := range parts {
		go func() { done <- run() }()
	}
	var err error
	for range parts {
		err = errors.Join(err, <-done)
		cancel()
	}
	return err
}

// connect makes the link to the root.
func (s *Server) connect(ctx context.Context, life *loop.Loop) (*tier.Up, error) {
	root := s.opt.Root
	up, err := tier.NewUp(tier.UpConfig{
		Member: root.Member, Addrs: root.Addrs, Boot: root.Boot, Machine: root.Machine, Version: s.opt.Version, Site: s.Authority(),
		Log: s.opt.Log,
		Sets: func() []wire.SetAck {
			// With the life's own context: between two lives there is nobody to answer.
			sets, _ := tier.View(ctx, s.Role, func(c *core.Core) ([]wire.SetAck, error) { return c.Up.Hello(), nil })
			return sets
		},
		Up:    func(w *wire.Welcome) { life.Post(core.ParentUp{Welcome: w}) },
		Frame: func(m wire.Message) { life.Post(core.ParentFrame{Msg: m}) },
		Down:  func(ago time.Duration) { life.Post(core.ParentDown{Heard: time.Now().Add(-ago)}) },
		HTTP:  http.HandlerFunc(s.fromParent),
		Term:  func() uint64 { return termOf(s) },
		Held:  func() time.Duration { return s.Held("") },
	})
	if err != nil {
		return nil, err
	}
	s.up.Store(up)
	if root.OnUp != nil {
		root.OnUp(up)
	}
	return up, nil
}

// termOf is what the root fences by: that of its lease, 0 for a site without successors.
func termOf(s *Server) uint64 {
	if s.opt.Leadership == nil {
		return 0
	}
	return s.opt.Leadership.Term()
}

// ServeRootUsers has requests of the root's users answered by a handler, which decides what they may. Their paths begin with
// wire.RootUsersPath.
func (s *Server) ServeRootUsers(h http.Handler) { s.rootUsers.Store(&h) }

// fromParent serves what the root asks: requests for an instance, which go on to its worker, and those of users.
func (s *Server) fromParent(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, wire.RootUsersPath+"/") {
		h := s.rootUsers.Load()
		if h == nil {
			tier.WriteProblem(w, skerry.Errorf(skerry.CodeUnsupported, "cluster %s has no API, and answers no users", s.opt.Name).
				WithHint("its operator starts it with --api"))
			return
		}
		(*h).ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/plan" && r.Method == http.MethodPost {
		s.servePlan(w, r)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/instances/")
	id, path, _ := strings.Cut(rest, "/")
	if !ok || id == "" {
		tier.WriteProblem(w, skerry.Errorf(skerry.CodeNotFound, "a cluster does not answer %s to the root", r.URL.Path))
		return
	}
	if path == "migrate" {
		s.serveMigrate(w, r, skerry.InstanceID(id))
		return
	}
	s.ServeInstance(w, r, skerry.InstanceID(id), "/"+path)
}

// Rebuilt tells what a rebuild has come to, or nil.
func (s *Server) Rebuilt(ctx context.Context) (*view.Rebuilt, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (*view.Rebuilt, error) { return c.Rebuilt(), nil })
}

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

func (h *host) Record(now time.Time, events []wire.Event) []wire.Write {
	return h.Journal().Record(now, events)
}

func (h *host) Send(to string, m wire.Message) {
	if to == "" {
		if u := h.up.Load(); u != nil {
			u.Send(m)
		}
		return
	}
	h.SendChild(to, m)
}

func (h *host) Announce(events []wire.Event, changed []wire.Change) {
	tier.LogEvents(h.opt.Log, events)
	h.Journal().Announce(events, changed)
}

// Act finds out what the core asks; between two lives nobody does, and the question's deadline passes.
func (h *host) Act(action any) {
	if a, ok := action.(core.ServeRelay); ok {
		if r := h.relay.Load(); r != nil {
			if err := r.Set(a.Config); err != nil {
				h.opt.Log.Error("tell the relay whom it serves", "err", err)
			}
		}
		return
	}
	if a, ok := action.(core.MeasureSites); ok {
		if m := h.meter.Load(); m != nil {
			m.SetPeers(a.Peers)
		}
		return
	}
	if a := h.answers.Load(); a != nil {
		a.act(action)
	}
}
