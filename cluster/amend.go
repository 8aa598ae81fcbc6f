package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// While the root is away a site may be told to change what it holds of the root's applications. It borrows the application
// (apps.Borrow), as far as it is here, and is its owner until the root is back. What it has then differs from what the root
// wants: an Amendment. The root adopts it, or says why it does not; either way it says what the site is to have, and the site
// gives the application back.
//
//	held for the root --change, root away--> borrowed --root back--> frozen, Amendment told --answer--> held for the root
//	                                            ^--------------root away again--------|
type amended struct {
	App      skerry.AppKey             `json:"app"`
	Org      string                    `json:"org"`
	Base     skerry.Generation         `json:"base"`
	Seq      uint64                    `json:"seq"`
	Since    time.Time                 `json:"since"`
	Steps    []wire.AmendmentStep      `json:"steps"`
	Services map[string]*amendedBefore `json:"services"`
	Deleted  bool                      `json:"deleted,omitempty"`
}

// amendedBefore is a service as it was here before it was changed.
type amendedBefore struct {
	Share int                 `json:"share"`
	Total int                 `json:"total"` // in the whole application
	Spec  string              `json:"spec"`
	IDs   []skerry.InstanceID `json:"ids"`
}

const (
	prefixAmend = "amend/"
	// maxSteps is how many changes of one application are remembered in detail.
	maxSteps = 50
)

// target finds the application that a user's message is about; ok is false for messages about none.
func target(msg any) (k skerry.AppKey, ok bool) {
	switch m := msg.(type) {
	case apps.Apply:
		k = m.App.Key()
		if k.Namespace == "" {
			k.Namespace = spec.DefaultNamespace
		}
	case apps.Deploy:
		k = m.Key
	case apps.Scale:
		k = m.Service.App
	case apps.Restart:
		k = m.Service.App
	case apps.Undo:
		k = m.Service.App
	case apps.Pause:
		k = m.Service.App
	case apps.Resume:
		k = m.Service.App
	case apps.Delete:
		k = m.Key
	case apps.DeleteInstance:
		return k, false
	default:
		return k, false
	}
	return k, true
}

// ownApp gives an application of the site's own, or nil.
func (c *Core) ownApp(k skerry.AppKey) *apps.App {
	if a := c.Apps.App(k); a != nil && !a.Borrowed {
		return a
	}
	return nil
}

// ofRoot reports whether an application belongs to the root, and something of it is here.
func (c *Core) ofRoot(k skerry.AppKey) bool {
	if c.ownApp(k) != nil {
		return false
	}
	if c.amends[k] != nil {
		return true
	}
	for _, p := range c.byApp[k] {
		if p.Origin == "root" {
			return true
		}
	}
	return false
}

// amend changes an application that belongs to the root, which is away.
func (c *Core) amend(now time.Time, k skerry.AppKey, msg any, fx *wire.Effects) {
	if c.Up.Connected {
		fx.Err = skerry.Errorf(skerry.CodeWrongTier, "application %s belongs to the root; this site only runs it", k).
			WithHint("make the change at the root (`skerry context use`); here it can be changed while the root is away")
		return
	}
	m := c.amends[k]
	fresh := m == nil
	if fresh {
		if m = c.borrow(now, k, fx); m == nil {
			fx.Err = skerry.Errorf(skerry.CodeConflict, "this site holds nothing of application %s that it can change while the root is away", k).
				WithHint("jobs, and services that run once on every worker, are left to the root")
			return
		}
	} else if c.Apps.App(k) == nil {
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "application %s was deleted here while the root is away", k).WithHint("change that at the root when it is back")
		return
	}
	text, res, more := c.carryOut(now, k, m, msg)
	if more.Err != nil || res.Unchanged {
		if fresh {
			c.Apps.GiveBack(k, fx)
			*fx = wire.Effects{} // nothing of it was kept
		}
		fx.Result, fx.Err = res, more.Err
		return
	}
	fx.Merge(more)
	fx.Result, fx.Err = res, nil
	c.amends[k] = m
	step := wire.AmendmentStep{At: now, Author: actor(msg), Text: text}
	if m.Steps = append(m.Steps, step); len(m.Steps) > maxSteps {
		m.Steps = slices.Delete(m.Steps, 1, 2)
	}
	fx.Put(prefixAmend+k.String(), mustJSON(m))
	c.amendEvent(now, m, wire.EventWarning, "Amended", "changed at site "+c.opt.Name+" while the root is away, by "+orNobody(step.Author)+": "+text, fx)
}

func actor(msg any) string {
	switch m := msg.(type) {
	case apps.Apply:
		return m.Actor
	case apps.Scale:
		return m.Actor
	case apps.Restart:
		return m.Actor
	case apps.Undo:
		return m.Actor
	case apps.Pause:
		return m.Actor
	case apps.Resume:
		return m.Actor
	case apps.Delete:
		return m.Actor
	}
	return ""
}

func orNobody(actor string) string {
	if actor == "" {
		return "the system"
	}
	return actor
}

// amendEvent tells of an amendment here, and in its turn at the root.
func (c *Core) amendEvent(now time.Time, m *amended, t wire.EventType, reason, text string, fx *wire.Effects) {
	e := wire.Event{At: now, Type: t, Reason: reason, Text: text, App: m.App, Org: m.Org, Cluster: skerry.ClusterName(c.opt.Name)}
	fx.Events = append(fx.Events, e)
	if reason == "Amended" {
		_, _ = c.Up.Events.Append(c.codec.Marshal(e)) // one that is too large to travel stays here
	}
}

// carryOut changes a borrowed application, and says in words what it did.
func (c *Core) carryOut(now time.Time, k skerry.AppKey, m *amended, msg any) (text string, res apps.Applied, fx wire.Effects) {
	a := c.Apps.App(k)
	switch x := msg.(type) {
	case apps.Apply:
		ns := slices.IndexFunc(c.Apps.Namespaces(), func(n *apps.Namespace) bool { return n.Name == k.Namespace && n.Org != m.Org })
		switch {
		case ns >= 0:
			fx.Err = skerry.Errorf(skerry.CodeForbidden, "namespace %q belongs to another organisation at this site than at the root", k.Namespace)
		case x.Register:
			fx.Err = skerry.Errorf(skerry.CodeConflict, "application %s is deployed", k)
		case x.Expect != 0 && x.Expect != a.Gen:
			fx.Err = skerry.Errorf(skerry.CodeConflict, "application %s is not at generation %d", k, x.Expect).WithHint("get it again, repeat the change and apply")
		default:
			fx.Err = nil
			if err := x.App.Validate(); err != nil {
				fx.Err = err
			} else if err := apps.BorrowSecrets(&x.App, &a.Manifest); err != nil {
				fx.Err = err
			}
		}
		if fx.Err != nil {
			return "", res, fx
		}
		x.App.SetDefaults()
		totals := map[string]int{}
		for name, b := range m.Services {
			totals[name] = b.Total
		}
		var skipped []string
		res, skipped, fx = c.Apps.ApplyBorrowed(now, x, totals)
		if len(skipped) > 0 {
			res.Warnings = append(res.Warnings, "left to the root, because they are not here or no services: "+strings.Join(skipped, ", "))
		}
		return "a manifest was applied", res, fx
	case apps.Deploy:
		return "", apps.Applied{Key: k, Gen: a.Gen, Unchanged: true}, fx
	case apps.Scale:
		text = fmt.Sprintf("%s has %d instances here", x.Service.Service, x.Replicas)
	case apps.Restart:
		text = "restart of " + orAll(x.Service.Service)
	case apps.Undo:
		text = "back to an earlier version of " + orAll(x.Service.Service)
	case apps.Pause:
		text = "update of " + orAll(x.Service.Service) + " paused"
	case apps.Resume:
		text = "update of " + orAll(x.Service.Service) + " resumed"
	case apps.Delete:
		if x.Volumes {
			fx.Err = skerry.Errorf(skerry.CodeForbidden, "the volumes of application %s belong to the root, which decides about them", k).WithHint("delete it without its volumes")
			return "", res, fx
		}
		text = "deleted here"
	}
	fx, _ = c.Apps.Handle(now, msg)
	res, _ = fx.Result.(apps.Applied)
	if _, ok := msg.(apps.Delete); ok && fx.Err == nil {
		m.Deleted = true
		res = apps.Applied{Key: k}
	}
	return text, res, fx
}

func orAll(service string) string {
	if service == "" {
		return "all services"
	}
	return service
}

// borrow takes an application over, as far as it is here; nil: there is nothing that can be changed.
func (c *Core) borrow(now time.Time, k skerry.AppKey, fx *wire.Effects) *amended {
	m := &amended{App: k, Since: now, Services: map[string]*amendedBefore{}}
	a := &apps.App{CreatedAt: now, UpdatedAt: now, Digests: map[string]string{}, Restarts: map[string]uint64{}}
	a.Manifest = spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication, Metadata: spec.Metadata{Namespace: k.Namespace, Name: k.Name}}
	newest := map[string]*placement{}
	var held []*placement
	for _, id := range sortedIDs(c.byApp[k]) {
		p := c.places[id]
		if p.Origin != "root" || p.Group != "" || p.A.Spec.Mode != spec.ModeService || p.Removing || p.Refused || p.ended() {
			continue
		}
		held = append(held, p)
		name := p.A.Service.Service
		if q := newest[name]; q == nil || q.A.Gen < p.A.Gen {
			newest[name] = p
		}
		m.Org, m.Base = p.A.Org, max(m.Base, p.A.Gen)
		a.Restarts[name] = max(a.Restarts[name], p.A.Restart)
		maps.Copy(a.Digests, p.A.Digest)
		b := m.Services[name]
		if b == nil {
			b = &amendedBefore{}
			m.Services[name] = b
		}
		b.Share++
		b.IDs = append(b.IDs, id)
	}
	if len(held) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(newest)) {
		p, b := newest[name], m.Services[name]
		maps.Copy(a.Digests, p.A.Digest)
		s := p.A.Spec
		if s.Replicas != nil {
			b.Total = *s.Replicas
		}
		share := b.Share
		s.Replicas = &share
		b.Spec = bare(&s)
		a.Manifest.Spec.Services = append(a.Manifest.Spec.Services, s)
	}
	a.Org, a.Gen = m.Org, m.Base
	var list []*apps.Instance
	for _, p := range held {
		i := &apps.Instance{Instance: c.show(p), Holder: Self, Restart: p.A.Restart, Deadline: p.A.Deadline, Due: p.A.Due}
		i.Timeline = nil
		i.Fence = skerry.Fence{RootEpoch: i.Fence.RootEpoch} // the rest is for the site, which may give it another place
		if s := a.Manifest.Spec.Service(p.A.Service.Service); p.A.Revision == s.Revision() {
			i.Spec = s
		} else {
			spec := p.A.Spec
			i.Spec = &spec
		}
		list = append(list, i)
	}
	c.Apps.Borrow(now, a, list, fx)
	return m
}

// bare is a service's manifest without the number of its instances.
func bare(s *spec.ServiceSpec) string {
	t := *s
	t.Replicas = nil
	return string(mustJSON(t))
}

// amendment gives what the site has of an application that differs from what the root has, or nil.
func (c *Core) amendment(m *amended) *wire.Amendment {
	last := m.Steps[len(m.Steps)-1]
	out := &wire.Amendment{App: m.App, Seq: m.Seq, Base: m.Base, Author: last.Author, At: last.At, Deleted: m.Deleted}
	a := c.Apps.App(m.App)
	for _, name := range slices.Sorted(maps.Keys(m.Services)) {
		b := m.Services[name]
		w := wire.AmendedService{Name: name, Before: b.Share}
		var ids []skerry.InstanceID
		if a != nil && !a.Deleting {
			s := a.Manifest.Spec.Service(name)
			w.Replicas = *s.Replicas
			if bare(s) != b.Spec {
				w.Spec = s
			}
			for _, i := range c.Apps.Instances(skerry.ServiceKey{App: m.App, Service: name}) {
				if p := c.places[i.ID]; i.Live() && p != nil {
					w.Instances = append(w.Instances, wire.AmendedInstance{ID: i.ID, Ordinal: i.Ordinal, Revision: i.Revision, Fence: p.A.Fence})
					ids = append(ids, i.ID)
				}
			}
			slices.Sort(ids)
		}
		if w.Replicas == b.Share && w.Spec == nil && slices.Equal(ids, b.IDs) {
			continue
		}
		out.Services = append(out.Services, w)
		if w.Spec != nil {
			for _, ref := range w.Spec.Images() {
				if d := a.Digests[ref]; d != "" {
					if out.Digests == nil {
						out.Digests = map[string]string{}
					}
					out.Digests[ref] = d
				}
			}
		}
	}
	if len(out.Services) == 0 {
		return nil
	}
	return out
}

// tellAmendments tells the root, which is back, what was changed here. Until it answers nothing more is.
func (c *Core) tellAmendments(now time.Time, fx *wire.Effects) {
	c.Apps.Freeze(true)
	for _, k := range c.amendedApps() {
		m := c.amends[k]
		m.Seq = c.number(fx)
		if told := c.amendment(m); told != nil {
			fx.Put(prefixAmend+k.String(), mustJSON(m))
			if _, err := c.Up.Observed.Put(wire.AmendmentKey(k), c.codec.Marshal(told)); err == nil {
				continue
			}
			c.amendEvent(now, m, wire.EventWarning, "Conflict", "what was changed here is too large to be told to the root, and is dropped", fx)
		}
		c.giveBack(now, m, fx) // what runs is what the root wants
	}
}

func (c *Core) amendedApps() []skerry.AppKey {
	return slices.SortedFunc(maps.Keys(c.amends), func(a, b skerry.AppKey) int { return strings.Compare(a.String(), b.String()) })
}

// amendedItem takes the root's answer to an amendment.
func (c *Core) amendedItem(now time.Time, key string, value []byte, fx *wire.Effects) {
	k, _ := wire.ParseAmendedKey(key)
	m := c.amends[k]
	var answer wire.Amended
	if m == nil || c.codec.Unmarshal(value, &answer) != nil || answer.App != k || answer.Seq != m.Seq {
		return
	}
	if answer.Adopted != 0 {
		c.amendEvent(now, m, wire.EventNormal, "Adopted", fmt.Sprintf("the root adopted what was changed here, as generation %d", answer.Adopted), fx)
	} else {
		c.amendEvent(now, m, wire.EventWarning, "Conflict", "the root did not adopt what was changed here: "+answer.Why, fx)
	}
	c.giveBack(now, m, fx)
}

// giveBack makes a borrowed application the root's again, and has here what the root wants here.
func (c *Core) giveBack(now time.Time, m *amended, fx *wire.Effects) {
	delete(c.amends, m.App)
	fx.Delete(prefixAmend + m.App.String())
	c.Up.Observed.Delete(wire.AmendmentKey(m.App))
	c.Apps.GiveBack(m.App, fx)
	wanted := map[skerry.InstanceID]spec.Assignment{}
	for key, value := range c.Up.Desired.All() {
		var a spec.Assignment
		if strings.HasPrefix(key, "inst/") && c.codec.Unmarshal(value, &a) == nil && wire.AssignmentKey(a.ID) == key && a.Service.App == m.App {
			wanted[a.ID] = a
		}
	}
	for _, id := range sortedIDs(c.byApp[m.App]) {
		p := c.places[id]
		if p == nil || p.Group != "" {
			continue
		}
		a, ok := wanted[id]
		if !ok {
			p.Origin = "root"
			c.remove(now, p, fx)
			continue
		}
		p.Origin, p.A.Gen = "root", 0 // taken up below, whatever its number
		p.Extra = 0
		if p.A.Restart > a.Restart {
			p.Extra = p.A.Restart - a.Restart
		}
	}
	for _, id := range sortedIDs(wanted) {
		c.accept(now, wanted[id], "root", fx)
	}
	c.redirected(m.App)
}

// loadAmendment takes a record of the store.
func (c *Core) loadAmendment(value []byte) error {
	m := new(amended)
	if err := json.Unmarshal(value, m); err != nil {
		return err
	}
	if len(m.Steps) == 0 {
		return fmt.Errorf("an amendment without a change")
	}
	c.amends[m.App] = m
	return nil
}

// mine reports whether the site decides about an instance: its own, and those of borrowed applications.
func (c *Core) mine(p *placement) bool {
	i := c.Apps.Instance(p.A.ID)
	return i != nil && i.Holder == Self
}

func (m *amended) view() *wire.AmendmentView {
	return &wire.AmendmentView{Since: m.Since, Base: m.Base, Steps: m.Steps}
}
