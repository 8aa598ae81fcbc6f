package apps

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// UndoSecret has an earlier version of a secret used again: the one before the one in use if To is 0.
type UndoSecret struct {
	Namespace, Name string
	To              int
	Actor           string
}

// used is the version that services get which name none: the newest, unless somebody went back.
func (x *secret) used() *SecretVersion {
	for i := range x.Versions {
		if v := &x.Versions[i]; v.Number == x.Use {
			return v
		}
	}
	return x.newest()
}

func (ss *secrets) undo(now time.Time, m UndoSecret) (any, wire.Effects, error) {
	var fx wire.Effects
	k := secretKey{m.Namespace, m.Name}
	x := ss.byName[k]
	if x == nil {
		return nil, fx, noSecret(k)
	}
	var to *SecretVersion
	for i := range x.Versions {
		if v := &x.Versions[i]; v.Number == m.To || m.To == 0 && v.Number < x.used().Number {
			to = v
		}
	}
	switch {
	case to == nil && m.To == 0:
		return nil, fx, skerry.Errorf(skerry.CodeNotFound, "no version of secret %s before %d is kept", m.Name, x.used().Number).
			WithHint("`skerry secret rotate %s` makes a new one", m.Name)
	case to == nil:
		return nil, fx, skerry.Errorf(skerry.CodeNotFound, "version %d of secret %s is not kept", m.To, m.Name).
			WithHint("`skerry secret ls %s -o yaml` lists those that are", m.Name)
	case to.Number == x.used().Number:
		return ss.view(x), fx, nil
	}
	next := *x
	if next.Use = to.Number; to.Number == x.newest().Number {
		next.Use = 0
	}
	ss.keep(now, k, &next, m.Actor, true, &fx)
	return ss.view(&next), fx, nil
}

// turns gives, of services that are to get another version of a secret together, those that each waits for: what it links to, however many
// services are between. Services in a circle do not wait for each other.
func turns(m *spec.Application, names []string) map[string][]string {
	out := map[string][]string{}
	reach := map[string]map[string]bool{}
	for i := range m.Spec.Services {
		from := m.Spec.Services[i].Name
		seen := map[string]bool{}
		var walk func(name string)
		walk = func(name string) {
			if s := m.Spec.Service(name); s != nil {
				for _, l := range s.Links {
					if !seen[l.Service] {
						seen[l.Service] = true
						walk(l.Service)
					}
				}
			}
		}
		walk(from)
		reach[from] = seen
	}
	for _, name := range names {
		for _, o := range names {
			if s := m.Spec.Service(o); o != name && reach[name][o] && !reach[o][name] && s.Mode == spec.ModeService {
				out[name] = append(out[name], o)
			}
		}
		slices.Sort(out[name])
	}
	return out
}

// waitsTurn says which service must have a rotated secret before another gets it, or "".
func (a *App) waitsTurn(service string) string {
	for _, name := range a.Turns[service] {
		s, r := a.Manifest.Spec.Service(name), a.Rollouts[name]
		switch {
		case s == nil || a.Manifest.Spec.Service(service) == nil || *s.Replicas == 0:
		case a.Refused[name] != nil:
			return view.WaitsForRefused(name)
		case r == nil || r.Revision != a.revisions[name] || r.EndedAt.IsZero():
			return "service " + name + " goes first"
		}
	}
	return ""
}
