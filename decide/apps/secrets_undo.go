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
// services are between. Services in a circle do not wait for each other, and neither does one for another that starts after it.
func turns(m *spec.Application, names []string) map[string][]string {
	out := map[string][]string{}
	linked := func(s *spec.ServiceSpec) (list []string) {
		for _, l := range s.Links {
			list = append(list, l.Service)
		}
		return list
	}
	behind := func(s *spec.ServiceSpec) []string {
		list := linked(s)
		for _, after := range s.StartAfter {
			list = append(list, after.Service)
		}
		return list
	}
	links, waits := reachOf(m, linked), reachOf(m, behind)
	for _, name := range names {
		for _, o := range names {
			if s := m.Spec.Service(o); o != name && links[name][o] && !waits[o][name] && s.Mode == spec.ModeService {
				out[name] = append(out[name], o)
			}
		}
		slices.Sort(out[name])
	}
	return out
}

// reachOf gives, for each service, those that it leads to, however many are between. next gives those that it names itself.
func reachOf(m *spec.Application, next func(*spec.ServiceSpec) []string) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for i := range m.Spec.Services {
		seen := map[string]bool{}
		var walk func(name string)
		walk = func(name string) {
			if s := m.Spec.Service(name); s != nil {
				for _, o := range next(s) {
					if !seen[o] {
						seen[o] = true
						walk(o)
					}
				}
			}
		}
		walk(m.Spec.Services[i].Name)
		out[m.Spec.Services[i].Name] = seen
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
