package pods

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/vault"
)

// Place is what a worker keeps of itself.
type Place struct {
	Store    store.Store
	Repaired string // what the store had lost when it was opened; empty: nothing
	Member   *auth.Member
	Secrets  *vault.Key
}

// Options set up a fleet.
type Options struct {
	Client  *Client
	Style   Style
	Version string
	// Nodes are the labels of those that are to be workers; none: all that run Linux.
	Nodes map[string]string
	// FirstPort and LastPort bound the host ports that are chosen.
	FirstPort, LastPort int
	// Patience is how long a pod may find no place on its node before it counts as failed.
	Patience time.Duration
	// Open opens what a worker keeps, joining the site first if it has not. It is tried again until it works.
	Open  func(ctx context.Context, worker, node string) (*Place, error)
	Addrs func() []string // of the cluster
	Boot  string
	Log   *slog.Logger
}

// Fleet is every node of a Kubernetes cluster as a worker.
type Fleet struct {
	opt    Options
	nodes  *mirror[Node]
	pods   *mirror[Pod]
	claims *mirror[Claim]
	wake   chan struct{} // nodes have changed
	// sweeping is held by the worker that looks for secrets that nobody uses.
	sweeping chan struct{}

	mu      sync.Mutex
	known   map[string]*Node
	needs   map[string]map[string]need // of others' pods, by node and key
	own     map[string]*Pod            // of this site, by key
	kept    map[string]*Claim          // of this site, by key
	dropped map[string]bool            // claims that this program deletes, by their UID
	noClass string                     // why there is no storage class; empty: there is one
	without map[string]string          // why there are no sidecars, by node; "": by all
	gone    map[string]*Pod            // of these, as they last were, until somebody asks
	waiting map[string]map[chan struct{}]bool
	workers map[string]*Worker // by node
	active  sync.WaitGroup
}

// goneMost bounds what is remembered of pods that are gone.
const goneMost = 4096

// NewFleet makes a fleet; Run starts it.
func NewFleet(opt Options) *Fleet {
	made := &Fleet{opt: opt, wake: make(chan struct{}, 1), sweeping: make(chan struct{}, 1), known: map[string]*Node{},
		needs: map[string]map[string]need{}, own: map[string]*Pod{}, gone: map[string]*Pod{}, without: map[string]string{},
		waiting: map[string]map[chan struct{}]bool{}, workers: map[string]*Worker{}, kept: map[string]*Claim{}, dropped: map[string]bool{},
		noClass: unlooked}
	made.nodes = newMirror(opt.Client, "/api/v1/nodes", func(n *Node) *Meta { return &n.Metadata }, opt.Log)
	made.nodes.set, made.nodes.reset, made.nodes.told = made.setNode, made.resetNodes, made.all
	made.pods = newMirror(opt.Client, "/api/v1/pods", func(p *Pod) *Meta { return &p.Metadata }, opt.Log)
	made.pods.set, made.pods.reset, made.pods.told = made.setPod, made.resetPods, made.all
	made.pods.trim = made.thin
	made.claims = newMirror(opt.Client, collection(claimPath(opt.Style.Namespace, "")), func(c *Claim) *Meta { return &c.Metadata }, opt.Log)
	made.claims.set, made.claims.reset, made.claims.told = made.setClaim, made.resetClaims, made.all
	return made
}

// Run makes each schedulable node a worker, and lives until ctx ends. Pods run on.
func (f *Fleet) Run(ctx context.Context) error {
	defer f.active.Wait()
	f.active.Go(func() { f.nodes.run(ctx) })
	f.active.Go(func() { f.pods.run(ctx) })
	f.active.Go(func() { f.claims.run(ctx) })
	for _, synced := range []chan struct{}{f.nodes.synced, f.pods.synced} {
		select {
		case <-synced:
		case <-ctx.Done():
			return nil
		}
	}
	f.lookForClass(ctx)
	f.active.Go(func() { f.watchClasses(ctx) })
	f.mu.Lock()
	nodes := len(f.known)
	f.mu.Unlock()
	f.opt.Log.Info("Kubernetes is heard", "nodes", nodes)
	for {
		f.start(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
	}
}

// start begins the workers of nodes that have none, and ends those of nodes that were removed, with all that was on them.
func (f *Fleet) start(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, w := range f.workers {
		if f.known[name] == nil && !f.hasPodsLocked(w.name) {
			w.end()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.known)) {
		node := f.known[name]
		cordoned := node.Spec.Unschedulable && !f.hasPodsLocked(WorkerName(name)) // what runs there runs on
		if f.workers[name] != nil || cordoned || !spec.HasLabels(node.Metadata.Labels, f.opt.Nodes) ||
			node.Status.NodeInfo.OperatingSystem != "" && node.Status.NodeInfo.OperatingSystem != "linux" {
			continue
		}
		w := newWorker(f, WorkerName(name), name)
		f.workers[name] = w
		alive, end := context.WithCancel(ctx)
		w.end = end
		f.active.Go(func() {
			w.live(alive)
			if alive.Err() == nil { // it panicked
				wait := lastRetry
				pause(ctx, &wait, nil)
			}
			if end(); ctx.Err() == nil {
				f.leave(w)
			}
		})
	}
}

// leave forgets a worker that has ended. Its node may be back already.
func (f *Fleet) leave(w *Worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.workers, w.node)
	f.wakeUp()
}

func (f *Fleet) wakeUp() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// hasPodsLocked reports whether there are pods of a worker.
func (f *Fleet) hasPodsLocked(worker string) bool {
	for _, p := range f.own {
		if p.Metadata.Labels[workerLabel] == labelValue(worker) {
			return true
		}
	}
	return false
}

// Workers gives those that have begun, by their names.
func (f *Fleet) Workers() map[string]*Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]*Worker{}
	for _, w := range f.workers {
		out[w.name] = w
	}
	return out
}

// all has every worker look again.
func (f *Fleet) all() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		w.nudge()
	}
}

func (f *Fleet) setNode(name string, n *Node, gone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if gone {
		delete(f.known, name)
	} else {
		f.known[name] = n
	}
	f.lookLocked(name)
	f.wakeUp()
}

func (f *Fleet) resetNodes(all map[string]*Node) {
	f.mu.Lock()
	f.known = all
	f.mu.Unlock()
	f.all()
	f.wakeUp()
}

func (f *Fleet) lookLocked(node string) {
	if w := f.workers[node]; w != nil {
		w.nudge()
	}
}

// mine reports whether a pod is of this site.
func (f *Fleet) mine(p *Pod) bool {
	return p.Metadata.Namespace == f.opt.Style.Namespace && p.Metadata.Labels[managedLabel] == managedBy &&
		p.Metadata.Labels[siteLabel] == labelValue(f.opt.Style.Site)
}

func (f *Fleet) setPod(key string, p *Pod, gone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setPodLocked(key, p, gone)
}

func (f *Fleet) setPodLocked(key string, pod *Pod, gone bool) {
	if have := f.own[key]; f.mine(pod) || have != nil && have.Metadata.UID == pod.Metadata.UID { // it may have lost its labels
		f.keepLocked(key, pod, gone)
		return
	}
	n := needOf(pod)
	if n.node == "" {
		return
	}
	if gone || n.resources == (spec.Resources{}) && len(n.ports) == 0 {
		delete(f.needs[n.node], key)
	} else {
		if f.needs[n.node] == nil {
			f.needs[n.node] = map[string]need{}
		}
		f.needs[n.node][key] = n
	}
	f.lookLocked(n.node)
}

// keepLocked takes a pod of this site, and tells those who wait for it.
func (f *Fleet) keepLocked(key string, pod *Pod, gone bool) {
	if gone {
		delete(f.own, key)
		if len(f.gone) >= goneMost {
			clear(f.gone)
		}
		f.gone[key] = pod
		f.wakeUp() // the last of a node that was removed
	} else {
		f.own[key] = pod
	}
	for c := range f.waiting[key] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (f *Fleet) resetPods(all map[string]*Pod) {
	f.mu.Lock()
	before := f.own
	f.own, f.needs = map[string]*Pod{}, map[string]map[string]need{}
	for key, p := range all {
		if was := before[key]; was != nil && was.Metadata.UID == p.Metadata.UID {
			f.keepLocked(key, p, false)
		} else {
			f.setPodLocked(key, p, false)
		}
	}
	for key, p := range before {
		if f.own[key] == nil {
			f.keepLocked(key, p, true)
		}
	}
	f.mu.Unlock()
	f.all()
}

// node gives a node, what others take of it, and why nothing can be said of it now.
func (f *Fleet) node(name string) (n *Node, others []need, away error) {
	away = errors.Join(f.nodes.health(), f.pods.health())
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := slices.Sorted(maps.Keys(f.needs[name]))
	for _, k := range keys {
		others = append(others, f.needs[name][k])
	}
	return f.known[name], others, away
}

func (f *Fleet) key(name string) string { return f.opt.Style.Namespace + "/" + name }

// note takes a pod of ours that was answered before its watch told of it.
func (f *Fleet) note(p *Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := f.key(p.Metadata.Name)
	if f.own[key] == nil && (f.gone[key] == nil || f.gone[key].Metadata.UID != p.Metadata.UID) {
		f.own[key] = p
	}
}

// ofWorker gives the pods of a worker, in order of their names.
func (f *Fleet) ofWorker(worker string) (out []*Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(f.own)) {
		if p := f.own[key]; p.Metadata.Labels[workerLabel] == labelValue(worker) {
			out = append(out, p)
		}
	}
	return out
}

// subscribe has a channel signalled whenever a pod changes.
func (f *Fleet) subscribe(name string) (changed chan struct{}, end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key, c := f.key(name), make(chan struct{}, 1)
	if f.waiting[key] == nil {
		f.waiting[key] = map[chan struct{}]bool{}
	}
	f.waiting[key][c] = true
	return c, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if delete(f.waiting[key], c); len(f.waiting[key]) == 0 {
			delete(f.waiting, key)
		}
	}
}

// find gives a pod as it is, or as it last was if it is gone; nil: nothing was ever seen of it. What the mirror does not have is asked for,
// because a list may be older than the pod: a pod counts as gone when the API server says so.
func (f *Fleet) find(ctx context.Context, named handle) (pod *Pod, there bool, err error) {
	f.mu.Lock()
	key := f.key(named.Pod)
	pod, last := f.own[key], f.gone[key]
	f.mu.Unlock()
	if pod != nil && (named.UID == "" || pod.Metadata.UID == named.UID) {
		return pod, true, nil
	}
	pod = &Pod{}
	err = f.opt.Client.do(ctx, http.MethodGet, podPath(f.opt.Style.Namespace, named.Pod), nil, nil, pod)
	switch {
	case err == nil && (named.UID == "" && f.mine(pod) || named.UID != "" && pod.Metadata.UID == named.UID):
		f.note(pod)
		return pod, true, nil
	case err != nil && !absent(err):
		return nil, false, err
	}
	if last != nil && named.UID != "" && last.Metadata.UID != named.UID {
		last = nil
	}
	return last, false, nil
}

// await waits until a pod is as wanted, or gone. It asks fit again at each change, and every second if often.
func (f *Fleet) await(ctx context.Context, named handle, often bool, fit func(p *Pod, there bool) bool) error {
	changed, end := f.subscribe(named.Pod)
	defer end()
	var wait time.Duration
	for {
		pod, there, err := f.find(ctx, named)
		if err == nil && (fit(pod, there) || !there) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if !pause(ctx, &wait, err) {
				return ctx.Err()
			}
			continue
		}
		wait = 0
		var again <-chan time.Time
		if often {
			again = time.After(time.Second)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-again:
		}
	}
}

// live opens what the worker keeps, and runs it until ctx ends.
func (w *Worker) live(ctx context.Context) {
	defer panics.Catch(w.log, "a worker")
	var wait time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		place, err := w.fleet.opt.Open(ctx, w.name, w.node)
		if err == nil {
			err = w.inhabit(ctx, place)
		}
		if time.Since(began) > lastRetry {
			wait = 0
		}
		if err != nil && ctx.Err() == nil {
			w.log.Error(fmt.Sprintf("the worker of node %s does not run", w.node), "err", err)
		}
		if !pause(ctx, &wait, err) {
			return
		}
	}
}

// inhabit runs the worker with what it keeps. If it panics, the others live on.
func (w *Worker) inhabit(ctx context.Context, place *Place) (err error) {
	defer func() { err = errors.Join(err, place.Store.Close()) }()
	defer panics.Error(&err)
	w.open(place)
	w.log.Info("a node is a worker", "node", w.node)
	return w.role.Load().Run(ctx)
}
