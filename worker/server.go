//go:build linux

// Package worker is the server of a worker: it carries out what worker/core decides, with drivers, images, volumes and network, and reports
// back. Only the places that put roles together import it.
package worker

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"filippo.io/age"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/roundtrip"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/overlay/hostnet"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/journal"
	"skerry.dev/skerry/store/vault"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// Network joins instances to the host's network. *hostnet.Network is one; nil means that instances get none.
type Network interface {
	Set(ctx context.Context, c hostnet.Config) (map[string]wire.Attachment, error)
	Stats() (map[string]hostnet.Stats, error)
	Refused() ([]string, error) // attachments of which connections were refused lately, as they have as many as they may
	Gateway() netip.Addr        // at which instances reach this host; there after the first Set
	Networks() []netip.Prefix   // of the host itself
}

// Voter is the worker's vote in who leads its site. *succession.Voter is one.
type Voter interface {
	// Term is the highest one that the worker has promised itself for.
	Term() uint64
	// Lease answers a lease of the cluster, which is at an address.
	Lease(l *wire.Lease, from string) *wire.Promise
	// Run offers the vote while the cluster is out of touch, until ctx ends. It looks whether that is so when it begins and after each
	// signal of lost. chosen is called when some candidate leads.
	Run(ctx context.Context, connected func() bool, lost <-chan struct{}, chosen func())
}

// ServerOptions set up a worker server.
type ServerOptions struct {
	Name    string
	Version string
	Store   store.Store
	// Repaired says what the store had lost when it was opened; empty: nothing.
	Repaired string
	Dir      string // where volumes and files of instances are kept
	RunDir   string // in memory, for what ends with the machine's uptime; empty: nothing of that kind is kept
	// Guard is the command that runs lease.Main, over the tasks below CgroupParent; empty: what must not run for long without
	// the cluster is ended by the agent alone.
	Guard        []string
	CgroupParent string
	Member       *auth.Member
	Addrs        func() []string // of the cluster
	Boot         string
	Machine      string
	Drivers      []runtime.Driver
	Users        UserPool // of user namespaces
	// UserRegistry is a directory in memory where the workers of a machine see each other's users; empty: they do not.
	UserRegistry string
	Network      Network
	Voter        Voter    // nil: the worker has no vote in who leads its site
	Overlay      *Overlay // nil: instances reach others by ports of their hosts
	NoOverlay    string   // why it is nil
	NFS          NFSOptions
	Images       *artifact.Store
	Secrets      *vault.Key    // for which secrets are sealed here; nil: it takes none
	PullLimit    *rate.Limiter // bytes per second of pulls; nil means no limit
	Facts        FactOptions
	Attach       AttachOptions
	Journal      journal.Limits
	// Agent exchanges the agent's program; nil: it cannot be.
	Agent Agent
	// MinFree is the free space below which the worker takes no new work. Default 64 MiB.
	MinFree skerry.Bytes
	// ProbeAddress is where other workers measure round trips to this one by UDP, HOST:PORT. Without a host it is the
	// worker's address, without a port or with 0 the system chooses one; NoProbing keeps it out of all this.
	ProbeAddress string
	ProbeEvery   time.Duration // between two questions to other workers, once the place in the network is found; default 8 s
	Log          *slog.Logger
}

// Server is a worker with its machine.
type Server struct {
	*tier.Role
	places
	opt           ServerOptions
	cpus          *processors
	attach        *attachables
	users         *userRanges
	runtimes      *runtimes
	journal       *journal.Journal
	net           *attachments
	endpoints     *endpoints
	prober        *prober
	secrets       *secretStore
	program       *agentProgram
	overlayNet    *overlayNet                   // nil: no overlay
	workerIngress atomic.Pointer[workerIngress] // nil: no ingress
	up            atomic.Pointer[tier.Up]
	source        atomic.Pointer[artifact.Source]
	meter         *meter
	rtt           *roundtrip.Meter // nil: does not measure
	leases        *leases

	mu     sync.Mutex
	active map[skerry.InstanceID]*activity
	disk   diskShares
	doubts doubts
	work   atomic.Pointer[tier.Work] // nil before the first
}

// requests answers what a worker is asked over its link, and by nobody else.
type requests struct{ *Server }

// meter measures what instances and the machine use.
type meter struct {
	*Server
	usage    usage
	arrivals arrivals
	nudge    chan struct{}      // measure now
	pace     chan time.Duration // the last interval that the core asked for
	links    linkTimes
	shares   shares
	// measuring has one for each round trip to a user that is measured.
	measuring chan struct{}
}

// measureNow has use measured before its time.
func (m *meter) measureNow() {
	select {
	case m.nudge <- struct{}{}:
	default:
	}
}

// activity is what goes on for one instance outside the core.
type activity struct {
	prepare context.CancelFunc // of Prepare, and of the fetching of a state
	probes  context.CancelFunc
	key     *age.X25519Identity // that opens the state it is to start from
}

// NewServer makes a worker; Run starts it.
func NewServer(opt ServerOptions) (*Server, error) {
	if opt.MinFree == 0 {
		opt.MinFree = 64 * skerry.MiB
	}
	server := &Server{Role: tier.NewRole(), places: places{opt.Dir}, opt: opt, journal: journal.New(opt.Journal),
		runtimes: newRuntimes(opt.Drivers, opt.Dir, opt.Users.Off, opt.Log), active: map[skerry.InstanceID]*activity{},
		disk: newDiskShares(), net: newAttachments(opt.Network), endpoints: newEndpoints()}
	var err error
	if server.leases, err = newLeases(opt.RunDir, opt.CgroupParent, opt.Guard); err != nil {
		return nil, err
	}
	server.leases.up, server.leases.post, server.leases.log = server.up.Load, server.Post, opt.Log
	server.opt.NFS.open(opt.Dir)
	server.cpus = newProcessors(func() []runtime.Driver { return opt.Drivers })
	server.meter = &meter{Server: server, nudge: make(chan struct{}, 1), pace: make(chan time.Duration, 1),
		measuring: make(chan struct{}, measuringAtOnce)}
	server.secrets = &secretStore{places: server.places, keys: opt.Secrets, up: server.up.Load}
	server.program = &agentProgram{Server: server}
	server.prober = &prober{dial: server.dialInstance, driverOf: server.runtimes.of, post: func(m any) { server.Post(m) },
		passed: map[skerry.InstanceID]probeTimes{}}
	server.attach = newAttachables(opt.Attach)
	if err := server.attach.remember(filepath.Join(opt.Dir, heardFile)); err != nil {
		opt.Log.Warn("devices in networks are not known from before", "err", err)
	}
	server.users = newUserRanges(filepath.Join(opt.Dir, "instances"), opt.Users, opt.UserRegistry)
	server.users.held = func() []uint32 { return heldUsers(server) }
	if opt.Overlay != nil && opt.Network != nil {
		server.overlayNet = newOverlayNet(*opt.Overlay, opt.Log)
		server.overlayNet.place = func() (*spec.Coordinate, *spec.Location) { return server.Coordinate(), opt.Facts.Location }
		server.overlayNet.post = func(m any) { server.Post(m) }
		server.overlayNet.facts = server.tellFacts
		server.overlayNet.nudgeIngress = func() {
			if e := server.workerIngress.Load(); e != nil {
				e.nudge()
			}
		}
		server.net.overlayNet = server.overlayNet
	}
	server.Role.Store, server.Role.Log, server.Role.Load, server.Role.Host, server.Role.Serve = opt.Store, opt.Log, server.load,
		(*host)(server), server.serve
	return server, nil
}

// Run checks the runtimes and lives until ctx ends. What runs on the machine runs on.
func (s *Server) Run(ctx context.Context) error {
	defer s.runtimes.pending.Wait()
	tests, stop := context.WithCancel(ctx)
	defer stop() // a role that fails does not wait for machines to boot
	patience, enough := context.WithTimeout(ctx, machineWait)
	defer enough()
	s.lookForDevices() // before anything is told: without its device an instance ends
	s.runtimes.check(tests, patience, s.tellFacts)
	return s.Role.Run(ctx)
}

// Check runs every runtime's self-test, and keeps and returns the verdicts.
func (s *Server) Check(ctx context.Context) []wire.RuntimeReport {
	return s.runtimes.check(ctx, context.Background(), nil)
}

// Recheck is Check of a worker that runs: its cluster is told.
func (s *Server) Recheck(ctx context.Context) []wire.RuntimeReport {
	out := s.Check(ctx)
	s.tellFacts()
	return out
}

// tellFacts tells the core of the machine as it is now.
func (s *Server) tellFacts() { s.runtimes.tell(s.facts, func(m any) { s.Post(m) }) }

// Runtimes gives the last verdicts of Check.
func (s *Server) Runtimes() []wire.RuntimeReport { return s.runtimes.last() }

func (s *Server) load(ctx context.Context) (loop.Core, wire.Effects, error) {
	c := core.New(core.Options{Name: s.opt.Name, Seed: tier.Seed(), Repaired: s.opt.Repaired != ""})
	program := tier.Program{Version: s.opt.Version, Records: core.Records()}
	writes, err := tier.LoadCore(ctx, s.opt.Store, program, s.journal, loop.InTurn(c.Load))
	if err != nil {
		return nil, wire.Effects{}, err
	}
	first := c.Start(time.Now()) // now it knows what the cluster wants here
	first.Writes = append(first.Writes, writes...)
	if s.opt.Repaired != "" {
		core.Warn(c, time.Now(), wire.EventStoreRepaired, s.opt.Repaired, &first)
		s.opt.Repaired = "" // the core has noted it
	}
	if s.overlayNet != nil {
		items := c.OverlayItems()
		s.overlayNet.load(items)
		for _, a := range items {
			s.direct(a)
		}
	}
	for v := range core.All(c) {
		a := v.Assignment()
		if !v.Halted() && v.Address() != "" {
			s.net.want(a, v.Ports())
		}
		s.endpoints.know(a.ID, a.Service.App)
	}
	for _, t := range s.runtimes.tasks(ctx) {
		// Of an instance that has no address yet an earlier life was writing down that it runs.
		if v, known := core.ViewOf(c, t.ID); t.Running && (known && !v.Halted() && v.Address() == "" || !known && core.Strays(c)) {
			s.net.keep(t.ID)
		}
	}
	if !core.Strays(c) {
		removeUnknown(s, c)
	}
	work := tier.NewWork(ctx)
	work.Again = s.work.Load() != nil
	s.work.Store(work) // before the loop acts, and requests are answered
	return c, first, nil
}

// serve runs one life: it takes up what is on the machine, then keeps the link to the cluster.
func (s *Server) serve(ctx context.Context, l *loop.Loop) error {
	work := s.work.Load()
	defer context.AfterFunc(ctx, work.Cancel)() // when the store refuses a commit, too
	defer work.End()
	ways, err := s.openIngress()
	if err != nil {
		return err
	}
	if ways == nil {
		l.Post(core.IngressOffered{})
	}
	if err := s.net.restore(ctx); err != nil {
		s.opt.Log.Error("restore the network", "err", err)
	}
	if s.overlayNet != nil {
		s.overlayNet.hide(s.opt.Network.Gateway())
		if hush, err := s.overlayNet.answer(work.Ctx, s.opt.Network.Gateway()); err != nil {
			s.opt.Log.Warn("instances get no names of services", "err", err, "hint", "free port 53 of that address, then restart the worker")
		} else {
			work.Go(func() {
				<-work.Ctx.Done()
				hush()
			})
			// What was attached before is to ask here, too, when its containers are started again.
			if err := s.net.restore(ctx); err != nil {
				s.opt.Log.Error("restore the network", "err", err)
			}
		}
		work.Go(func() { s.overlayNet.run(work.Ctx) })
		if ways != nil {
			work.Go(func() { ways.run(work.Ctx) })
		}
	}
	s.startRTT(work)
	if s.leases.contact != nil {
		if ago, ok := s.leases.contact.Read(); ok {
			l.Post(core.Contact{At: time.Now().Add(-ago)})
		}
	}
	for _, e := range s.leases.ended() {
		l.Post(e)
	}
	work.Go(func() { s.leases.keep(work.Ctx) })
	s.removeAside()
	s.opt.NFS.sweep(work, s.opt.Log)
	recoverSnapshots(s)
	l.Post(core.Reattach{Tasks: s.runtimes.tasks(ctx)})
	s.lookForDevices()
	s.runtimes.tell(s.facts, func(m any) { l.Post(m) })
	if work.Again { // runtimes may have been checked while the disk could not be written
		work.Go(func() { s.Recheck(work.Ctx) })
	}
	work.Go(func() { s.watchDevices(work.Ctx) })
	for i, rule := range s.opt.Attach.Rules {
		if rule.InNetwork() {
			work.Go(func() {
				s.attach.listen(work.Ctx, i, s.opt.Log, func() {
					if s.lookForDevices() {
						s.tellFacts()
					}
				})
			})
		}
	}
	work.Go(func() { s.meter.measure(work.Ctx, l) })
	work.Go(func() { s.watchDisk(work.Ctx) })
	work.Go(func() { s.watchLinks(work.Ctx, linkEvery) })
	if s.opt.Member == nil {
		<-ctx.Done()
		return nil
	}
	lost := make(chan struct{}, 1)
	config := tier.UpConfig{
		Member: s.opt.Member, Addrs: s.opt.Addrs, Boot: s.opt.Boot, Machine: s.opt.Machine, Version: s.opt.Version, Log: s.opt.Log,
		Sets: func() []wire.SetAck {
			// With the life's own context: between two lives there is nobody to answer.
			sets, _ := tier.View(ctx, s.Role, func(c *core.Core) ([]wire.SetAck, error) { return c.Up.Hello(), nil })
			return sets
		},
		Up: func(w *wire.Welcome) {
			l.Post(core.ParentUp{Welcome: w})
			s.mu.Lock()
			r := s.rtt
			s.mu.Unlock()
			r.SetPace(w.Pace)
			if s.overlayNet != nil {
				s.overlayNet.doubt() // what ended the last link may have changed the way of everything else
			}
		},
		Frame: func(m wire.Message) { l.Post(core.ParentFrame{Msg: m}) },
		Down: func(heard time.Duration) {
			select {
			case lost <- struct{}{}:
			default: // it was not seen yet
			}
			l.Post(core.ParentDown{Heard: time.Now().Add(-heard)})
		},
		HTTP: http.HandlerFunc(s.ServeHTTP),
		Held: func() time.Duration { return s.Role.Held("") },
	}
	if s.opt.Voter != nil {
		config.Term, config.Lease = s.opt.Voter.Term, s.opt.Voter.Lease
	}
	up, err := tier.NewUp(config)
	if err != nil {
		return err
	}
	src := &artifact.Source{BaseURL: "http://cluster", Transport: up.Transport, Limit: s.opt.PullLimit}
	s.source.Store(src)
	s.up.Store(up)
	if s.opt.Voter != nil {
		work.Go(func() {
			s.opt.Voter.Run(work.Ctx, func() bool {
				ok, _ := up.Connected()
				return ok
			}, lost, up.Hurry)
		})
	}
	return up.Run(ctx)
}

// NoProbing as a probe address keeps a worker from measuring round trips to others, and others from measuring to it.
const NoProbing = "off"

// heardEach is how many round trips a report tells, one peer after the other: enough for the cluster to compare places with,
// and few bytes.
const heardEach = 3

// startRTT begins to measure round trips to other workers. A worker that cannot works without a place in the network.
func (s *Server) startRTT(work *tier.Work) {
	s.mu.Lock()
	s.rtt = nil
	s.mu.Unlock()
	if s.opt.ProbeAddress == NoProbing || s.opt.Member == nil {
		return
	}
	r, err := roundtrip.New(s.opt.ProbeAddress, s.opt.ProbeEvery, filepath.Join(s.opt.Dir, "coordinate.json"), s.opt.Log, s.meter.measureNow)
	if err != nil {
		s.opt.Log.Error("measure round trips to other workers", "err", err)
		return
	}
	s.mu.Lock()
	s.rtt = r
	s.mu.Unlock()
	work.Go(func() { r.Run(work.Ctx) })
}

// Coordinate gives the worker's place in the network, or nil while it is not known.
func (s *Server) Coordinate() *spec.Coordinate {
	s.mu.Lock()
	r := s.rtt
	s.mu.Unlock()
	return r.Place()
}

// Parent tells whether the cluster is connected, and if not, why.
func (s *Server) Parent() (connected bool, why string) {
	up := s.up.Load()
	if up == nil {
		return false, "not started"
	}
	return up.Connected()
}

// host carries out the core's effects.
type host Server

func (h *host) Record(now time.Time, events []wire.Event) []wire.Write {
	return h.journal.Record(now, events)
}

func (h *host) Send(_ string, m wire.Message) {
	if u := h.up.Load(); u != nil {
		u.Send(m)
	}
}

func (h *host) Announce(events []wire.Event, changed []wire.Change) {
	for _, e := range events {
		h.opt.Log.Info(e.Reason, "instance", string(e.Instance), "text", e.Text)
	}
	h.journal.Announce(events, changed)
}

// Act starts an action; it never waits for it.
func (h *host) Act(action any) { (*Server)(h).act(action) }

// Instances lists what the worker holds.
func (s *Server) Instances(ctx context.Context) ([]wire.Observation, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]wire.Observation, error) { return c.Instances(), nil })
}

// Freeze has the worker defer what the cluster asks for, Release ends that, and Approve carries out what waits for one instance,
// or if it names none for all.
func (s *Server) Freeze(ctx context.Context, reason string) error {
	_, err := s.Role.Do(ctx, core.FreezeLocal{Reason: reason})
	return err
}

// Release has the worker carry out what waited while it was held.
func (s *Server) Release(ctx context.Context) error {
	_, err := s.Role.Do(ctx, core.ReleaseLocal{})
	return err
}

// Approve carries out what waits for one instance, or for all if id is empty, though the worker is held.
func (s *Server) Approve(ctx context.Context, id skerry.InstanceID) error {
	_, err := s.Role.Do(ctx, core.ApproveLocal{ID: id})
	return err
}

// Frozen says why the worker is held on its device, or "".
func (s *Server) Frozen(ctx context.Context) (string, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (string, error) { return c.Frozen(), nil })
}

// Views lists what the worker holds as the API shows it.
func (s *Server) Views(ctx context.Context) ([]wire.Instance, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]wire.Instance, error) { return c.Views(), nil })
}

// Journal gives the worker's own events.
func (s *Server) Journal() *journal.Journal { return s.journal }
