package apps

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// An application of the tier above is delegated to a tier, as far as it holds it, to be changed while the one above is away. It
// keeps its own share: the replicas of a delegated service are those that are here. GiveBack forgets it; nothing that runs is
// touched by either.

// Delegate takes up an application with the instances that are here.
func (e *editor) Delegate(now time.Time, app *App, held []*Instance, fx *wire.Effects) {
	app.Delegated, app.Deployed = true, true
	e.addApp(app)
	e.saveApp(app, fx)
	for _, i := range held {
		i.Spec = app.Manifest.Spec.Service(i.Service.Service)
		e.addInstance(i)
		e.saveInstance(i, fx)
	}
	for i := range app.Manifest.Spec.Services { // what runs is no new version
		s := &app.Manifest.Spec.Services[i]
		app.setRollout(s.Name, &Rollout{Revision: app.revisions[s.Name], Gen: app.Gen, StartedAt: now, EndedAt: now, Wave: 1,
			Limit: everything, Begun: true})
	}
	e.Look(app.Key())
}

// GiveBack forgets a delegated application and its instances.
func (e *editor) GiveBack(k skerry.AppKey, fx *wire.Effects) {
	for _, i := range e.InstancesOf(k) {
		e.dropInstance(i, fx)
	}
	for _, claim := range e.claimed[k] {
		e.dropClaim(claim, fx)
	}
	e.history.drop(k, fx)
	e.forget(k, fx)
	fx.Changed = append(fx.Changed, wire.Change{App: k})
}

// ApplyDelegated changes the services of a delegated application to what a manifest says, which was validated and has its
// defaults set. totals are the replicas of each service in the whole application: the share here changes by as much as the
// manifest differs from them. Services that are not here are left to the owner; skipped names them.
func (e *editor) ApplyDelegated(now time.Time, m Apply, totals map[string]int) (res Applied, skipped []string, fx wire.Effects) {
	k := m.App.Key()
	old := e.apps[k]
	next := *old
	m.App = cloneManifest(m.App)
	m.App.Spec.NeedAliases() // by all of its services, not by those alone that are here
	next.Manifest, next.Digests = cloneManifest(old.Manifest), maps.Clone(old.Digests)
	if next.Digests == nil {
		next.Digests = map[string]string{}
	}
	for i := range next.Manifest.Spec.Services {
		s := &next.Manifest.Spec.Services[i]
		share, want := *s.Replicas, 0
		if asked := m.App.Spec.Service(s.Name); asked != nil && asked.Mode == spec.ModeService {
			want = max(0, share+*asked.Replicas-totals[s.Name])
			was := *s
			*s = *asked
			pins, _ := pin(&spec.Application{Spec: spec.ApplicationSpec{Services: next.Manifest.Spec.Services[i : i+1]}}, digestsOf(asked, m.Digests),
				&App{Manifest: spec.Application{Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{was}}}, Digests: old.Digests, Refused: old.Refused})
			maps.Copy(next.Digests, digestsOf(asked, pins))
		}
		s.Replicas = &want
	}
	for i := range m.App.Spec.Services {
		if s := &m.App.Spec.Services[i]; next.Manifest.Spec.Service(s.Name) == nil {
			skipped = append(skipped, s.Name)
		}
	}
	res = Applied{Key: k, Gen: old.Gen, Unchanged: true}
	if string(mustJSON(next.Manifest)) == string(mustJSON(old.Manifest)) && maps.Equal(next.Digests, old.Digests) {
		return res, skipped, fx
	}
	if fx.Err = checkSize(&next); fx.Err != nil {
		return res, skipped, fx
	}
	next.Gen++
	next.UpdatedAt, next.Author = now, m.Actor
	e.addApp(&next)
	e.history.keep(old, &next, &fx)
	e.Look(k)
	e.saveApp(&next, &fx)
	return Applied{Key: k, Gen: next.Gen}, skipped, fx
}

// merged gives an application as an amendment of a site would have it. had tells how many instances of a service the site has.
func (e *editor) merged(a *App, m *wire.Amendment, had func(w *wire.AmendedService) int) (merged *App, err error) {
	next := *a
	next.Manifest, next.Digests = cloneManifest(a.Manifest), maps.Clone(a.Digests)
	if next.Digests == nil {
		next.Digests = map[string]string{}
	}
	seen := map[string]bool{}
	for i := range m.Services {
		w := &m.Services[i]
		if seen[w.Name] {
			return nil, skerry.Errorf(skerry.CodeInvalid, "service %q is told of twice", w.Name)
		}
		seen[w.Name] = true
		if w.Replicas == 0 && had(w) == 0 {
			continue // told again
		}
		s := next.Manifest.Spec.Service(w.Name)
		if s == nil || s.Mode != spec.ModeService || w.Replicas < 0 {
			return nil, skerry.Errorf(skerry.CodeConflict, "there is no service %q any more, or it is of another kind", w.Name)
		}
		total := max(0, *s.Replicas+w.Replicas-had(w))
		if w.Spec != nil {
			var spec spec.ServiceSpec
			if err := json.Unmarshal(mustJSON(w.Spec), &spec); err != nil {
				return nil, err
			}
			if spec.Name != w.Name {
				return nil, skerry.Errorf(skerry.CodeInvalid, "service %q is called %q there", w.Name, spec.Name)
			}
			*s = spec
			if s.Pinned != nil { // else its site does not know of pins
				s.Pinned = pinsOf(s, m.Digests)
			}
			maps.Copy(next.Digests, digestsOf(s, m.Digests))
		}
		s.Replicas = &total
	}
	next.Manifest.Spec.NeedAliases()
	trial := cloneManifest(next.Manifest)
	if err := trial.Validate(); err != nil {
		return nil, err
	}
	next.Manifest.SetDefaults()
	if slices.ContainsFunc(m.Services, func(w wire.AmendedService) bool { return w.Spec != nil }) {
		err = checkSize(&next)
	}
	return &next, err
}

// Adopt makes an amendment of a site, on which its generation is based, the application's next generation. mint makes the
// fencing token of an instance that the site has started; the instances are given. A service that runs elsewhere, too, is not
// changed beyond its number of instances, unless all says so.
func (e *editor) Adopt(now time.Time, site string, m *wire.Amendment, all bool, mint func(fx *wire.Effects) skerry.Fence, fx *wire.Effects) (started, ended []*Instance, err error) {
	a, err := e.usable(m.App)
	if err != nil {
		return nil, nil, err
	}
	if a.Gen != m.Base && !followsLoad(a, m) {
		return nil, nil, skerry.Errorf(skerry.CodeConflict, "it is based on generation %d, and generation %d was applied meanwhile", m.Base, a.Gen)
	}
	bound := func(service string) (out []*Instance) {
		for _, i := range e.Instances(skerry.ServiceKey{App: m.App, Service: service}) {
			if i.Live() && (i.Holder == site || i.Left != nil && i.Left.Holder == site) {
				out = append(out, i)
			}
		}
		return out
	}
	held := map[string][]*Instance{} // before anything changes
	for i := range m.Services {
		if name := m.Services[i].Name; held[name] == nil {
			if held[name] = bound(name); len(held[name]) == 0 && m.Services[i].Replicas != 0 {
				return nil, nil, skerry.Errorf(skerry.CodeForbidden, "the site holds nothing of service %q", name)
			}
		}
	}
	for i := range m.Services {
		w := &m.Services[i]
		if w.Spec != nil && len(held[w.Name]) > 0 && !all && slices.ContainsFunc(e.Instances(skerry.ServiceKey{App: m.App, Service: w.Name}), func(i *Instance) bool {
			return i.Live() && i.Holder != "" && i.Holder != site && (i.Left == nil || i.Left.Holder != site)
		}) {
			return nil, nil, skerry.Errorf(skerry.CodeForbidden, "service %q runs at other sites, too, and a site does not change it there", w.Name)
		}
	}
	if name := outgrown(a, m, held); name != "" && strings.HasPrefix(m.Author, LoadActor) {
		return nil, nil, skerry.Errorf(skerry.CodeConflict, "service %q does not follow its load any more, and the site had it do so", name)
	}
	// By the books, not by what the site says that it had: the same amendment may come twice. But it counts those of which it has not
	// heard that they are to end.
	next, err := e.merged(a, m, func(w *wire.AmendedService) int {
		n := len(held[w.Name])
		for _, i := range e.Instances(skerry.ServiceKey{App: m.App, Service: w.Name}) {
			if i.Stopping && i.Holder == site && slices.ContainsFunc(w.Instances, func(x wire.AmendedInstance) bool { return x.ID == i.ID }) {
				n++
			}
		}
		return n
	})
	if err != nil {
		return nil, nil, err
	}
	if more := beyondAll(a, next, m); len(more) > 0 {
		return nil, nil, &WaitsError{Why: "it changes " + strings.Join(more, "; ")}
	}
	old := *a
	next.UpdatedAt, next.Author = now, m.Author
	fresh := string(mustJSON(next.Manifest)) != string(mustJSON(a.Manifest)) || !maps.Equal(next.Digests, a.Digests)
	if fresh {
		var made wire.Effects
		if err := e.replace(now, a, next, &made); err != nil {
			return nil, nil, err
		}
		fx.Merge(made)
		e.history.keep(&old, a, fx)
	}
	for n := range m.Services {
		w := &m.Services[n]
		s := a.Manifest.Spec.Service(w.Name)
		here, told := map[skerry.InstanceID]bool{}, 0
		for _, x := range w.Instances {
			here[x.ID] = true
		}
		for _, x := range w.Instances {
			if told++; e.inst[x.ID] != nil || told > 2*w.Replicas+2 || x.Revision != a.revisions[w.Name] && x.Revision != old.revisions[w.Name] || !validID(x.ID, w.Name) {
				continue
			}
			held := x.Fence
			i := &Instance{Instance: wire.Instance{ID: x.ID, Service: skerry.ServiceKey{App: m.App, Service: w.Name}, Org: a.Org, Ordinal: e.adoptOrdinal(site, &x, w.Name, a, here), Gen: a.Gen, Revision: x.Revision,
				State: skerry.ClusterScheduled, CreatedAt: now, Cluster: skerry.ClusterName(site), Fence: mint(fx)}, Holder: site, PriorFence: &held, Restart: a.Restarts[w.Name], Spec: s,
				Deadline: now.Add(s.ConvergenceTime())}
			if x.Revision != a.revisions[w.Name] {
				i.Spec = old.Manifest.Spec.Service(w.Name)
			}
			i.Conditions = skerry.SetCondition(nil, now, skerry.Ready, false, "its site has not told of it yet")
			i.step(now, "started by "+site+" while it was alone")
			e.addInstance(i)
			e.saveInstance(i, fx)
			started = append(started, i)
		}
		for _, i := range held[w.Name] {
			if i.Holder == site && !here[i.ID] {
				ended = append(ended, i)
				i.Reason = "ended by " + site + " while it was alone"
				e.end(now, i, fx)
			}
		}
	}
	e.Look(m.App)
	if !fresh && len(started)+len(ended) == 0 && !m.Deleted {
		return started, ended, nil
	}
	e.saveApp(a, fx)
	e.appEvent(fx, now, a, "", "Adopted", "generation "+itoa(int(a.Gen))+" is what site "+site+" was changed to while it was alone, by "+orNobody(m.Author))
	if m.Deleted && !slices.ContainsFunc(a.Manifest.Spec.Services, func(s spec.ServiceSpec) bool {
		return s.Mode != spec.ModeService || *s.Replicas > 0
	}) {
		_, more, _ := e.delete(now, Delete{Key: m.App, Actor: m.Author})
		fx.Merge(more)
	}
	return started, ended, nil
}

// WaitsError says why a person must decide about an amendment.
type WaitsError struct{ Why string }

func (e *WaitsError) Error() string {
	return "a site does not decide that by itself, and a person must: " + e.Why
}

// beyondAll says, by service, what of an amendment a site may not decide.
func beyondAll(a, next *App, m *wire.Amendment) (out []string) {
	for i := range m.Services {
		was, is := a.Manifest.Spec.Service(m.Services[i].Name), next.Manifest.Spec.Service(m.Services[i].Name)
		if m.Services[i].Spec == nil || was == nil || is == nil {
			continue
		}
		if fields := beyond(was, is); len(fields) > 0 {
			out = append(out, "of service "+was.Name+" "+strings.Join(fields, ", "))
		}
	}
	return out
}

// followsLoad reports whether an amendment is about nothing but how many instances there are of services that follow their
// load. Every such change, by whoever decided it, is a generation: those of several sites, and of the owner, go together as
// long as it is the same versions that they count.
func followsLoad(a *App, m *wire.Amendment) bool {
	return !m.Deleted && m.Base < a.Gen && len(m.Services) > 0 && !slices.ContainsFunc(m.Services, func(w wire.AmendedService) bool {
		s := a.Manifest.Spec.Service(w.Name)
		return w.Spec != nil || s == nil || s.Scale == nil || slices.ContainsFunc(w.Instances, func(i wire.AmendedInstance) bool { return i.Revision != a.revisions[w.Name] })
	})
}

// outgrown names a service that follows its load no more, whose site has instances of a version that does and counts those; empty: none.
func outgrown(a *App, m *wire.Amendment, held map[string][]*Instance) string {
	for _, w := range m.Services {
		s := a.Manifest.Spec.Service(w.Name)
		scaled := func(i *Instance) bool { return i.Spec.Scale != nil }
		if w.Spec == nil && s != nil && s.Scale == nil && slices.ContainsFunc(held[w.Name], scaled) {
			return w.Name
		}
	}
	return ""
}

// validID reports whether an id looks like one that a cluster mints for a service.
func validID(id skerry.InstanceID, service string) bool {
	rest, ok := strings.CutPrefix(string(id), service+"-c")
	if !ok || len(rest) != 8 {
		return false
	}
	for _, r := range rest {
		if (r < 'a' || r > 'z') && (r < '2' || r > '7') {
			return false
		}
	}
	return true
}

// KeepAmendment keeps an amendment that was not adopted, for Undo. There is one for each site.
func (e *editor) KeepAmendment(now time.Time, site string, m *wire.Amendment, refusal error, fx *wire.Effects) {
	a := e.apps[m.App]
	if a == nil {
		return
	}
	reason, why := "Conflict", skerry.AsError(refusal).Message
	if w, ok := errors.AsType[*WaitsError](refusal); ok {
		reason, why = "AmendmentWaits", w.Error()
	}
	fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: reason, App: m.App, Org: a.Org, Cluster: skerry.ClusterName(site),
		Text: "what site " + site + " was changed to while it was alone, by " + orNobody(m.Author) + ", is not adopted: " + why})
	next, err := e.merged(a, m, func(w *wire.AmendedService) int { return w.Before })
	if err != nil {
		return // it fits what there is no longer at all
	}
	e.history.keepAmendment(&Past{Manifest: next.Manifest, Gen: m.Base, At: m.At, Author: m.Author, Digests: next.Digests,
		Site: site, Why: why}, fx)
	fx.Events[len(fx.Events)-1].Text += "; `skerry rollout undo " + m.App.Name + " --amendment " + site + "` adopts it"
	fx.Changed = append(fx.Changed, wire.Change{App: m.App})
}
