package apps

import (
	"cmp"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// awayAfter is for how long a site must have been out of touch for an update to go on without it.
const awayAfter = time.Minute

// reconcilePerWorker keeps an instance of a service with a copy on each worker at every child, which has the copies: at the sites of a root,
// or at the site itself. An update takes the sites in turn, and each of them its workers (cluster/core/exchange.go).
//
//	first site, the one with the fewest copies ─► done there, watched for healthyTime ─► as many sites at a time as are done ─► done
//	   └─── too many failures, or not ready in time ───► every site that has it goes back, all at once
//
// A site that is out of touch, or does not admit the version, is neither waited for nor counted: another one goes first, and it gets the
// version when it can. By then the update may be done, and is no longer taken back for what happens at that one site.
func (rs *rollouts) reconcilePerWorker(now time.Time, a *App, s *spec.ServiceSpec, fx *wire.Effects) {
	rev := a.revisions[s.Name]
	have, ending := rs.byTarget(now, a, s, fx)
	var current, old []*Instance
	for _, t := range rs.targets {
		switch i := have[t]; {
		case i == nil:
		case i.Revision == rev:
			current = append(current, i)
		default:
			old = append(old, i)
		}
	}
	rs.takeOver(now, a, s, current, fx)
	r := a.Rollouts[s.Name]
	if r == nil || r.Revision != rev {
		r = rs.startRollout(now, a, s, r, old, len(current)+len(old), fx)
	}
	judged, rest := rs.judged(now, a, slices.DeleteFunc(slices.Clone(current), (*Instance).refused)), rs.judged(now, a, old)
	limit := 0
	if want := len(judged) + len(rest); want > 0 {
		var ok bool
		if limit, ok = rs.rollout(now, a, s, judged, rest, want, fx); !ok {
			return // it goes back to what ran before
		}
	}
	next := rs.nextSites(a, s, r, judged, rest, limit)
	for n, t := range rs.targets {
		switch i := have[t]; {
		case !rs.allows(s, t):
		case i == nil && r.Canary && r.EndedAt.IsZero() && len(old) > 0: // it has joined, and is no site to try something at
			rs.createAs(now, a, old[0], n, t, fx)
		case i == nil:
			current = append(current, rs.create(now, a, s, n, t, "", fx))
		case slices.Contains(next, i):
			rs.stop(now, i, "replaced by a new version", fx)
			if was := ending[t]; was != nil && i.Copies != nil { // it has copies yet, and its site is no older one, which cannot keep them
				rs.revive(now, a, s, was, fx)
				current = append(current, was)
			} else {
				current = append(current, rs.create(now, a, s, n, t, "", fx))
			}
		}
	}
	how := ""
	switch {
	case a.Paused[s.Name] != "" || a.waitsTurn(s.Name) != "":
		how = spec.ExchangeHeld
	case r.Back && r.EndedAt.IsZero():
		how = spec.ExchangeBack
	}
	for _, i := range current {
		if i.Restart < a.Restarts[s.Name] || i.Exchange != how {
			i.Restart, i.Exchange = a.Restarts[s.Name], how
			rs.saveInstance(i, fx)
		}
	}
}

// byTarget gives the instance of a service at each child, and the one of the wanted revision that was told to end there last and may have
// copies yet. It ends those that are nowhere wanted.
func (rs *rollouts) byTarget(now time.Time, a *App, s *spec.ServiceSpec, fx *wire.Effects) (have, ending map[string]*Instance) {
	have, ending = map[string]*Instance{}, map[string]*Instance{}
	for _, i := range rs.Instances(skerry.ServiceKey{App: a.Key(), Service: s.Name}) {
		if rs.settleCrashLoop(now, i) {
			rs.saveInstance(i, fx)
		}
		was := have[i.Target]
		switch {
		case i.Stopping && i.Revision == a.revisions[s.Name] && i.Holder == i.Target:
			ending[i.Target] = i
		case !i.Live():
		case !slices.Contains(rs.targets, i.Target) || !rs.allows(s, i.Target):
			rs.stop(now, i, "no longer wanted there", fx)
		case was != nil && was.Revision == a.revisions[s.Name]: // half of a commit was lost
			rs.stop(now, i, "replaced", fx)
		default:
			if was != nil {
				rs.stop(now, was, "replaced by a new version", fx)
			}
			have[i.Target] = i
		}
	}
	return have, ending
}

// refused reports whether an instance that stands for the copies at a site can have none there: the site is in quarantine, or does not admit
// the version.
func (i *Instance) refused() bool {
	return i.Holder == "" || i.Copies == nil && i.Want == 0 && i.Reason != ""
}

// judged leaves out the sites that an update does not wait for, because they are out of touch.
func (rs *rollouts) judged(now time.Time, a *App, list []*Instance) (out []*Instance) {
	for _, i := range list {
		if outOfTouch(i) {
			at := sinceOf(i, skerry.Reachable).Add(awayAfter)
			if !now.Before(at) {
				continue
			}
			rs.wakeAt(a.Key(), at)
		}
		out = append(out, i)
	}
	return out
}

// nextSites chooses the sites that get the new version now, of those that have another one. limit is how many may have it.
func (rs *rollouts) nextSites(a *App, s *spec.ServiceSpec, r *Rollout, judged, rest []*Instance, limit int) []*Instance {
	n, done, busy := limit-len(judged), 0, 0
	for _, i := range judged {
		if i.settled() {
			done++
		} else {
			busy++
		}
		if r.EndedAt.IsZero() && skerry.HasCondition(i.Conditions, skerry.CrashLoop) {
			n = 0
		}
	}
	if a.Paused[s.Name] != "" || r.EndedAt.IsZero() && r.Told {
		n = 0
	}
	if s.Update.Sites != spec.SitesAll && !r.Back { // never more at a time than have shown that it works
		n = min(n, max(1, done)-busy)
	}
	rest = slices.DeleteFunc(slices.Clone(rest), outOfTouch)
	slices.SortStableFunc(rest, func(a, b *Instance) int { return cmp.Compare(a.exposed(), b.exposed()) })
	return rest[:min(max(n, 0), len(rest))]
}

// exposed orders sites by how much a bad version would harm there. One that serves nobody proves nothing, and comes last.
func (i *Instance) exposed() int {
	if i.Have == 0 {
		return everything
	}
	return i.Have
}
