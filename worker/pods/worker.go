package pods

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store/journal"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// Worker is a node as a worker.
type Worker struct {
	fleet   *Fleet
	name    string
	node    string
	log     *slog.Logger
	place   *Place
	journal *journal.Journal
	role    atomic.Pointer[tier.Role] // of the present place; what was asked of the one before may still be answered
	up      atomic.Pointer[tier.Up]
	work    atomic.Pointer[tier.Work]
	changed chan struct{} // the node, or what others take of it
	end     func()
	pace    chan time.Duration // how often use is to be measured; 0: as usual

	mu        sync.Mutex
	active    map[skerry.InstanceID]*activity
	ports     map[skerry.InstanceID][]wire.PortBinding
	orgs      map[skerry.InstanceID]string // of those in ports
	endpoints map[skerry.ServiceKey][]wire.Endpoint
	apps      map[skerry.InstanceID]skerry.AppKey
	removing  map[spec.VolumeClaim]chan struct{} // closed when the removal of these volumes is over
	reachable chan struct{}                      // closed while the node is in touch with Kubernetes
	cut       func()                             // ends the link when it no longer is; nil: there is none
}

// activity is what goes on for one instance outside the core.
type activity struct {
	prepare context.CancelFunc
	probes  context.CancelFunc
	writer  context.Context // of who writes its endpoints; nil: nobody does
	stale   bool            // they have changed since they were read for writing
}

// handle names a pod in the core's records.
type handle struct {
	Pod string `json:"pod"`
	UID string `json:"uid,omitempty"`
}

func (h handle) encode() json.RawMessage {
	data, _ := json.Marshal(h)
	return data
}

func readHandle(data json.RawMessage) (h handle) {
	_ = json.Unmarshal(data, &h)
	return h
}

func newWorker(f *Fleet, name, node string) *Worker {
	return &Worker{fleet: f, name: name, node: node, log: f.opt.Log.With("worker", name), changed: make(chan struct{}, 1),
		pace: make(chan time.Duration, 1)}
}

// open makes the role of a place.
func (w *Worker) open(place *Place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.place, w.journal = place, journal.New(journal.Limits{})
	w.orgs = map[skerry.InstanceID]string{}
	w.active, w.ports = map[skerry.InstanceID]*activity{}, map[skerry.InstanceID][]wire.PortBinding{}
	w.endpoints, w.apps = map[skerry.ServiceKey][]wire.Endpoint{}, map[skerry.InstanceID]skerry.AppKey{}
	w.reachable, w.removing = make(chan struct{}), map[spec.VolumeClaim]chan struct{}{}
	role := tier.NewRole()
	role.Store, role.Log, role.Load, role.Host, role.Serve = place.Store, w.log, w.load, (*host)(w), w.serve
	role.Contain = true
	w.role.Store(role)
}

// post gives the core a message that nobody waits for.
func (w *Worker) post(msg any) { w.role.Load().Post(msg) }

// nudge has the worker look at its node again.
func (w *Worker) nudge() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *Worker) load(ctx context.Context) (loop.Core, wire.Effects, error) {
	loaded := core.New(core.Options{Name: w.name, AsOne: true, Seed: tier.Seed(), Repaired: w.place.Repaired != ""})
	writes, err := tier.LoadCore(ctx, w.place.Store, tier.Program{Version: w.fleet.opt.Version, Records: core.Records()}, w.journal,
		loop.InTurn(loaded.Load))
	if err != nil {
		return nil, wire.Effects{}, err
	}
	first := loaded.Start(time.Now())
	first.Writes = append(first.Writes, writes...)
	if w.place.Repaired != "" {
		core.Warn(loaded, time.Now(), wire.EventStoreRepaired, w.place.Repaired, &first)
		w.place.Repaired = ""
	}
	w.mu.Lock()
	clear(w.apps) // what an earlier life prepared, and did not live to write down, is nobody's
	clear(w.ports)
	clear(w.orgs)
	for v := range core.All(loaded) {
		a := v.Assignment()
		w.apps[a.ID] = a.Service.App
		if !v.Halted() {
			w.ports[a.ID], w.orgs[a.ID] = v.Ports(), a.Org
		}
	}
	w.mu.Unlock()
	work := tier.NewWork(ctx)
	w.work.Store(work) // before the loop acts
	return loaded, first, nil
}

// serve takes up the pods that are there, then keeps the link to the cluster while the node is in touch with Kubernetes.
func (w *Worker) serve(ctx context.Context, running *loop.Loop) error {
	work := w.work.Load()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(ctx, work.Cancel)()
	defer work.End()
	records, err := tier.View(ctx, w.role.Load(), func(c *core.Core) (list []core.Task, _ error) {
		c.Containers(func(a *spec.Assignment, name string, attempt int, handle json.RawMessage) {
			list = append(list, core.Task{ID: a.ID, Name: name, Attempt: attempt, Handle: handle})
		})
		return list, nil
	})
	var tasks []core.Task
	if err == nil {
		tasks, err = w.tasks(work.Ctx, records)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	running.Post(core.Reattach{Tasks: tasks})
	w.dropUnknown(work)
	running.Post(core.IngressOffered{})
	work.Go(func() {
		defer panics.Catch(w.log, "claims that are deleted")
		claims{w}.deletedMeanwhile(work.Ctx)
	})
	work.Go(func() {
		var err error
		defer func() {
			if err != nil {
				end(err)
			}
		}()
		defer panics.Error(&err)
		w.follow(work.Ctx, running)
	})
	work.Go(func() {
		defer panics.Catch(w.log, "a sweep")
		w.sweep(work.Ctx)
	})
	w.repeat(work, func() { w.measure(work.Ctx, running) })
	for {
		w.mu.Lock()
		reachable := w.reachable
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return ended(ctx)
		case <-reachable:
		}
		if err := w.link(ctx, running); err != nil || ctx.Err() != nil {
			return cmp.Or(err, ended(ctx))
		}
	}
}

// ended is why a life has ended; nil: it was asked to.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// link keeps the link to the cluster until ctx ends, or the node is out of touch.
func (w *Worker) link(ctx context.Context, running *loop.Loop) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	w.cut = cancel
	select {
	case <-w.reachable:
	default:
		cancel() // it has gone meanwhile
	}
	w.mu.Unlock()
	opt := &w.fleet.opt
	up, err := tier.NewUp(tier.UpConfig{
		Member: w.place.Member, Addrs: opt.Addrs, Boot: opt.Boot, Machine: "kubernetes/" + w.node, Version: opt.Version, Log: w.log,
		Sets: func() []wire.SetAck {
			sets, _ := tier.View(ctx, w.role.Load(), func(c *core.Core) ([]wire.SetAck, error) { return c.Up.Hello(), nil })
			return sets
		},
		Up:    func(m *wire.Welcome) { running.Post(core.ParentUp{Welcome: m}) },
		Frame: func(m wire.Message) { running.Post(core.ParentFrame{Msg: m}) },
		Down:  func(heard time.Duration) { running.Post(core.ParentDown{Heard: time.Now().Add(-heard)}) },
		HTTP:  http.HandlerFunc(w.ServeHTTP),
		Held:  func() time.Duration { return w.role.Load().Held("") },
	})
	if err != nil {
		return err
	}
	w.up.Store(up)
	return up.Run(ctx)
}

// factsPace is how often the site is told of a node at most: what is left of it changes with the pods of others.
const factsPace = time.Second

// follow tells the core what its node is, and whether it takes new work, until ctx ends.
func (w *Worker) follow(ctx context.Context, running *loop.Loop) {
	var told *wire.WorkerFacts
	var pace <-chan time.Time
	refused := ""
	w.nudge()
	for {
		if pace != nil {
			select {
			case <-ctx.Done():
				return
			case <-pace:
				pace = nil
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		}
		node, others, away := w.fleet.node(w.node)
		whyNot, touch := "its node is not in Kubernetes", false
		if node != nil {
			whyNot, touch = ready(node)
			f := facts(node, others, w.fleet.opt.Version, w.fleet.noSidecars(node), w.fleet.noVolumes())
			if told == nil || !reflect.DeepEqual(*told, f) {
				told, pace = &f, time.After(factsPace)
				running.Post(core.Facts{Facts: f})
			}
		}
		text := ""
		switch {
		case away != nil:
			text = "the API server of Kubernetes does not answer"
		case node != nil && node.Spec.Unschedulable:
			text = "its node is cordoned in Kubernetes"
		}
		if text != refused {
			refused = text
			running.Post(core.Refuse{Text: text})
		}
		// While the API server is away nobody knows better than before.
		if away == nil {
			w.touch(touch, whyNot)
		}
	}
}

// touch lets the link to the cluster be, or ends it: the cluster is to take a worker whose node is out of touch for what it is.
func (w *Worker) touch(ok bool, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	is := false
	select {
	case <-w.reachable:
		is = true
	default:
	}
	switch {
	case ok && !is:
		close(w.reachable)
	case !ok && is:
		w.log.Warn("the worker leaves its cluster until its node is back", "node", w.node, "err", why)
		w.reachable = make(chan struct{})
		if w.cut != nil {
			w.cut()
		}
	}
}

// tasks are the pods that an earlier life of this program left: those that run or have ended. One that has not started is no task: it is
// taken up by its name, or taken away, when its instance is started. Those of records are asked for by name if their labels do not show
// them: somebody may have taken these away.
func (w *Worker) tasks(ctx context.Context, records []core.Task) (out []core.Task, err error) {
	found := map[string]bool{}
	hooks, cancel := context.WithTimeout(ctx, hookPatienceFirst)
	defer cancel()
	for _, p := range w.fleet.ofWorker(w.name) {
		s := Look(p, time.Now())
		if s.Stage != Running && s.Stage != Ended {
			continue
		}
		if t, ok := taskOf(p, s); ok {
			if s.Stage == Ended {
				t.PostStart = w.endedBefore(hooks, &t, p)
			}
			out, found[p.Metadata.Name] = append(out, t), true
		}
	}
	for _, record := range records {
		named := readHandle(record.Handle)
		if named.Pod == "" || found[named.Pod] {
			continue
		}
		var pod *Pod
		there := false
		err := persist(ctx, w.log, "pod "+named.Pod, func() (err error) {
			pod, there, err = w.fleet.find(ctx, named)
			return err
		})
		if err != nil {
			return nil, err
		}
		if !there {
			continue
		}
		if s := Look(pod, time.Now()); s.Stage == Running || s.Stage == Ended {
			record.Running, record.Exit, record.Init = s.Stage != Ended, s.Exit, s.Init
			if s.Stage == Ended {
				record.PostStart = w.endedBefore(hooks, &record, pod)
			}
			record.Restart, _ = strconv.ParseUint(pod.Metadata.Annotations[restartNote], 10, 64)
			out = append(out, record)
		}
	}
	return out, nil
}

// dropUnknown takes away pods that have not started and are of instances that no record has: the core hears of them no other way.
func (w *Worker) dropUnknown(work *tier.Work) {
	for _, pod := range w.fleet.ofWorker(w.name) {
		w.mu.Lock()
		_, known := w.apps[skerry.InstanceID(pod.Metadata.Annotations[instanceNote])]
		w.mu.Unlock()
		if !known && Look(pod, time.Now()).Stage < Running {
			work.Go(func() { _ = w.discard(work.Ctx, handle{pod.Metadata.Name, pod.Metadata.UID}) })
		}
	}
}

// taskOf reads which attempt of which instance a pod is; ok is false for one that does not say so, as when somebody has changed it.
func taskOf(p *Pod, s Sight) (t core.Task, ok bool) {
	id := skerry.InstanceID(p.Metadata.Annotations[instanceNote])
	attempt, err := strconv.Atoi(p.Metadata.Annotations[attemptNote])
	if err != nil || attempt < 1 || spec.CheckInstanceID(id) != nil {
		return t, false
	}
	t = core.Task{ID: id, Name: mainContainer, Attempt: attempt, Handle: handle{p.Metadata.Name, p.Metadata.UID}.encode(),
		Running: s.Stage != Ended, Exit: s.Exit, Init: s.Init}
	t.Restart, _ = strconv.ParseUint(p.Metadata.Annotations[restartNote], 10, 64)
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; c.Name == mainContainer && strings.Contains(c.Image, "@") {
			t.Digest = digestOf(c.Image)
		}
	}
	return t, true
}

// host carries out the core's effects.
type host Worker

func (h *host) Record(now time.Time, events []wire.Event) []wire.Write {
	return h.journal.Record(now, events)
}

func (h *host) Send(_ string, m wire.Message) {
	if up := h.up.Load(); up != nil {
		up.Send(m)
	}
}

func (h *host) Announce(events []wire.Event, changed []wire.Change) {
	for _, e := range events {
		h.log.Info(e.Reason, "instance", string(e.Instance), "text", e.Text)
	}
	h.journal.Announce(events, changed)
}

// Act starts an action; it never waits for it.
func (h *host) Act(action any) { (*Worker)(h).act(action) }

// Parent tells whether the cluster is connected, and if not, why.
func (w *Worker) Parent() (connected bool, why string) {
	up := w.up.Load()
	if up == nil {
		return false, "not started"
	}
	return up.Connected()
}
