package apps

import (
	"maps"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// What puts an application back to an earlier version, or goes on with one that was taken back.

// replace puts a changed application, under the next generation, in the place of one.
func (e *editor) replace(now time.Time, a, next *App, fx *wire.Effects) error {
	if err := e.tenants.checkQuota(a.Org, &next.Manifest); err != nil {
		return err
	}
	if !a.Delegated {
		if err := e.secrets.have(&next.Manifest); err != nil {
			return err
		}
	}
	next.Manifest.Spec.NeedAliases() // what comes from another version, or from a site, may be of a time without them
	next.Gen++
	next.revisions = revisionsOf(&next.Manifest)
	if err := e.networks.address(now, next, fx); err != nil {
		return err
	}
	*a = *next
	e.networks.noteExports(a)
	return nil
}

// usableWith gives an application that can be changed, and has the service of the key, if that names one.
func (e *editor) usableWith(k skerry.ServiceKey) (*App, error) {
	a, err := e.usable(k.App)
	if err == nil && k.Service != "" {
		_, _, err = e.service(k)
	}
	return a, err
}

// undo puts a service, or all services of an application, back to an earlier version: the last one that differs, or that of
// a generation, or the amendment of a site that was not adopted.
func (e *editor) undo(now time.Time, k skerry.ServiceKey, to skerry.Generation, site, actor string) (Applied, wire.Effects, error) {
	var fx wire.Effects
	a, err := e.usableWith(k)
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
	p := e.history.find(k.App, func(p *Past) bool { return p.Site == site && (site != "" || differs(p)) })
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
	if err := fits(a, next); k.Service != "" && err != nil {
		return Applied{}, fx, skerry.Errorf(skerry.CodeConflict,
			"service %s as it was in generation %d does not fit the other services of today: %w", k, p.Gen, err).WithHint("put back the whole application, `skerry rollout undo %s`, or apply a manifest", k.App.Name)
	}
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
	if err := e.replace(now, a, next, &fx); err != nil {
		return Applied{}, wire.Effects{}, err
	}
	e.history.keep(&old, a, &fx)
	text := "back to what generation " + itoa(int(p.Gen)) + " was, by " + orNobody(actor)
	if site != "" {
		text = "what site " + site + " was changed to while it was alone is brought back by " + orNobody(actor)
		e.history.dropAmendment(k.App, site, &fx)
	}
	for name, rev := range revs {
		if old.revisions[name] != rev {
			a.Refused, a.Paused = without(a.Refused, name), without(a.Paused, name)
			a.setRollout(name, &Rollout{Revision: rev, Gen: a.Gen, StartedAt: now, Wave: 1, Limit: everything, Back: true})
		}
	}
	e.Look(k.App)
	e.saveApp(a, &fx)
	e.appEvent(&fx, now, a, k.Service, "Undone", text)
	return Applied{Key: k.App, Gen: a.Gen}, fx, nil
}

// fits gives what is wrong with an application of which one service was put back, such as that it starts after a service that is no
// longer there. What was wrong before stays as it is: rules of later versions are no reason to refuse.
func fits(before, after *App) error {
	was, is := cloneManifest(before.Manifest), cloneManifest(after.Manifest)
	if was.Validate() != nil {
		return nil
	}
	return is.Validate()
}

// pause keeps rollouts of a service, or of all, where they are; resume lets them go on, and has a version tried again that
// was taken back.
func (e *editor) pause(now time.Time, k skerry.ServiceKey, on bool, actor string) (Applied, wire.Effects, error) {
	var fx wire.Effects
	a, err := e.usableWith(k)
	if err != nil {
		return Applied{}, fx, err
	}
	if s := a.Manifest.Spec.Service(k.Service); s != nil && (s.Mode == spec.ModeJob || s.Mode == spec.ModeCron) {
		return Applied{}, fx, skerry.Errorf(skerry.CodeInvalid, "service %s runs as a %s, and has no updates to pause or resume", k, s.Mode).
			WithHint("`skerry describe app %s` shows its runs", k.App.Name)
	}
	old := *a
	next := *a
	next.Manifest, next.Digests, next.UpdatedAt = cloneManifest(a.Manifest), maps.Clone(a.Digests), now
	again := []string{}
	for i := range next.Manifest.Spec.Services {
		s := &next.Manifest.Spec.Services[i]
		if k.Service != "" && k.Service != s.Name || s.Mode != spec.ModeService && !s.Mode.HasCopies() {
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
	} else if err := e.replace(now, a, &next, &fx); err != nil {
		return Applied{}, wire.Effects{}, err
	} else {
		e.history.keep(&old, a, &fx)
	}
	for name := range a.Rollouts { // the time of the pause does not count as that of the wave
		if r := a.Rollouts[name]; !on && (k.Service == "" || k.Service == name) && !r.HealthyAt.IsZero() {
			r.HealthyAt = now
		}
	}
	e.Look(k.App)
	e.saveApp(a, &fx)
	verb := map[bool]string{true: "RolloutPaused", false: "RolloutResumed"}[on]
	e.appEvent(&fx, now, a, k.Service, verb, "by "+orNobody(actor))
	return Applied{Key: k.App, Gen: a.Gen}, fx, nil
}
