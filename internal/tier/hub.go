package tier

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/link/beat"
	"skerry.dev/skerry/link/mqtt"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/journal"
	"skerry.dev/skerry/store/vault"
	"skerry.dev/skerry/wire"
)

// settleTime bounds how long a request that was given up waits for the core.
const settleTime = 10 * time.Second

// Registry is what a server needs of the image store: digests for references, and the distribution API below /v2/.
type Registry interface {
	Resolver
	http.Handler
}

// HubConfig sets up a Hub. Tier, Name, Store and Link are needed.
type HubConfig struct {
	Tier    wire.Tier // root or cluster
	Name    string    // the federation's at the root, the cluster's at a cluster
	Version string
	Store   store.Store
	Link    string // address to listen on for children, host:port
	MQTT    string // address to listen on for children of others by MQTT, host:port; empty: there are none
	Images  Registry
	// Asked answers what children ask over streams, by how its path begins; what else they ask is for Images.
	Asked map[string]http.Handler
	// Secrets is the key for which the role's secrets are sealed; nil: it takes none.
	Secrets   *vault.Key
	Journal   journal.Limits
	CertLife  time.Duration
	KeepAlive time.Duration
	// Beat is how often children beat; one is quiet after QuietAfter without a beat. 0: they do not.
	Beat, QuietAfter time.Duration
	// Reenrol lets in children that the authority has forgotten, see auth.AuthorityConfig.
	Reenrol bool
	// Leadership decides whether this process leads; nil: it does.
	Leadership Leadership
	Log        *slog.Logger
}

// Leadership is who decides whether a process leads its site, where there may be successors.
type Leadership interface {
	// Candidate serves a connection of link.ProtoCandidate.
	Candidate(ctx context.Context, conn *tls.Conn, id wire.PeerIdentity)
	// Serves tells that children connect now, at an address, and how they are reached; Came and Promised what they do.
	Serves(a *auth.Authority, addr *net.TCPAddr, send func(name string, m wire.Message))
	Came(hello *wire.Hello)
	Left(name string)
	Promised(name string, p *wire.Promise)
	Term() uint64
	// Lost waits until the process does not lead, and says why. It gives nil when ctx ends.
	Lost(ctx context.Context) error
}

// Hub is what the servers of root and cluster have in common: the store's life, the authority, the journal and the
// links to children. It has the part of api.Backend that does not look into a core.
type Hub struct {
	*Role
	cfg       HubConfig
	authority *auth.Authority
	journal   *journal.Journal
	life      atomic.Pointer[Life]
	started   time.Time
	listen    atomic.Pointer[net.TCPAddr]
	mqtt      atomic.Pointer[net.TCPAddr]
	external  atomic.Pointer[mqtt.Listener] // of the present life, or of the last one; nil: there is none
	down      atomic.Pointer[Down]          // of the present life, or of the last one
}

// NewHub opens what a root or cluster keeps beside its core. The caller completes and runs its Role.
func NewHub(ctx context.Context, cfg HubConfig) (*Hub, error) {
	h := &Hub{Role: NewRole(), cfg: cfg, journal: journal.New(cfg.Journal), started: time.Now()}
	h.Role.Store, h.Role.Log = cfg.Store, cfg.Log
	life, err := OpenLife(ctx, cfg.Store)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Tier, err)
	}
	h.life.Store(&life)
	h.authority, err = auth.OpenAuthority(ctx, auth.AuthorityConfig{Site: cfg.Name, Tier: cfg.Tier, Store: cfg.Store, CertLife: cfg.CertLife,
		Reenrol: cfg.Reenrol, Log: cfg.Log})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Tier, err)
	}
	return h, nil
}

// leader is this life, as depots of images know it.
func (h *Hub) leader() artifact.Leader {
	life := h.Life()
	term := life.Epoch
	if h.cfg.Leadership != nil {
		term = max(term, h.cfg.Leadership.Term())
	}
	return artifact.Leader{Incarnation: string(life.Incarnation), Term: term}
}

// Tier and the methods below implement a part of api.Backend.
func (h *Hub) Tier() wire.Tier            { return h.cfg.Tier }
func (h *Hub) Name() string               { return h.cfg.Name }
func (h *Hub) Journal() *journal.Journal  { return h.journal }
func (h *Hub) Authority() *auth.Authority { return h.authority }
func (h *Hub) Registry() http.Handler     { return h.cfg.Images }
func (h *Hub) Started() time.Time         { return h.started }

// Life names the store's life.
func (h *Hub) Life() Life { return *h.life.Load() }

// LinkAddr is where children connect, or nil before the start.
func (h *Hub) LinkAddr() *net.TCPAddr { return h.listen.Load() }

// MQTTAddr is where children of others connect, or nil before the start and where there are none.
func (h *Hub) MQTTAddr() *net.TCPAddr { return h.mqtt.Load() }

// External gives the connections of external agents, or nil.
func (h *Hub) External() *mqtt.Listener { return h.external.Load() }

// Down gives the links to children, or nil before the start.
func (h *Hub) Down() *Down { return h.down.Load() }

// LoadCore hands what is stored to a new core and to the journal. It gives the writes with which the life begins.
func (h *Hub) LoadCore(ctx context.Context, records map[string]func() any, decode loop.Decode) ([]wire.Write,
	error) {
	life, err := OpenLife(ctx, h.cfg.Store)
	if err != nil {
		return nil, err
	}
	h.life.Store(&life)
	return LoadCore(ctx, h.cfg.Store, Program{Version: h.cfg.Version, Records: records}, h.journal, decode)
}

// LoadCore reads a store: events go to the journal, which takes them over when all went well, and the rest to decode. What
// belongs to the role as a whole, to the authority and to the people of the API is no core's business. A store of which this program would
// lose something is refused. It gives the writes with which the life begins.
func LoadCore(ctx context.Context, st store.Store, p Program, j *journal.Journal, decode loop.Decode) ([]wire.Write, error) {
	note, err := CheckWriter(ctx, st, p)
	if err != nil {
		return nil, err
	}
	fresh := j.Fresh()
	err = loop.Load(ctx, st, func(key string, value []byte) func() error {
		if strings.HasPrefix(key, wire.PrefixSkipped) {
			if _, _, known := KindOf(p.Records, key); !known {
				return skip
			}
			return decode(key, value)
		}
		for _, others := range []string{metaRecords, "auth/", "user/"} {
			if strings.HasPrefix(key, others) {
				return skip
			}
		}
		take := decode(key, value)
		return func() error {
			if ours, err := fresh.Load(key, value); ours {
				return err
			}
			return take()
		}
	})
	if err != nil {
		return nil, err
	}
	j.Replace(fresh)
	if note == nil {
		return nil, nil
	}
	return []wire.Write{*note}, nil
}

func skip() error { return nil }

// Children says how a core is told of its children.
type Children struct {
	Up    func(hello *wire.Hello) any // the message whose result is a *wire.Welcome
	Frame func(name string, m wire.Message) any
	Down  func(name string) any
	// Quiet tells that beats of a child no longer come, Alive that they do, or that it answered on its connection. Both are
	// needed with beats alone.
	Quiet func(name string, heard time.Time) any
	Alive func(name string) any
}

// ServeChildren runs the links to children for one life, until ctx ends. It keeps the port of the first life.
func (h *Hub) ServeChildren(ctx context.Context, l *loop.Loop, c Children) error {
	child := wire.TierWorker
	if h.cfg.Tier == wire.TierRoot {
		child = wire.TierCluster
	}
	addr := h.cfg.Link
	if a := h.listen.Load(); a != nil {
		addr = a.String()
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for %ss: %w", child, err)
	}
	h.listen.Store(ln.Addr().(*net.TCPAddr))
	var wg sync.WaitGroup
	var lost atomic.Pointer[error] // why this process does not lead any more
	ctx, cancel := context.WithCancel(ctx)
	defer wg.Wait()
	defer cancel()
	beats := h.listenForBeats(ctx, &wg, l, c)
	shares := childShares{by: map[string]*loop.Share{}}
	config := DownConfig{
		Authority: h.authority, Child: child, Version: h.cfg.Version, KeepAlive: h.cfg.KeepAlive, Beats: beats, BeatEvery: h.cfg.Beat,
		Log: h.cfg.Log, HTTP: h.forChildren(),
		Up: func(ctx context.Context, hello *wire.Hello) (*wire.Welcome, error) {
			res, err := l.Do(ctx, c.Up(hello))
			if err != nil {
				return nil, err
			}
			return res.(*wire.Welcome), nil
		},
		Frame: func(name string, m wire.Message) { l.PostShare(shares.of(name), c.Frame(name, m)) },
		Down:  func(name string) { l.Post(c.Down(name)) },
	}
	if h.cfg.Leadership != nil {
		config.inLeadership(h.cfg.Leadership)
		config.Term = func() uint64 { return max(h.Life().Epoch, h.cfg.Leadership.Term()) }
	}
	images, _ := h.cfg.Images.(*Images)
	if images != nil && images.Standbys != nil {
		config.Images = h.standby
	}
	down, err := NewDown(config)
	if err != nil {
		ln.Close()
		return err
	}
	h.down.Store(down)
	if h.cfg.Leadership != nil {
		h.cfg.Leadership.Serves(h.authority, h.listen.Load(), down.Send)
		wg.Go(func() {
			if err := h.cfg.Leadership.Lost(ctx); err != nil {
				lost.Store(&err)
				cancel()
			}
		})
	}
	if images != nil {
		wg.Go(func() { images.tend(ctx, h.cfg.Log, h.leader()) })
	}
	if config.Images != nil {
		wg.Go(func() { h.tendStandbys(ctx, images.Standbys) })
	}
	done := make(chan error, 2)
	closers := []func() error{down.Close}
	if h.cfg.MQTT != "" {
		external, mln, err := h.listenMQTT(down)
		if err != nil {
			return errors.Join(err, ln.Close(), down.Close())
		}
		closers = []func() error{external.Close, down.Close}
		go func() { done <- external.Serve(mln) }()
	}
	go func() { done <- down.Serve(ln) }()
	running := len(closers)
	select {
	case <-ctx.Done():
	case err = <-done:
		running--
	}
	for _, end := range closers {
		err = errors.Join(err, end())
	}
	for range running {
		err = errors.Join(err, <-done)
	}
	if why := lost.Load(); why != nil {
		err = errors.Join(err, Refused(*why))
	}
	return err
}

// childShares are the shares of children, by name: one that connects again has the share that it had.
type childShares struct {
	mu sync.Mutex
	by map[string]*loop.Share
}

func (s *childShares) of(name string) *loop.Share {
	s.mu.Lock()
	defer s.mu.Unlock()
	share := s.by[name]
	if share == nil {
		share = loop.NewShare()
		s.by[name] = share
	}
	return share
}

// listenMQTT makes the listener for children of others. It keeps the port of the first life, too.
func (h *Hub) listenMQTT(down *Down) (*mqtt.Listener, net.Listener, error) {
	addr := h.cfg.MQTT
	if a := h.mqtt.Load(); a != nil {
		addr = a.String()
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("listen for MQTT: %w", err)
	}
	external, err := mqtt.New(mqtt.Config{TLS: h.authority.ExternalTLS(), Identify: h.authority.Identify, Answer: h.authority.Answer,
		Carry: down.Carry, KeepAlive: max(mqtt.DefaultKeepAlive, h.cfg.KeepAlive), Log: h.cfg.Log})
	if err != nil {
		return nil, nil, errors.Join(err, ln.Close())
	}
	h.mqtt.Store(ln.Addr().(*net.TCPAddr))
	h.external.Store(external)
	return external, ln, nil
}

// listenForBeats has children beat at the port of the link, or gives nil where they do not.
func (h *Hub) listenForBeats(ctx context.Context, wg *sync.WaitGroup, l *loop.Loop, c Children) *beat.Listener {
	if h.cfg.Beat == 0 {
		return nil
	}
	beats, err := beat.Listen(h.listen.Load().String(), h.cfg.QuietAfter, h.cfg.Log, func(name string, heard time.Time, alive bool) {
		h.beat(ctx, wg, l, c, name, heard, alive)
	})
	if err != nil { // such as a port that is taken: connections alone then show who lives
		h.cfg.Log.Warn("children do not beat", "err", err, "hint", "free that UDP port to notice lost ones sooner")
		return nil
	}
	wg.Go(func() {
		if err := beats.Run(ctx); err != nil {
			h.cfg.Log.Error("beats", "err", err)
		}
	})
	return beats
}

// beat takes that a child became quiet, or is heard again. One whose beats do not come may still answer on its connection: a
// firewall may have changed its mind.
func (h *Hub) beat(ctx context.Context, wg *sync.WaitGroup, l *loop.Loop, c Children, name string, heard time.Time, alive bool) {
	var p *link.Peer
	if down := h.down.Load(); down != nil {
		p = down.Peer(name)
	}
	if p != nil {
		p.SetBeating(alive)
	}
	if alive {
		l.Post(c.Alive(name))
		return
	}
	l.Post(c.Quiet(name, heard))
	if p != nil {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, h.cfg.QuietAfter)
			defer cancel()
			if _, err := p.Ping(ctx); err == nil {
				l.Post(c.Alive(name))
			}
		})
	}
}

// SendChild puts a message in line for a child.
func (h *Hub) SendChild(name string, m wire.Message) {
	if d := h.down.Load(); d != nil {
		d.Send(name, m)
	}
}

// forChildren serves what children ask over streams: images, and what the role has besides.
func (h *Hub) forChildren() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for path, asked := range h.cfg.Asked {
			if strings.HasPrefix(r.URL.Path, path) {
				asked.ServeHTTP(w, r)
				return
			}
		}
		h.cfg.Images.ServeHTTP(w, r)
	})
}

// Disconnect ends a child's connection; one that is still enrolled may come back.
func (h *Hub) Disconnect(name string) {
	if d := h.down.Load(); d != nil {
		d.Disconnect(name)
	}
}

// Proxy passes a request on to a child under another path, or answers with err if that is not nil.
func (h *Hub) Proxy(w http.ResponseWriter, r *http.Request, child, path string, err error) {
	down := h.down.Load()
	if err == nil && down == nil {
		err = skerry.Errorf(skerry.CodeUnavailable, "the role is starting").WithHint("try again in a moment")
	}
	if err != nil {
		WriteProblem(w, skerry.AsError(err))
		return
	}
	down.Proxy(w, r, child, path)
}

// ResolveImages resolves the images of an application by the tier's registry.
func (h *Hub) ResolveImages(ctx context.Context, app *spec.Application) (map[string]string, error) {
	return ResolveImages(ctx, h.cfg.Images, app)
}

// Do carries out a user's message. Images of an application are resolved first, and nobody deletes them meanwhile.
func (h *Hub) Do(ctx context.Context, msg any) (any, error) {
	if m, ok := h.cfg.Images.(*Images); ok {
		var release func()
		ctx, release = m.Hold(ctx)
		defer func() {
			// A request that is given up may have handed its message over. The core takes them in turn: what is asked next sees it.
			if ctx.Err() != nil && h.settled() != nil {
				return // held until the role restarts
			}
			release()
		}()
	}
	if a, ok := msg.(apps.Apply); ok {
		if l := h.Role.cur.Load(); l != nil && l.err != nil {
			return nil, l.err // before the registries are asked in vain
		}
		var err error
		if a.Digests, err = h.ResolveImages(ctx, &a.App); err != nil {
			return nil, err
		}
		msg = a
	}
	if m, ok := msg.(apps.Restart); ok && m.Pull != nil && h.cfg.Images != nil {
		app := *m.Pull
		app.Spec.Services = slices.DeleteFunc(slices.Clone(app.Spec.Services),
			func(s spec.ServiceSpec) bool { return m.Service.Service != "" && m.Service.Service != s.Name })
		for i := range app.Spec.Services {
			app.Spec.Services[i].Platforms = nil
		}
		var err error
		if m.Digests, err = lookUp(ctx, h.cfg.Images, &app); err != nil {
			return nil, err
		}
		msg = m
	}
	if m, ok := msg.(apps.PutSecret); ok {
		if err := h.seal(&m); err != nil {
			return nil, err
		}
		msg = m
	}
	return h.Role.Do(ctx, msg)
}

// settled returns once the core has taken what it was given before.
func (h *Hub) settled() error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	return h.Role.Turn(ctx)
}

// View runs fn with a role's core and returns what it gives.
func View[C loop.Core, T any](ctx context.Context, r *Role, fn func(c C) (T, error)) (T, error) {
	return ViewAbout(ctx, r, nil, fn)
}

// ViewPage is View for a part of a list; it also returns whether there is more after it.
func ViewPage[C loop.Core, T any](ctx context.Context, r *Role, fn func(c C) ([]T, bool)) ([]T, bool, error) {
	type page struct {
		list []T
		more bool
	}
	got, err := View(ctx, r, func(c C) (out page, err error) {
		out.list, out.more = fn(c)
		return out, nil
	})
	return got.list, got.more, err
}

// ViewAbout is View for what a user sent: what made fn panic once is refused from then on.
func ViewAbout[C loop.Core, T any](ctx context.Context, r *Role, about any, fn func(c C) (T, error)) (T, error) {
	// Not the results themselves: when ctx ends, fn may still run after this has returned.
	var got struct {
		out T
		err error
	}
	if err := r.viewAbout(ctx, about, func(c loop.Core) { got.out, got.err = fn(c.(C)) }); err != nil {
		var none T
		return none, err
	}
	return got.out, got.err
}

// Copied gives the values behind pointers, for what leaves a View.
func Copied[T any](list []*T) []T {
	out := make([]T, 0, len(list))
	for _, x := range list {
		out = append(out, *x)
	}
	return out
}
