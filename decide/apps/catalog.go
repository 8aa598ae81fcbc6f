package apps

import (
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/sorted"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// App is an application with what was asked of it.
type App struct {
	Manifest  spec.Application  `json:"manifest"`
	Delegated bool              `json:"borrowed,omitempty"` // it belongs to the tier above; see Delegate
	Org       string            `json:"org"`
	Gen       skerry.Generation `json:"generation"`
	Deployed  bool              `json:"deployed"` // false: Registered only
	Deleting  bool              `json:"deleting,omitempty"`
	// DeleteVolumes: its local volumes go with it, whatever the manifest says.
	DeleteVolumes bool              `json:"deleteVolumes,omitempty"`
	CreatedAt     time.Time         `json:"createdAt"`
	UpdatedAt     time.Time         `json:"updatedAt"`
	Author        string            `json:"author,omitempty"`
	Restarts      map[string]uint64 `json:"restarts,omitempty"` // per service: how often a restart was asked for
	Runs          map[string][]*Run `json:"runs,omitempty"`     // per service: runs of a job or schedule, oldest first
	Digests       map[string]string `json:"digests,omitempty"`  // image reference -> digest, fixed per generation
	// Rollouts, Refused and Paused are per service; Paused says by whom.
	Rollouts map[string]*Rollout `json:"rollouts,omitempty"`
	Refused  map[string]*Refused `json:"refused,omitempty"`
	Paused   map[string]string   `json:"paused,omitempty"`
	// Turns are services whose rollout of a rotated secret goes first, per service; an application that is applied anew has none.
	Turns map[string][]string `json:"turns,omitempty"`
	// PerDevice: a service has that mode. Nobody reads it: an older program, which would count replicas, refuses the store.
	PerDevice bool              `json:"perDevice,omitempty"`
	revisions map[string]string // per service, derived
	counts    skerry.Bytes      // of what is stored; see definitions
}

// Key gives the application's key.
func (a *App) Key() skerry.AppKey { return a.Manifest.Key() }

// Run is one run of a job.
type Run struct {
	ID        string        `json:"id"`
	Revision  string        `json:"revision"`
	StartedAt time.Time     `json:"startedAt"`
	EndedAt   time.Time     `json:"endedAt,omitzero"`
	Seen      time.Time     `json:"seen,omitzero"` // the last time of the schedule that was left out for it
	Succeeded int           `json:"succeeded"`
	Failed    int           `json:"failed"`
	Result    string        `json:"result,omitempty"` // Succeeded, Failed or Replaced; empty while it goes on
	Reason    string        `json:"reason,omitempty"` // why it failed
	Took      time.Duration `json:"took,omitempty"`   // the longest instance so far
	retryAt   time.Time     // no further instance before, after failures
	forgiven  int           // failures before the last success
}

// catalog has the applications of a tier, and says which of them are to be looked at: at once, or from a time on. It alone changes its
// maps (archtest TestOwners).
type catalog struct {
	apps    map[skerry.AppKey]*App
	order   sorted.List[*App] // the same by the text of their keys
	targets []string          // children among which perWorker services are spread
	shut    map[string]bool   // those of them that get nothing new
	dirty   map[skerry.AppKey]bool
	wake    map[skerry.AppKey]time.Time
	frozen  bool // delegated applications stay as they are
	stored  *definitions
}

func newCatalog() *catalog {
	return &catalog{apps: map[skerry.AppKey]*App{}, shut: map[string]bool{},
		dirty: map[skerry.AppKey]bool{}, wake: map[skerry.AppKey]time.Time{}, stored: &definitions{map[string]skerry.Bytes{}}}
}

// enter takes an application in, new, read or changed.
func (c *catalog) enter(a *App) {
	a.revisions = revisionsOf(&a.Manifest)
	if before := c.apps[a.Key()]; before != nil {
		a.counts = before.counts
	}
	c.apps[a.Key()] = a
	c.order.Put(a.Key().String(), a)
}

// forget takes an application out.
func (c *catalog) forget(k skerry.AppKey, fx *wire.Effects) {
	if a := c.apps[k]; a != nil {
		c.stored.note(k.Namespace, &a.counts, 0)
	}
	delete(c.apps, k)
	c.order.Remove(k.String())
	delete(c.wake, k)
	delete(c.dirty, k)
	fx.Delete(prefixApp + k.String())
}

// Look has Reconcile look at an application, of which something has changed.
func (c *catalog) Look(k skerry.AppKey) { c.dirty[k] = true }

// due gives the applications to be looked at, in order of their keys, and begins anew.
func (c *catalog) due() []skerry.AppKey {
	keys := slices.SortedFunc(maps.Keys(c.dirty), func(a, b skerry.AppKey) int { return strings.Compare(a.String(), b.String()) })
	c.dirty = map[skerry.AppKey]bool{} // a cleared map keeps its size, and copying or ranging over it stays as slow
	return keys
}

// awake has applications looked at whose time has come.
func (c *catalog) awake(now time.Time) {
	for k, t := range c.wake {
		if !t.After(now) {
			delete(c.wake, k)
			c.Look(k)
		}
	}
}

// Freeze keeps delegated applications as they are while their owner decides about them.
func (c *catalog) Freeze(on bool) {
	if c.frozen = on; on {
		return
	}
	for k, a := range c.apps {
		if a.Delegated {
			c.Look(k)
		}
	}
}

// Frozen reports whether an application is kept as it is.
func (c *catalog) Frozen(k skerry.AppKey) bool {
	a := c.apps[k]
	return c.frozen && a != nil && a.Delegated
}

func (c *catalog) saveApp(a *App, fx *wire.Effects) {
	a.PerDevice = slices.ContainsFunc(a.Manifest.Spec.Services, func(s spec.ServiceSpec) bool { return s.Mode == spec.ModePerDevice })
	data := fitApp(a)
	c.count(a, len(data))
	fx.Put(prefixApp+a.Key().String(), data)
	fx.Changed = append(fx.Changed, wire.Change{App: a.Key(), Org: a.Org})
}

// count notes what the record of an application takes.
func (c *catalog) count(a *App, n int) {
	if a.Delegated {
		n = 0
	}
	c.stored.note(a.Key().Namespace, &a.counts, n)
}

// App finds an application.
func (c *catalog) App(k skerry.AppKey) *App { return c.apps[k] }

// Apps lists all applications in key order.
func (c *catalog) Apps() []*App {
	out := make([]*App, 0, len(c.apps))
	for _, a := range c.order.After("") {
		out = append(out, a)
	}
	return out
}

// SetShut says whether a child gets nothing new. What perWorker services have there stays.
func (c *catalog) SetShut(child string, on bool) {
	if c.shut[child] == on {
		return
	}
	if delete(c.shut, child); on {
		c.shut[child] = true
	} else {
		for k := range c.apps { // updates of what has its data there waited
			c.Look(k)
		}
	}
	c.lookCopies()
}

// SetTargets names the children among which perWorker services are spread, each getting one instance.
func (c *catalog) SetTargets(children []string) {
	list := slices.Clone(children)
	slices.Sort(list)
	if slices.Equal(list, c.targets) {
		return
	}
	c.targets = list
	c.lookCopies()
}

func (c *catalog) lookCopies() {
	for k, a := range c.apps {
		for i := range a.Manifest.Spec.Services {
			if a.Manifest.Spec.Services[i].Mode.HasCopies() {
				c.Look(k)
			}
		}
	}
}

// Dirty reports whether Reconcile has something to do at once.
func (c *catalog) Dirty() bool { return len(c.dirty) > 0 }

func (c *catalog) wakeAt(k skerry.AppKey, t time.Time) {
	if old, ok := c.wake[k]; !t.IsZero() && (!ok || t.Before(old)) {
		c.wake[k] = t
	}
}

func (c *catalog) usable(key skerry.AppKey) (*App, error) {
	a := c.apps[key]
	if a == nil {
		return nil, skerry.Errorf(skerry.CodeNotFound, "there is no application %s", key).WithHint("`skerry get apps` lists them")
	}
	if a.Deleting {
		return nil, skerry.Errorf(skerry.CodeConflict, "application %s is being deleted", key)
	}
	return a, nil
}

func (c *catalog) service(k skerry.ServiceKey) (*App, *spec.ServiceSpec, error) {
	a, err := c.usable(k.App)
	if err != nil {
		return nil, nil, err
	}
	s := a.Manifest.Spec.Service(k.Service)
	if s == nil {
		return nil, nil, skerry.Errorf(skerry.CodeNotFound, "application %s has no service %q", k.App, k.Service).
			WithHint("`skerry describe app %s` lists its services", k.App)
	}
	return a, s, nil
}

func (c *catalog) appEvent(fx *wire.Effects, now time.Time, a *App, service, reason, text string) {
	fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventNormal, Reason: reason, Text: text, App: a.Key(), Service: service,
		Org: a.Org})
}

func revisionsOf(m *spec.Application) map[string]string {
	out := map[string]string{}
	for i := range m.Spec.Services {
		out[m.Spec.Services[i].Name] = m.Spec.Services[i].Revision()
	}
	return out
}

func digestsOf(s *spec.ServiceSpec, all map[string]string) map[string]string {
	out := map[string]string{}
	for _, ref := range s.Images() {
		if d := all[ref]; d != "" {
			out[ref] = d
		}
	}
	return out
}

// with gives a map with one entry set, leaving alone the one that others may read.
func with[V any](m map[string]V, key string, v V) map[string]V {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]V{}
	}
	out[key] = v
	return out
}

func without[V any](m map[string]V, key string) map[string]V {
	if _, ok := m[key]; !ok {
		return m
	}
	out := maps.Clone(m)
	delete(out, key)
	return out
}

func cloneManifest(m spec.Application) spec.Application {
	m.Spec.Services = slices.Clone(m.Spec.Services)
	return m
}

func orNobody(actor string) string {
	if actor == "" {
		return "the system"
	}
	return actor
}
