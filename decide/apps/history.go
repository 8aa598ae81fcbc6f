package apps

import (
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

	counts skerry.Bytes // of what is stored; see definitions
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
	stored  *definitions
	full    func(namespace string) bool // there is no more room for definitions
}

func (h *history) load(value []byte) error {
	return read(value, func(p *Past) {
		k := p.Manifest.Key()
		h.stored.note(k.Namespace, &p.counts, len(value))
		h.earlier[k] = append(h.earlier[k], p)
		slices.SortFunc(h.earlier[k], func(a, b *Past) int { // amendments first
			if (a.Site != "") != (b.Site != "") {
				return len(b.Site) - len(a.Site)
			}
			return int(a.Gen) - int(b.Gen)
		})
	})
}

// put writes a version.
func (h *history) put(k skerry.AppKey, p *Past, fx *wire.Effects) {
	h.stored.put(fx, p.key(k), k.Namespace, &p.counts, mustJSON(p))
}

func (h *history) remove(k skerry.AppKey, p *Past, fx *wire.Effects) {
	h.stored.remove(fx, p.key(k), k.Namespace, &p.counts)
}

// keep remembers an application before a change, if the change is one of what its services run. Where its organisation has no room for
// more definitions, no more than one earlier version stays.
func (h *history) keep(old, next *App, fx *wire.Effects) {
	if !old.Deployed || maps.Equal(old.revisions, revisionsOf(&next.Manifest)) {
		return
	}
	k := old.Key()
	p := &Past{Manifest: old.Manifest, Gen: old.Gen, At: old.UpdatedAt, Author: old.Author, Digests: old.Digests}
	h.earlier[k] = append(h.earlier[k], p)
	h.put(k, p, fx)
	for len(h.earlier[k]) > maxPast || len(h.earlier[k]) > 1 && h.full(k.Namespace) {
		n := max(0, slices.IndexFunc(h.earlier[k], func(p *Past) bool { return !h.fallback(next, p) }))
		h.remove(k, h.earlier[k][n], fx)
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
		h.remove(k, p, fx)
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
	viewOf := func(m *spec.Application, revisions map[string]string, gen skerry.Generation, at time.Time, author string) view.RevisionView {
		v := view.RevisionView{Gen: gen, At: at, Author: author}
		for i := range m.Spec.Services {
			s := &m.Spec.Services[i]
			v.Services = append(v.Services, view.ServiceRevision{Name: s.Name, Revision: revisions[s.Name], Image: s.Image})
		}
		return v
	}
	out := []view.RevisionView{viewOf(&a.Manifest, a.revisions, a.Gen, a.UpdatedAt, a.Author)}
	for _, p := range slices.Backward(h.earlier[a.Key()]) {
		v := viewOf(&p.Manifest, revisionsOf(&p.Manifest), p.Gen, p.At, p.Author)
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
	h.put(k, p, fx)
}

func (h *history) dropAmendment(k skerry.AppKey, site string, fx *wire.Effects) {
	h.earlier[k] = slices.DeleteFunc(h.earlier[k], func(p *Past) bool {
		if p.Site == site {
			h.remove(k, p, fx)
		}
		return p.Site == site
	})
}
