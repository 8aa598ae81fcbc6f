package apps

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// maxPast is how many earlier versions of an application are kept.
const maxPast = 10

const prefixPast = "past/"

// Past is an application as it was before a change of what its services run.
type Past struct {
	Manifest spec.Application  `json:"manifest"`
	Gen      skerry.Generation `json:"generation"`
	At       time.Time         `json:"at"` // when it was applied
	Author   string            `json:"author,omitempty"`
	Digests  map[string]string `json:"digests,omitempty"`
	// Site made it while it was alone, and it was not adopted; empty: it is an earlier version.
	Site string `json:"site,omitempty"`
	Why  string `json:"why,omitempty"` // it was not adopted
}

func (p *Past) key(k skerry.AppKey) string {
	if p.Site != "" {
		return prefixPast + k.String() + "/site/" + p.Site
	}
	return pastKey(k, p.Gen)
}

func (p *Past) revision(service string) string {
	if s := p.Manifest.Spec.Service(service); s != nil {
		return s.Revision()
	}
	return ""
}

func pastKey(k skerry.AppKey, g skerry.Generation) string {
	return fmt.Sprintf("%s%s/%d", prefixPast, k, g)
}

// history has the earlier versions of applications, and what sites were changed to that was not adopted.
type history struct {
	earlier map[skerry.AppKey][]*Past // oldest first
}

func (h *history) load(value []byte) error {
	p := new(Past)
	if err := json.Unmarshal(value, p); err != nil {
		return err
	}
	k := p.Manifest.Key()
	h.earlier[k] = append(h.earlier[k], p)
	slices.SortFunc(h.earlier[k], func(a, b *Past) int { // amendments first
		if (a.Site != "") != (b.Site != "") {
			return len(b.Site) - len(a.Site)
		}
		return int(a.Gen) - int(b.Gen)
	})
	return nil
}

// keep remembers an application before a change, if the change is one of what its services run.
func (h *history) keep(old, next *App, fx *wire.Effects) {
	if !old.Deployed || maps.Equal(old.revisions, revisionsOf(&next.Manifest)) {
		return
	}
	k := old.Key()
	p := &Past{Manifest: old.Manifest, Gen: old.Gen, At: old.UpdatedAt, Author: old.Author, Digests: old.Digests}
	h.earlier[k] = append(h.earlier[k], p)
	fx.Put(pastKey(k, p.Gen), mustJSON(p))
	for len(h.earlier[k]) > maxPast {
		n := slices.IndexFunc(h.earlier[k], func(p *Past) bool { return !h.fallback(next, p) })
		n = max(n, 0)
		fx.Delete(h.earlier[k][n].key(k))
		h.earlier[k] = slices.Delete(slices.Clone(h.earlier[k]), n, n+1)
	}
}

// fallback reports whether a service would be put back to a version if the one that is being rolled out failed.
func (h *history) fallback(a *App, p *Past) bool {
	for name, r := range a.Rollouts {
		if r.EndedAt.IsZero() && r.From != "" && h.find(a.Key(), func(p *Past) bool { return p.revision(name) == r.From }) == p {
			return true
		}
	}
	return false
}

func (h *history) drop(k skerry.AppKey, fx *wire.Effects) {
	for _, p := range h.earlier[k] {
		fx.Delete(p.key(k))
	}
	delete(h.earlier, k)
}

// find gives the newest of an application's earlier versions that is accepted, or nil.
func (h *history) find(k skerry.AppKey, accept func(*Past) bool) *Past {
	for _, p := range slices.Backward(h.earlier[k]) {
		if accept(p) {
			return p
		}
	}
	return nil
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

// withServices gives an application as it is, but with one service, or all if none is named, as they were. How many instances
// there are, and how they are replaced, stays as it is now.
func (a *App) withServices(now time.Time, p *Past, service string) *App {
	next := *a
	next.UpdatedAt = now
	next.Digests = maps.Clone(a.Digests)
	if next.Digests == nil {
		next.Digests = map[string]string{}
	}
	if service == "" {
		next.Manifest = cloneManifest(p.Manifest)
	} else {
		next.Manifest = cloneManifest(a.Manifest)
		*next.Manifest.Spec.Service(service) = *p.Manifest.Spec.Service(service)
	}
	for i := range next.Manifest.Spec.Services {
		s := &next.Manifest.Spec.Services[i]
		if service != "" && s.Name != service {
			continue
		}
		if was := a.Manifest.Spec.Service(s.Name); was != nil && was.Mode == s.Mode {
			s.Replicas, s.Update = was.Replicas, was.Update
			keepScale(&next.Manifest, s, was.Scale)
		}
		maps.Copy(next.Digests, digestsOf(s, p.Digests))
	}
	return &next
}

// keepScale has the number of a service's instances follow their load as it does now, though the rest of it is put back: it
// would fall to limits of long ago otherwise. A version of which the target makes no sense, such as one without an ingress,
// brings its own back.
func keepScale(m *spec.Application, s *spec.ServiceSpec, scale *spec.ScaleSpec) {
	own := s.Scale
	s.Scale = scale
	if trial := cloneManifest(*m); scale != nil && trial.Validate() != nil {
		s.Scale = own
	}
}

// replace puts a changed application, under the next generation, in the place of one.
func (c *Controller) replace(now time.Time, a, next *App, fx *wire.Effects) error {
	if err := c.checkQuota(a.Org, &next.Manifest); err != nil {
		return err
	}
	if !a.Borrowed {
		if err := c.secrets.have(&next.Manifest); err != nil {
			return err
		}
	}
	next.Gen++
	next.revisions = revisionsOf(&next.Manifest)
	if err := c.address(now, next, fx); err != nil {
		return err
	}
	*a = *next
	c.noteExports(a)
	return nil
}

// undo puts a service, or all services of an application, back to an earlier version: the last one that differs, or that of
// a generation, or the amendment of a site that was not adopted.
func (c *Controller) undo(now time.Time, k skerry.ServiceKey, to skerry.Generation, site, actor string) (Applied, wire.Effects, error) {
	var fx wire.Effects
	a, err := c.usable(k.App)
	if err == nil && k.Service != "" {
		_, _, err = c.service(k)
	}
	if err != nil {
		return Applied{}, fx, err
	}
	differs := func(p *Past) bool {
		if k.Service == "" {
			return !maps.Equal(revisionsOf(&p.Manifest), a.revisions)
		}
		rev := p.revision(k.Service)
		f := a.Refused[k.Service]
		return rev != "" && rev != a.revisions[k.Service] && (f == nil || f.Revision != rev)
	}
	if to != 0 {
		differs = func(p *Past) bool { return p.Gen == to && (k.Service == "" || p.revision(k.Service) != "") }
	}
	p := c.history.find(k.App, func(p *Past) bool { return p.Site == site && (site != "" || differs(p)) })
	if p == nil {
		what := "no earlier version"
		if site != "" {
			what = "no amendment of site " + site
		}
		if to != 0 {
			what = "no generation " + itoa(int(to))
		}
		return Applied{}, fx, skerry.Errorf(skerry.CodeNotFound, "%s of %s is kept", what, k.App).WithHint("`skerry rollout history %s` lists those that are", k.App)
	}
	old := *a
	next := a.withServices(now, p, k.Service)
	next.Author = actor
	if site != "" { // it may be about no more than how many there are
		for i := range next.Manifest.Spec.Services {
			s := &next.Manifest.Spec.Services[i]
			if was := p.Manifest.Spec.Service(s.Name); was != nil && was.Mode == s.Mode && (k.Service == "" || k.Service == s.Name) {
				s.Replicas = was.Replicas
			}
		}
	}
	revs := revisionsOf(&next.Manifest)
	if maps.Equal(revs, a.revisions) && string(mustJSON(next.Manifest)) == string(mustJSON(a.Manifest)) {
		return Applied{Key: k.App, Gen: a.Gen, Unchanged: true}, fx, nil
	}
	if err := c.replace(now, a, next, &fx); err != nil {
		return Applied{}, wire.Effects{}, err
	}
	c.history.keep(&old, a, &fx)
	text := "back to what generation " + itoa(int(p.Gen)) + " was, by " + orNobody(actor)
	if site != "" {
		text = "what site " + site + " was changed to while it was alone is brought back by " + orNobody(actor)
		c.history.dropAmendment(k.App, site, &fx)
	}
	for name, rev := range revs {
		if old.revisions[name] != rev {
			a.Refused, a.Paused = without(a.Refused, name), without(a.Paused, name)
			a.setRollout(name, &Rollout{Revision: rev, Gen: a.Gen, StartedAt: now, Wave: 1, Limit: everything, Back: true})
		}
	}
	c.look(k.App)
	c.saveApp(a, &fx)
	c.appEvent(&fx, now, a, k.Service, "Undone", text)
	return Applied{Key: k.App, Gen: a.Gen}, fx, nil
}

// pause keeps rollouts of a service, or of all, where they are; resume lets them go on, and has a version tried again that
// was taken back.
func (c *Controller) pause(now time.Time, k skerry.ServiceKey, on bool, actor string) (Applied, wire.Effects, error) {
	var fx wire.Effects
	a, err := c.usable(k.App)
	if err == nil && k.Service != "" {
		_, _, err = c.service(k)
	}
	if err != nil {
		return Applied{}, fx, err
	}
	old := *a
	next := *a
	next.Manifest, next.Digests, next.UpdatedAt = cloneManifest(a.Manifest), maps.Clone(a.Digests), now
	again := []string{}
	for i := range next.Manifest.Spec.Services {
		s := &next.Manifest.Spec.Services[i]
		if k.Service != "" && k.Service != s.Name || s.Mode != spec.ModeService {
			continue
		}
		if on {
			next.Paused = with(next.Paused, s.Name, orNobody(actor))
			continue
		}
		next.Paused = without(next.Paused, s.Name)
		if f := next.Refused[s.Name]; f != nil {
			replicas, update, scale := s.Replicas, s.Update, s.Scale
			*s = f.Spec
			s.Replicas, s.Update = replicas, update
			keepScale(&next.Manifest, s, scale)
			if next.Digests == nil {
				next.Digests = map[string]string{}
			}
			maps.Copy(next.Digests, f.Digests)
			next.Refused = without(next.Refused, s.Name)
			again = append(again, s.Name)
		}
	}
	if len(again) == 0 && maps.Equal(next.Paused, a.Paused) {
		return Applied{Key: k.App, Gen: a.Gen, Unchanged: true}, fx, nil
	}
	if len(again) == 0 {
		*a = next
	} else if err := c.replace(now, a, &next, &fx); err != nil {
		return Applied{}, wire.Effects{}, err
	} else {
		c.history.keep(&old, a, &fx)
	}
	for name := range a.Rollouts { // the time of the pause does not count as that of the wave
		if r := a.Rollouts[name]; !on && (k.Service == "" || k.Service == name) && !r.HealthyAt.IsZero() {
			r.HealthyAt = now
		}
	}
	c.look(k.App)
	c.saveApp(a, &fx)
	verb := map[bool]string{true: "RolloutPaused", false: "RolloutResumed"}[on]
	c.appEvent(&fx, now, a, k.Service, verb, "by "+orNobody(actor))
	return Applied{Key: k.App, Gen: a.Gen}, fx, nil
}

// keepRefused leaves services alone that a manifest would put back to a version that was taken back. It gives the warnings.
func keepRefused(old, next *App) (warnings []string) {
	for name, f := range old.Refused {
		s, good := next.Manifest.Spec.Service(name), old.Manifest.Spec.Service(name)
		if s == nil || good == nil || s.Revision() != f.Revision || !maps.Equal(digestsOf(s, next.Digests), f.Digests) {
			continue
		}
		replicas, update, scale := s.Replicas, s.Update, s.Scale
		*s = *good
		s.Replicas, s.Update = replicas, update
		keepScale(&next.Manifest, s, scale)
		next.Refused = with(next.Refused, name, f)
		next.Digests = maps.Clone(next.Digests)
		if next.Digests == nil {
			next.Digests = map[string]string{}
		}
		for _, ref := range f.Spec.Images() {
			delete(next.Digests, ref)
		}
		for i := range next.Manifest.Spec.Services {
			maps.Copy(next.Digests, digestsOf(&next.Manifest.Spec.Services[i], old.Digests))
		}
		warnings = append(warnings, name+": this version was taken back and is not tried again: "+f.Reason)
	}
	slices.Sort(warnings)
	return warnings
}

// view lists the versions that are kept, the newest first; the first is the present one.
func (h *history) view(a *App) []view.RevisionView {
	viewOf := func(m *spec.Application, gen skerry.Generation, at time.Time, author string) view.RevisionView {
		v := view.RevisionView{Gen: gen, At: at, Author: author}
		for i := range m.Spec.Services {
			s := &m.Spec.Services[i]
			v.Services = append(v.Services, view.ServiceRevision{Name: s.Name, Revision: s.Revision(), Image: s.Image})
		}
		return v
	}
	out := []view.RevisionView{viewOf(&a.Manifest, a.Gen, a.UpdatedAt, a.Author)}
	for _, p := range slices.Backward(h.earlier[a.Key()]) {
		v := viewOf(&p.Manifest, p.Gen, p.At, p.Author)
		v.Site, v.Why = p.Site, p.Why
		out = append(out, v)
	}
	return out
}

// keepAmendment keeps what a site was changed to, in place of what it was before. There is one for each site.
func (h *history) keepAmendment(p *Past, fx *wire.Effects) {
	k := p.Manifest.Key()
	h.dropAmendment(k, p.Site, fx)
	h.earlier[k] = append([]*Past{p}, h.earlier[k]...)
	fx.Put(p.key(k), mustJSON(p))
}

func (h *history) dropAmendment(k skerry.AppKey, site string, fx *wire.Effects) {
	h.earlier[k] = slices.DeleteFunc(h.earlier[k], func(p *Past) bool {
		if p.Site == site {
			fx.Delete(p.key(k))
		}
		return p.Site == site
	})
}
