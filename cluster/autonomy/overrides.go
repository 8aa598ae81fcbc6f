package autonomy

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

// While the root is away a site may be told to change what it holds of the root's applications. It takes the application over
// (apps.Delegate), as far as it is here, and is its owner until the root is back. What it has then differs from what the root
// wants: an Amendment. The root adopts it, or says why it does not; either way it says what the site is to have, and the site
// gives the application back.
//
//	held for the root --change, root away--> delegated --root back--> frozen, Amendment told --answer--> held for the root
//	                                            ^--------------root away again--------|
type override struct {
	App      skerry.AppKey        `json:"app"`
	Org      string               `json:"org"`
	Base     skerry.Generation    `json:"base"`
	Seq      uint64               `json:"seq"`
	Since    time.Time            `json:"since"`
	Steps    []wire.AmendmentStep `json:"steps"`
	Services map[string]*before   `json:"services"`
	Deleted  bool                 `json:"deleted,omitempty"`
}

// before is a service as it was here before it was changed.
type before struct {
	Share int                 `json:"share"`
	Total int                 `json:"total"` // in the whole application
	Spec  string              `json:"spec"`
	IDs   []skerry.InstanceID `json:"ids"`
}

const (
	// Prefix is that of the keys of the records.
	Prefix = "amend/"
	// maxSteps is how many changes of one application are remembered in detail.
	maxSteps = 50
)

// Deployed is an instance of the root's that the site has, and can change.
type Deployed struct {
	A     *spec.Assignment
	Shown wire.Instance
}

// Site is what overrides must know of a site.
type Site interface {
	// Deployed lists what the site has of an application of the root's and can change, by id: services that neither end nor have ended.
	Deployed(k skerry.AppKey) []Deployed
	// Token gives the fencing token of an instance that is here.
	Token(id skerry.InstanceID) (f skerry.Fence, here bool)
}

// Overrides are the applications of the root that were changed here.
type Overrides struct {
	site Site
	self string           // the site, as the holder of instances
	apps *apps.Controller // to which they are delegated
	all  map[skerry.AppKey]*override
}

// NewOverrides gives a site on which nothing was changed.
func NewOverrides(site Site, self string, controller *apps.Controller) *Overrides {
	return &Overrides{site: site, self: self, apps: controller, all: map[skerry.AppKey]*override{}}
}

// Record gives a new value of the type that a record is read into.
func Record() any { return new(override) }

// Load takes a record.
func (o *Overrides) Load(value []byte) error {
	m := new(override)
	if err := json.Unmarshal(value, m); err != nil {
		return err
	}
	if len(m.Steps) == 0 {
		return fmt.Errorf("an amendment without a change")
	}
	o.all[m.App] = m
	return nil
}

// Has reports whether an application was changed here.
func (o *Overrides) Has(k skerry.AppKey) bool { return o.all[k] != nil }

// Org is the organisation of an application that was changed here.
func (o *Overrides) Org(k skerry.AppKey) string { return o.all[k].Org }

// Apps lists the applications that were changed here.
func (o *Overrides) Apps() []skerry.AppKey {
	return slices.SortedFunc(maps.Keys(o.all), func(a, b skerry.AppKey) int { return strings.Compare(a.String(), b.String()) })
}

// Share is how many instances of a service were here before it was changed, and how many there are in the whole
// application; ok is false for a service that was not here.
func (o *Overrides) Share(k skerry.ServiceKey) (share, total int, ok bool) {
	b := o.all[k.App].Services[k.Service]
	if b == nil {
		return 0, 0, false
	}
	return b.Share, b.Total, true
}

// Show describes what was changed of an application.
func (o *Overrides) Show(k skerry.AppKey) (v *wire.AmendmentView, deleted bool) {
	m := o.all[k]
	return &wire.AmendmentView{Since: m.Since, Base: m.Base, Steps: m.Steps}, m.Deleted
}

// Target finds the application that a user's message is about; ok is false for messages about none.
func Target(msg any) (app skerry.AppKey, ok bool) {
	switch m := msg.(type) {
	case apps.Apply:
		app = m.App.Key()
		if app.Namespace == "" {
			app.Namespace = spec.DefaultNamespace
		}
	case apps.Deploy:
		app = m.Key
	case apps.Scale:
		app = m.Service.App
	case apps.Restart:
		app = m.Service.App
	case apps.Undo:
		app = m.Service.App
	case apps.Pause:
		app = m.Service.App
	case apps.Resume:
		app = m.Service.App
	case apps.Delete:
		app = m.Key
	case apps.DeleteInstance:
		return app, false
	default:
		return app, false
	}
	return app, true
}

// Change carries out what a user asks of an application of the root's, which is away. It gives the step that was added, or nil where
// nothing changed or fx has an error.
func (o *Overrides) Change(now time.Time, app skerry.AppKey, msg any, fx *wire.Effects) *wire.AmendmentStep {
	change := o.all[app]
	fresh := change == nil
	if fresh {
		if change = o.delegate(now, app, fx); change == nil {
			fx.Err = skerry.Errorf(skerry.CodeConflict, "this site holds nothing of application %s that it can change while the root is away", app).
				WithHint("jobs, and services that run once on every worker, are left to the root")
			return nil
		}
	} else if o.apps.App(app) == nil {
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "application %s was deleted here while the root is away",
			app).WithHint("change that at the root when it is back")
		return nil
	}
	text, res, more := o.execute(now, app, change, msg)
	if more.Err != nil || res.Unchanged {
		if fresh {
			o.apps.GiveBack(app, fx)
			*fx = wire.Effects{} // nothing of it was kept
		}
		fx.Result, fx.Err = res, more.Err
		return nil
	}
	fx.Merge(more)
	fx.Result, fx.Err = res, nil
	o.all[app] = change
	step := wire.AmendmentStep{At: now, Author: actor(msg), Text: text}
	if change.Steps = append(change.Steps, step); len(change.Steps) > maxSteps {
		change.Steps = slices.Delete(change.Steps, 1, 2)
	}
	fx.Put(Prefix+app.String(), encode(change))
	return &step
}

// Tell gives what the site has of an application that differs from what the root has, under a new number; nil: nothing.
func (o *Overrides) Tell(k skerry.AppKey, seq uint64, fx *wire.Effects) *wire.Amendment {
	m := o.all[k]
	m.Seq = seq
	told := o.amendment(m)
	if told != nil {
		fx.Put(Prefix+k.String(), encode(m))
	}
	return told
}

// Awaits reports whether an answer is to what was told last of an application.
func (o *Overrides) Awaits(a *wire.Amended) bool {
	m := o.all[a.App]
	return m != nil && m.Seq == a.Seq
}

// Close makes an application the root's again.
func (o *Overrides) Close(k skerry.AppKey, fx *wire.Effects) {
	delete(o.all, k)
	fx.Delete(Prefix + k.String())
	o.apps.GiveBack(k, fx)
}

// Audit reports contradictions between what was changed here and what was delegated to the site.
func (o *Overrides) Audit() (faults []string) {
	for k, m := range o.all {
		if a := o.apps.App(k); m.App != k || len(m.Steps) == 0 || a == nil && !m.Deleted || a != nil && !a.Delegated {
			const text = "%s was changed here in %d steps, is listed as %s, deleted: %v, there: %v"
			faults = append(faults, fmt.Sprintf(text, m.App, len(m.Steps), k, m.Deleted, a != nil))
		}
	}
	for _, k := range o.Unchanged() {
		faults = append(faults, fmt.Sprintf("%s is delegated, and was not changed here", k))
	}
	return faults
}

// Unchanged lists applications that are delegated to the site and were not changed here. There are some only after a crash within a commit
// that was split.
func (o *Overrides) Unchanged() (list []skerry.AppKey) {
	for _, a := range o.apps.Apps() {
		if k := a.Key(); a.Delegated && o.all[k] == nil {
			list = append(list, k)
		}
	}
	return list
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	return data
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

// execute changes a delegated application, and says in words what it did.
func (o *Overrides) execute(now time.Time, app skerry.AppKey, change *override, msg any) (text string, res apps.Applied, fx wire.Effects) {
	application := o.apps.App(app)
	switch x := msg.(type) {
	case apps.Apply:
		ns := slices.IndexFunc(o.apps.Namespaces(), func(n *apps.Namespace) bool { return n.Name == app.Namespace && n.Org != change.Org })
		switch {
		case ns >= 0:
			fx.Err = skerry.Errorf(skerry.CodeForbidden, "namespace %q belongs to another organisation at this site than at the root", app.Namespace)
		case x.Register:
			fx.Err = skerry.Errorf(skerry.CodeConflict, "application %s is deployed", app)
		case x.Expect != 0 && x.Expect != application.Gen:
			fx.Err = skerry.Errorf(skerry.CodeConflict, "application %s is not at generation %d", app,
				x.Expect).WithHint("get it again, repeat the change and apply")
		default:
			fx.Err = nil
			if err := x.App.Validate(); err != nil {
				fx.Err = err
			} else if err := apps.DelegateSecrets(&x.App, &application.Manifest); err != nil {
				fx.Err = err
			}
		}
		if fx.Err != nil {
			return "", res, fx
		}
		x.App.SetDefaults()
		totals := map[string]int{}
		for name, b := range change.Services {
			totals[name] = b.Total
		}
		var skipped []string
		res, skipped, fx = o.apps.ApplyDelegated(now, x, totals)
		if len(skipped) > 0 {
			res.Warnings = append(res.Warnings, "left to the root, because they are not here or no services: "+strings.Join(skipped, ", "))
		}
		return "a manifest was applied", res, fx
	case apps.Deploy:
		return "", apps.Applied{Key: app, Gen: application.Gen, Unchanged: true}, fx
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
			fx.Err = skerry.Errorf(skerry.CodeForbidden, "the volumes of application %s belong to the root, which decides about them",
				app).WithHint("delete it without its volumes")
			return "", res, fx
		}
		text = "deleted here"
	}
	fx, _ = o.apps.Handle(now, msg)
	res, _ = fx.Result.(apps.Applied)
	if _, ok := msg.(apps.Delete); ok && fx.Err == nil {
		change.Deleted = true
		res = apps.Applied{Key: app}
	}
	return text, res, fx
}

func orAll(service string) string {
	if service == "" {
		return "all services"
	}
	return service
}

// delegate takes an application over, as far as it is here; nil: there is nothing that can be changed.
func (o *Overrides) delegate(now time.Time, app skerry.AppKey, fx *wire.Effects) *override {
	change := &override{App: app, Since: now, Services: map[string]*before{}}
	application := &apps.App{CreatedAt: now, UpdatedAt: now, Digests: map[string]string{}, Restarts: map[string]uint64{}}
	application.Manifest = spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Namespace: app.Namespace, Name: app.Name}}
	newest := map[string]*spec.Assignment{}
	held := o.site.Deployed(app)
	for _, h := range held {
		p := h.A
		name := p.Service.Service
		if q := newest[name]; q == nil || q.Gen < p.Gen {
			newest[name] = p
		}
		change.Org, change.Base = p.Org, max(change.Base, p.Gen)
		application.Restarts[name] = max(application.Restarts[name], p.Restart)
		maps.Copy(application.Digests, p.Digest)
		b := change.Services[name]
		if b == nil {
			b = &before{}
			change.Services[name] = b
		}
		b.Share++
		b.IDs = append(b.IDs, p.ID)
	}
	if len(held) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(newest)) {
		p, b := newest[name], change.Services[name]
		maps.Copy(application.Digests, p.Digest)
		s := p.Spec
		if s.Replicas != nil {
			b.Total = *s.Replicas
		}
		share := b.Share
		s.Replicas = &share
		b.Spec = bare(&s)
		application.Manifest.Spec.Services = append(application.Manifest.Spec.Services, s)
	}
	application.Org, application.Gen = change.Org, change.Base
	var list []*apps.Instance
	for _, h := range held {
		p := h.A
		i := &apps.Instance{Instance: h.Shown, Holder: o.self, Restart: p.Restart, Deadline: p.Deadline, Due: p.Due}
		i.Timeline = nil
		i.Fence = skerry.Fence{RootEpoch: i.Fence.RootEpoch} // the rest is for the site, which may give it another place
		if s := application.Manifest.Spec.Service(p.Service.Service); p.Revision == s.Revision() {
			i.Spec = s
		} else {
			local := p.Spec
			i.Spec = &local
		}
		list = append(list, i)
	}
	o.apps.Delegate(now, application, list, fx)
	return change
}

// bare is a service's manifest without the number of its instances.
func bare(s *spec.ServiceSpec) string {
	t := *s
	t.Replicas = nil
	return string(encode(t))
}

// amendment gives what the site has of an application that differs from what the root has, or nil.
func (o *Overrides) amendment(change *override) *wire.Amendment {
	last := change.Steps[len(change.Steps)-1]
	out := &wire.Amendment{App: change.App, Seq: change.Seq, Base: change.Base, Author: last.Author, At: last.At, Deleted: change.Deleted}
	app := o.apps.App(change.App)
	for _, name := range slices.Sorted(maps.Keys(change.Services)) {
		b := change.Services[name]
		w := wire.AmendedService{Name: name, Before: b.Share}
		var ids []skerry.InstanceID
		if app != nil && !app.Deleting {
			s := app.Manifest.Spec.Service(name)
			w.Replicas = *s.Replicas
			if bare(s) != b.Spec {
				w.Spec = s
			}
			for _, i := range o.apps.Instances(skerry.ServiceKey{App: change.App, Service: name}) {
				if fence, here := o.site.Token(i.ID); i.Live() && here {
					w.Instances = append(w.Instances, wire.AmendedInstance{ID: i.ID, Ordinal: i.Ordinal, Revision: i.Revision, Fence: fence})
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
				if d := app.Digests[ref]; d != "" {
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
