// Package root is the server of the root: goroutines, store, links and the API around root/core, which decides. Only the places that put
// roles together import it.
package root

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/root/core"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/journal"
	"skerry.dev/skerry/store/vault"
	"skerry.dev/skerry/wire"
)

// ServerOptions set up a root server. Name, Store and Link are needed.
type ServerOptions struct {
	// Options are the federation's. Each life of the core gets an incarnation, an epoch, a seed and a key of its own.
	core.Options
	Name      string // of the federation
	Version   string
	Store     store.Store
	Link      string // address to listen on for clusters, host:port
	Images    tier.Registry
	Secrets   *vault.Key // nil: it keeps no secrets, and adopts no orphans
	Journal   journal.Limits
	CertLife  time.Duration
	KeepAlive time.Duration    // of a quiet link; 0: link.DefaultKeepAlive
	Names     tier.NameOptions // answers for host names of services
	Plugins   PluginHost       // nil: none
	Log       *slog.Logger
}

// Server is the root with goroutines, store and links. It implements api.Backend.
type Server struct {
	*tier.Hub
	opt ServerOptions
	ask atomic.Pointer[chan string] // sites whose links are to be appraised, in this life
	// score takes questions to plugins, in this life
	score  atomic.Pointer[chan core.Score]
	asking asking
}

// PluginHost runs the root's scheduling plugins.
type PluginHost interface {
	// List gives the plugins that work now.
	List() []core.Plugin
	// Ask asks the plugins named, in bounded time. It gives one answer each, in that order.
	Ask(ctx context.Context, names []string, q sched.PluginQuery) []wire.PluginAnswer
	// Watch calls changed, from one goroutine, at the start and whenever List changes, until ctx ends.
	Watch(ctx context.Context, changed func())
}

// NewServer opens what the root keeps; Run starts it.
func NewServer(ctx context.Context, opt ServerOptions) (*Server, error) {
	s := &Server{opt: opt}
	hub, err := tier.NewHub(ctx, tier.HubConfig{Tier: wire.TierRoot, Name: opt.Name, Version: opt.Version, Store: opt.Store, Link: opt.Link,
		Images: opt.Images, Secrets: opt.Secrets,
		Asked:   map[string]http.Handler{tier.SecretsPath: tier.SecretHandler(opt.Secrets, s.findSecret)},
		Journal: opt.Journal, CertLife: opt.CertLife, KeepAlive: opt.KeepAlive, Log: opt.Log})
	if err != nil {
		return nil, err
	}
	s.Hub = hub
	tier.LimitPulls(opt.Images, s.pulls)
	tier.KeepImages(opt.Images, s.imageUses)
	tier.LimitPushes(opt.Images, s)
	s.Role.Load, s.Role.Host, s.Role.Serve, s.Role.ViewsFirst = s.load, (*host)(s), s.serve, true
	return s, nil
}

func (s *Server) load(ctx context.Context) (loop.Core, wire.Effects, error) {
	opt := s.opt.Options
	opt.Incarnation, opt.Epoch, opt.Seed, opt.SealKey = s.Life().Incarnation, s.Life().Epoch, tier.Seed(), s.opt.Secrets.Derive("assignments")
	c := core.New(opt)
	writes, err := s.LoadCore(ctx, core.Records(), core.Decode(c))
	if err != nil {
		return nil, wire.Effects{}, err
	}
	fx := c.Start(time.Now())
	fx.Writes = append(fx.Writes, writes...)
	return c, fx, nil
}

// serve runs the links of one life.
func (s *Server) serve(ctx context.Context, l *loop.Loop) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	named := make(chan error, 1)
	go func() {
		if s.opt.Names.Listen == "" {
			named <- nil
			return
		}
		err := s.answerNames(ctx)
		cancel()
		named <- err
	}()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	ask := make(chan string, 64) // full: it is asked again later
	s.ask.Store(&ask)
	wg.Go(func() { s.appraise(ctx, l, ask) })
	if h := s.opt.Plugins; h != nil {
		score := make(chan core.Score, questionsAtOnce) // full: the question's deadline passes
		s.score.Store(&score)
		wg.Go(func() { h.Watch(ctx, func() { l.Post(core.SetPlugins{List: h.List()}) }) })
		for range askersAtOnce {
			wg.Go(func() { consult(ctx, s.opt.Log, h, l.Post, score) })
		}
	}
	err := s.ServeChildren(ctx, l, tier.Children{
		Up:    func(hello *wire.Hello) any { return core.ChildUp{Hello: hello} },
		Frame: func(name string, m wire.Message) any { return core.ChildFrame{Name: name, Msg: m} },
		Down:  func(name string) any { return core.ChildDown{Name: name} },
	})
	cancel()
	return errors.Join(err, <-named)
}

// host carries out the core's effects.
type host Server

func (h *host) Record(now time.Time, events []wire.Event) []wire.Write {
	return h.Journal().Record(now, events)
}

func (h *host) Send(to string, m wire.Message) { h.SendChild(to, m) }

func (h *host) Announce(events []wire.Event, changed []wire.Change) {
	tier.LogEvents(h.opt.Log, events)
	h.Journal().Announce(events, changed)
}

// Act finds out what the core asks; between two lives nobody does, and the core asks again.
func (h *host) Act(action any) {
	if q, ok := action.(core.Score); ok {
		if score := h.score.Load(); score != nil {
			select {
			case *score <- q:
			default:
			}
		}
		return
	}
	a, ok := action.(core.Appraise)
	if !ok {
		panic(fmt.Sprintf("the root has no action %T", action))
	}
	if ask := h.ask.Load(); ask != nil {
		select {
		case *ask <- a.Name:
		default:
		}
	}
}

// questionsAtOnce bounds the questions to plugins that wait, and askersAtOnce those under way.
const questionsAtOnce, askersAtOnce = 256, 4

// consult puts questions to plugins, until ctx ends.
func consult(ctx context.Context, log *slog.Logger, h PluginHost, post func(msg any) bool, score <-chan core.Score) {
	answer := func(q core.Score) {
		defer panics.Catch(log, "an answer for the core") // which stays without one until the question's deadline
		ctx, cancel := context.WithTimeout(ctx, sched.PluginDeadline)
		defer cancel()
		post(core.Scored{ID: q.ID, Round: q.Round, Answers: h.Ask(ctx, q.Plugins, q.Query)})
	}
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-score:
			answer(q)
		}
	}
}

// appraiseTime bounds one measurement of a link.
const appraiseTime = 5 * time.Second

// appraise measures links, one after the other, until ctx ends.
func (s *Server) appraise(ctx context.Context, l *loop.Loop, ask <-chan string) {
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-ask:
			l.Post(core.Appraised{Name: name, RTT: s.linkRTT(ctx, name)})
		}
	}
}

func (s *Server) linkRTT(ctx context.Context, name string) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, appraiseTime)
	defer cancel()
	if down := s.Down(); down != nil {
		return down.RTT(ctx, name)
	}
	return 0
}
