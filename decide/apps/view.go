package apps

import (
	"cmp"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// views shows applications to users, and changes nothing.
type views struct {
	catalog  *catalog
	ledger   *ledger
	history  *history
	networks *networks
	demand   *demand
}

// View shows an application; manifest says whether to include what was applied.
func (vs *views) View(a *App, origin string, manifest bool) view.AppView {
	v := view.AppView{Key: a.Key(), Org: a.Org, Gen: a.Gen, Deployed: a.Deployed, Deleting: a.Deleting, Origin: origin,
		CreatedAt: a.CreatedAt, UpdatedAt: a.UpdatedAt, Author: a.Author}
	if manifest {
		m := a.Manifest
		v.Manifest = &m
		v.Revisions = vs.history.view(a)
	}
	for i := range a.Manifest.Spec.Services {
		v.Services = append(v.Services, vs.viewService(a, &a.Manifest.Spec.Services[i]))
	}
	ViewNetwork(&v, vs.networks.Network(a.Key()), manifest)
	v.Status, v.Reason = status(&v), Reason(v.Services)
	return v
}

// AsOf has a view show the manifest of an earlier generation that is kept, when and by whom it was applied; 0: it stays as it is, as does
// one without a manifest, of which another tier has the versions.
func (vs *views) AsOf(shown view.AppView, gen skerry.Generation) (view.AppView, error) {
	if gen == 0 || gen == shown.Gen || shown.Manifest == nil {
		return shown, nil
	}
	past := vs.history.find(shown.Key, func(p *Past) bool { return p.Site == "" && p.Gen == gen })
	if past == nil {
		return shown, skerry.Errorf(skerry.CodeNotFound, "of %s no generation %d is kept", shown.Key, gen).
			WithHint("`skerry rollout history %s` lists those that are", shown.Key)
	}
	manifest := past.Manifest
	shown.Manifest, shown.Gen, shown.UpdatedAt, shown.Author = &manifest, past.Gen, past.At, past.Author
	return shown, nil
}

// Reason is why an application is not as it should be: the first reason of its services, with its name if there are several.
func Reason(services []view.ServiceView) string {
	for i := range services {
		switch s := &services[i]; {
		case s.Reason != "" && len(services) > 1:
			return s.Name + ": " + s.Reason
		case s.Reason != "":
			return s.Reason
		}
	}
	return ""
}

// ViewNetwork adds the service addresses to a view; those of single instances only where all is to be told.
func ViewNetwork(shown *view.AppView, net *wire.AppNetwork, all bool) {
	if net == nil {
		return
	}
	shown.Network = net.Net
	for i := range net.Services {
		s := net.Services[i]
		if s.Of != (skerry.ServiceKey{}) {
			continue
		}
		if !all {
			s.Instances = nil
		}
		s.Ports, s.Links, s.Allow = nil, nil, nil
		for j := range shown.Services {
			if shown.Services[j].Name == s.Name {
				shown.Services[j].Addresses = &s
			}
		}
	}
	for _, s := range net.Aliases {
		if s.Of == (skerry.ServiceKey{}) {
			s.Ports = nil
			shown.Aliases = append(shown.Aliases, s)
		}
	}
}

func (vs *views) viewService(a *App, s *spec.ServiceSpec) view.ServiceView {
	v := view.ServiceView{Name: s.Name, Mode: s.Mode, Image: s.Image, Digest: cmp.Or(s.Pinned[s.Image], a.Digests[s.Image]),
		Revision: a.revisions[s.Name], Probed: s.Probes.Readiness != nil || s.Probes.Startup != nil}
	list := vs.ledger.Instances(skerry.ServiceKey{App: a.Key(), Service: s.Name})
	switch s.Mode {
	case spec.ModePerWorker, spec.ModePerDevice:
		for _, i := range list {
			if !i.Stopping {
				v.Want += copiesOf(i)
				if i.Copies != nil {
					v.Want -= i.Copies.Done
				}
			}
		}
	case spec.ModeJob, spec.ModeCron:
		v.Want = runsNow(s, a.Runs[s.Name])
		v.Pending = s.Mode == spec.ModeJob && a.Deployed && !a.Deleting && !a.Delegated && !a.jobBegun(s)
	default:
		v.Want = *s.Replicas
	}
	v.Scale = vs.demand.Scale(skerry.ServiceKey{App: a.Key(), Service: s.Name})
	shared := sharedUses{}
	var worst wire.Worst
	for _, i := range list {
		v.Restarts += i.Restarts
		worst.See(&i.Instance)
		if !s.Mode.HasCopies() && i.State == skerry.Terminated && !i.Stopping && i.Run == "" && i.Revision == v.Revision {
			v.Want-- // it has done its work
		}
		if !i.Live() {
			continue
		}
		n := 1
		if s.Mode.HasCopies() {
			n = copiesOf(i)
		}
		v.Instances += n
		switch {
		case outOfTouch(i): // nobody here knows
			if i.State == skerry.Running {
				v.OutOfTouch++
			}
		case s.Mode.HasCopies():
			v.Ready += i.Have
			if i.Copies != nil {
				v.Ready += i.Copies.Serving
			}
		case i.IsReady():
			v.Ready++
		}
		if skerry.HasCondition(i.Conditions, skerry.CrashLoop) {
			v.CrashLoops++
		}
		if i.Revision == v.Revision {
			v.UpToDate += i.upToDate(n)
		}
		if q := shared.of(i); q != nil {
			sum := *q
			if v.QoS != nil {
				sum = v.QoS.Add(sum)
			}
			v.QoS = &sum
		}
	}
	if s.Mode == spec.ModeService || s.Mode.HasCopies() {
		v.Rollout = vs.viewRollout(a, s)
	}
	if v.Reason = serviceReason(&v, &worst); v.Reason == "" {
		if waits := vs.orderWaits(a, s); waits != "" {
			v.Reason = wire.Summary("StartWaits", waits)
		}
	}
	for _, r := range a.Runs[s.Name] {
		v.Runs = append(v.Runs, view.RunView{ID: r.ID, StartedAt: r.StartedAt, EndedAt: r.EndedAt, Succeeded: r.Succeeded, Failed: r.Failed,
			Result: r.Result, Reason: r.Reason})
	}
	return v
}

// orderWaits is why a service has not begun, for people.
func (vs *views) orderWaits(a *App, s *spec.ServiceSpec) string {
	if len(s.StartAfter) == 0 {
		return ""
	}
	if s.Mode == spec.ModeJob {
		if a.jobBegun(s) {
			return ""
		}
	} else if roll := a.Rollouts[s.Name]; roll != nil && roll.Revision == a.revisions[s.Name] && (roll.Begun || roll.Back) {
		return ""
	}
	return vs.ledger.startWaits(a, s)
}

// copiesOf gives how many copies an instance of a service with one for each worker has at its site.
func copiesOf(i *Instance) int {
	if i.Want == 0 && i.Live() && (i.State == skerry.Requested || i.Reason == "") {
		return 1 // its site has not said how many there are to be; one with nothing to do gives a reason
	}
	return i.Want
}

// upToDate gives how many of the copies that an instance stands for run its version.
func (i *Instance) upToDate(n int) int {
	switch {
	case i.Copies != nil:
		return n - i.Copies.Former
	case i.Target != "" && !i.IsReady():
		return i.Have // its site has not told of the others
	}
	return n
}

// serviceReason is why a service is not as it should be: by its instances, or else by its update.
func serviceReason(v *view.ServiceView, worst *wire.Worst) string {
	r := v.Rollout
	switch {
	case r != nil && r.Failing && r.EndedAt.IsZero():
		return wire.Summary("UpdateFailed", r.Reason)
	case r != nil && r.Waits != "":
		return wire.Summary("UpdateWaits", r.Waits)
	case r != nil && r.Refused != nil && v.Ready >= v.Want:
		return wire.Summary("RolledBack", "revision "+r.Refused.Revision+": "+r.Refused.Reason)
	}
	return worst.String()
}

// runsNow gives how many instances of a job are to run at this moment: none before its time, and none after it has ended.
func runsNow(s *spec.ServiceSpec, runs []*Run) int {
	done := 0
	switch n := len(runs); {
	case n == 0 && s.Mode == spec.ModeCron || n > 0 && runs[n-1].Result != "":
		return 0
	case n > 0:
		done = runs[n-1].Succeeded
	}
	return max(min(*s.Job.Parallelism, *s.Job.Completions-done), 0)
}

func status(v *view.AppView) string {
	switch {
	case v.Deleting:
		return "Deleting"
	case !v.Deployed:
		return "Registered"
	}
	ready, done, serves, jobs := true, true, true, 0
	some, back := false, false
	for _, s := range v.Services {
		if s.Mode == spec.ModeJob || s.Mode == spec.ModeCron {
			jobs++
			if n := len(s.Runs); n == 0 || s.Pending || s.Runs[n-1].Result == "" {
				done = false
			} else if s.Runs[n-1].Result == "Failed" {
				return "Degraded"
			}
			continue
		}
		well := s.Ready >= s.Want && s.CrashLoops == 0
		r := s.Rollout
		failing := r != nil && r.Failing && r.EndedAt.IsZero() // its instances run just now, and have not for long enough
		ready = ready && well && s.UpToDate == s.Instances && !failing
		serves = serves && well && (r == nil || r.Failures == 0 && !r.Failing && r.Waits == "") // an update goes on beside
		some = some || s.Ready+s.OutOfTouch > 0
		back = back || s.Rollout != nil && s.Rollout.Refused != nil
	}
	switch {
	case jobs == len(v.Services) && done:
		return "Completed"
	case ready && (jobs < len(v.Services) || done):
		if back {
			return view.AppRolledBack
		}
		return "Ready"
	case some && !serves:
		return "Degraded"
	}
	return "Progressing"
}

// viewRollout tells how far a service's rollout is.
func (vs *views) viewRollout(a *App, s *spec.ServiceSpec) *view.RolloutView {
	r := a.Rollouts[s.Name]
	if r == nil || r.Revision != a.revisions[s.Name] {
		return nil
	}
	v := &view.RolloutView{Revision: r.Revision, From: r.From, Gen: r.Gen, StartedAt: r.StartedAt, EndedAt: r.EndedAt,
		Paused: a.Paused[s.Name], Failures: r.Failures, Reason: r.Reason, Wave: r.Wave, Failing: r.Told}
	if s.Replicas != nil {
		v.Limit = min(r.Limit, *s.Replicas)
	}
	canary := r.Canary
	if s.Mode.HasCopies() {
		v.Sites = vs.viewSites(a, s)
		for _, i := range vs.ledger.Instances(skerry.ServiceKey{App: a.Key(), Service: s.Name}) {
			canary = canary || i.Live() && i.Revision == r.Revision && i.Copies != nil && i.Copies.Canary
		}
	}
	switch {
	case !r.EndedAt.IsZero():
		v.Phase, v.Limit = view.RolloutDone, 0
	case v.Paused != "":
		v.Phase = view.RolloutPaused
	case r.Back:
		v.Phase = view.RolloutBack
	case canary:
		v.Phase = view.RolloutCanary
	default:
		v.Phase = view.RolloutWaves
		v.NextAt = r.next(s)
	}
	if r.EndedAt.IsZero() && v.Paused == "" {
		if v.Waits = vs.ledger.updateWaits(a, s); v.Waits == "" {
			v.Waits = a.waitsTurn(s.Name)
		}
	}
	if f := a.Refused[s.Name]; f != nil {
		v.Refused = &view.RefusedView{Revision: f.Revision, Reason: f.Reason, At: f.At}
	}
	return v
}

// viewSites counts the sites of a perWorker service by how far its rollout is there. At a site there is nothing to count.
func (vs *views) viewSites(a *App, s *spec.ServiceSpec) *view.RolloutSites {
	if vs.ledger.local != "r" {
		return nil
	}
	v := &view.RolloutSites{}
	for _, i := range vs.ledger.Instances(skerry.ServiceKey{App: a.Key(), Service: s.Name}) {
		switch has := i.Revision == a.revisions[s.Name]; {
		case !i.Live():
			continue
		case has && i.settled():
			v.Done++
		case !has && (outOfTouch(i) || vs.catalog.shut[i.Target]):
			v.Away++
		}
		v.All++
	}
	return v
}
