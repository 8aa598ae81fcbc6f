package apps

import (
	"maps"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/crontab"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Apply asks for an application: it is created, or changed to what the manifest says.
type Apply struct {
	App      spec.Application
	Actor    string
	Register bool              // store only; do not deploy
	Expect   skerry.Generation // 0: whatever it is now
	DryRun   bool              // check, and tell what it would do, changing nothing
	Digests  map[string]string // image reference -> digest, as resolved by the server
}

// Applied is the answer to Apply.
type Applied struct {
	Key       skerry.AppKey     `json:"key"`
	Gen       skerry.Generation `json:"generation"`
	Created   bool              `json:"created"`
	Unchanged bool              `json:"unchanged"`
	Warnings  []string          `json:"warnings,omitempty"`
	Notes     []string          `json:"notes,omitempty"` // images that mean something else than before
}

// editor changes what is asked of applications, by users, by the tier above or by a site that was alone. It has quotas, networks and secrets
// agree first, and keeps the version before; what follows for instances is left to Reconcile.
type editor struct {
	*lifecycle
	tenants  *tenants
	networks *networks
	history  *history
	secrets  *secrets
	volumes  *volumes
}

// apply stores an application that was validated and has its defaults set.
func (e *editor) apply(now time.Time, r Apply) (Applied, wire.Effects, error) {
	var fx wire.Effects
	ns, old, err := e.check(&r.App, r.Expect)
	if err != nil {
		return Applied{}, fx, err
	}
	key := r.App.Key()
	res := Applied{Key: key, Gen: 1, Created: old == nil, Warnings: r.App.Warnings()}
	var more []string
	r.App.Spec.NeedAliases()
	r.Digests, more = pin(&r.App, r.Digests, old)
	res.Warnings = append(res.Warnings, more...)
	a := &App{Manifest: r.App, Org: ns.Org, Gen: 1, CreatedAt: now, UpdatedAt: now, Author: r.Actor, Deployed: !r.Register, Digests: r.Digests}
	if old != nil {
		a.CreatedAt, a.Restarts, a.Runs, a.Rollouts, a.Paused = old.CreatedAt, old.Restarts, old.Runs, old.Rollouts, old.Paused
		res.Warnings = append(res.Warnings, keepRefused(old, a)...)
		lost, kept := e.volumes.loses(&r.App)
		res.Warnings = append(append(res.Warnings, lost...), kept...)
		a.Deployed = old.Deployed || !r.Register
		if string(mustJSON(old.Manifest)) == string(mustJSON(a.Manifest)) && a.Deployed == old.Deployed && maps.Equal(old.Digests, a.Digests) {
			res.Gen, res.Unchanged = old.Gen, true
			if len(a.Refused) < len(old.Refused) && !r.DryRun { // whoever applies what runs has acknowledged the rollback
				old.Refused = a.Refused
				e.Look(key)
				e.saveApp(old, &fx)
			}
			return res, fx, nil
		}
		a.Gen = old.Gen + 1
		res.Gen = a.Gen
	}
	if err := e.fits(old, a); err != nil {
		return Applied{}, wire.Effects{}, err
	}
	if r.DryRun {
		res.Notes = append(lookedUp(old, a), e.volumes.findsAgain(a)...)
		return res, wire.Effects{}, nil
	}
	if err := e.networks.address(now, a, &fx); err != nil {
		return Applied{}, wire.Effects{}, err
	}
	res.Notes = append(lookedUp(old, a), e.volumes.findsAgain(a)...)
	if old != nil {
		e.history.keep(old, a, &fx)
	}
	e.addApp(a)
	e.Look(key)
	e.saveApp(a, &fx)
	verb := "Created"
	if old != nil {
		verb = "Updated"
	}
	e.appEvent(&fx, now, a, "", verb, "generation "+itoa(int(a.Gen))+" was applied by "+orNobody(r.Actor))
	return res, fx, nil
}

// check sets a manifest's defaults and tells whether it may be applied now. It gives its namespace, and the application
// as it is now or nil.
func (e *editor) check(app *spec.Application, expect skerry.Generation) (*Namespace, *App, error) {
	if err := app.Validate(); err != nil {
		return nil, nil, err
	}
	app.SetDefaults()
	if err := checkSchedules(app); err != nil {
		return nil, nil, err
	}
	key := app.Key()
	ns := e.tenants.spaces[key.Namespace]
	if ns == nil {
		return nil, nil, skerry.Errorf(skerry.CodeNotFound, "there is no namespace %q", key.Namespace).
			WithHint("create it with `skerry namespace create %s --org ORG`, or name another in metadata.namespace", key.Namespace)
	}
	old := e.apps[key]
	if old != nil && old.Deleting {
		return nil, nil, skerry.Errorf(skerry.CodeConflict, "application %s is being deleted", key).
			WithHint("wait until `skerry get apps` no longer shows it, then apply again")
	}
	if old != nil {
		keepScaled(app, old)
	}
	if err := e.secrets.resolve(app); err != nil {
		return nil, nil, err
	}
	if expect != 0 && (old == nil || old.Gen != expect) {
		return nil, nil, skerry.Errorf(skerry.CodeConflict, "application %s is not at generation %d", key, expect).
			WithHint("get it again, repeat the change and apply")
	}
	if err := checkExports(app, ns.Org); err != nil {
		return nil, nil, err
	}
	if err := e.checkEntries(app, ns.Org, old); err != nil {
		return nil, nil, err
	}
	if err := e.checkShortNames(app, ns.Org, old); err != nil {
		return nil, nil, err
	}
	if err := e.volumes.checkSizes(app, old); err != nil {
		return nil, nil, err
	}
	return ns, old, e.tenants.checkQuota(ns.Org, app)
}

// checkExports refuses short names in applications of other organisations.
func checkExports(a *spec.Application, org string) error {
	for i := range a.Spec.Services {
		for j, e := range a.Spec.Services[i].Export {
			if e.As != "" && e.Org != "" && e.Org != org {
				return &skerry.Error{Code: skerry.CodeInvalid, Message: "the manifest is not valid", Problems: []skerry.Problem{{
					Path: "spec.services[" + itoa(i) + "].export[" + itoa(j) + "].as", Message: "a service has no short name in applications of another organisation",
					Hint: "leave it out; they reach the service by its full name"}}}
			}
		}
	}
	return nil
}

func checkSchedules(a *spec.Application) error {
	var wrong []skerry.Problem
	check := func(path, text string) {
		if _, err := crontab.Parse(text); err != nil {
			wrong = append(wrong, skerry.Problem{Path: path, Message: err.Error(), Hint: crontab.Hint})
		}
	}
	for i := range a.Spec.Services {
		s, path := &a.Spec.Services[i], "spec.services["+itoa(i)+"]"
		if s.Cron != nil {
			check(path+".cron.schedule", s.Cron.Schedule)
		}
		if s.Snapshots != nil && s.Snapshots.Schedule != "" {
			check(path+".snapshots.schedule", s.Snapshots.Schedule)
		}
	}
	if len(wrong) > 0 {
		return &skerry.Error{Code: skerry.CodeInvalid, Message: "the manifest is not valid", Problems: wrong}
	}
	return nil
}

// deploy asks for the instances of a registered application.
func (e *editor) deploy(now time.Time, key skerry.AppKey, actor string) (Applied, wire.Effects, error) {
	var fx wire.Effects
	a, err := e.usable(key)
	if err != nil {
		return Applied{}, fx, err
	}
	res := Applied{Key: key, Gen: a.Gen, Unchanged: a.Deployed}
	if !a.Deployed {
		a.Deployed, a.UpdatedAt = true, now
		e.Look(key)
		e.saveApp(a, &fx)
		e.appEvent(&fx, now, a, "", "Deployed", "deployment was asked for by "+orNobody(actor))
	}
	return res, fx, nil
}

// scale changes the number of instances of a service.
func (e *editor) scale(now time.Time, k skerry.ServiceKey, replicas int, actor string) (Applied, wire.Effects, error) {
	var fx wire.Effects
	a, s, err := e.service(k)
	if err != nil {
		return Applied{}, fx, err
	}
	if s.Mode != spec.ModeService {
		return Applied{}, fx, skerry.Errorf(skerry.CodeInvalid, "service %s is a %s and has no replicas", k, s.Mode).
			WithHint("change job.parallelism in the manifest instead")
	}
	if replicas < 0 || replicas > 10000 {
		return Applied{}, fx, skerry.Errorf(skerry.CodeInvalid, "%d replicas are out of range; from 0 to 10000 is allowed", replicas)
	}
	if s.Scale != nil && !a.Delegated {
		if lo, hi := s.Scale.Limits(); replicas < lo || replicas > hi {
			return Applied{}, fx, skerry.Errorf(skerry.CodeInvalid, "the number of instances of %s follows their load, from %d to %d", k, lo, hi).
				WithHint("change scale.min and scale.max in the manifest instead")
		}
	}
	if *s.Replicas == replicas {
		return Applied{Key: k.App, Gen: a.Gen, Unchanged: true}, fx, nil
	}
	trial := cloneManifest(a.Manifest)
	trial.Spec.Service(k.Service).Replicas = &replicas
	if err := e.tenants.checkQuota(a.Org, &trial); err != nil {
		return Applied{}, fx, err
	}
	next := *a
	next.Manifest = trial
	next.Gen++
	next.UpdatedAt = now
	if err := e.networks.address(now, &next, &fx); err != nil {
		return Applied{}, wire.Effects{}, err
	}
	*a = next
	e.Look(k.App)
	e.saveApp(a, &fx)
	e.appEvent(&fx, now, a, k.Service, "Scaled", "to "+itoa(replicas)+" by "+orNobody(actor))
	return Applied{Key: k.App, Gen: a.Gen}, fx, nil
}

// scaleAway ends an instance, and has its service want one less: no other instance ends, or comes, because of that.
func (e *editor) scaleAway(now time.Time, id skerry.InstanceID, actor string) (wire.Effects, error) {
	i := e.inst[id]
	if i == nil {
		return wire.Effects{}, skerry.Errorf(skerry.CodeNotFound, "there is no instance %q", id).WithHint("`skerry get instances` lists them")
	}
	if i.Stopping {
		return wire.Effects{}, skerry.Errorf(skerry.CodeConflict, "instance %s is ending already", id)
	}
	_, s, err := e.service(i.Service)
	if err != nil {
		return wire.Effects{}, err
	}
	less := 0
	if s.Replicas != nil { // else it is no service, which scale says
		less = max(0, *s.Replicas-1)
	}
	_, fx, err := e.scale(now, i.Service, less, actor)
	if err != nil {
		return wire.Effects{}, err
	}
	e.stop(now, i, "scaled down by "+orNobody(actor), &fx)
	return fx, nil
}

// restart asks for a restart of every instance of a service, one after the other; an empty service name means all. A service whose images
// were looked up again, and mean something else now, is updated instead.
func (e *editor) restart(now time.Time, m Restart) (Applied, wire.Effects, error) {
	var fx wire.Effects
	k, actor := m.Service, m.Actor
	a, err := e.usable(k.App)
	if err != nil {
		return Applied{}, fx, err
	}
	if m.Pull != nil && a.Delegated {
		return Applied{}, fx, skerry.Errorf(skerry.CodeUnsupported, "this site keeps the content of its images while the root is away").
			WithHint("restart without --pull, or repeat this at the root")
	}
	if k.Service != "" && a.Manifest.Spec.Service(k.Service) == nil {
		_, _, err := e.service(k)
		return Applied{}, fx, err
	}
	if !a.Deployed {
		return Applied{}, fx, skerry.Errorf(skerry.CodeConflict, "application %s is not deployed, and nothing of it runs", k.App).
			WithHint("`skerry deploy %s` starts it", k.App.Name)
	}
	old := *a
	var notes []string
	if m.Pull != nil {
		if notes, err = e.repin(now, a, m, &fx); err != nil {
			return Applied{}, wire.Effects{}, err
		}
	}
	restarts, why := e.restarting(a, &old, k.Service)
	if len(restarts) == 0 && maps.Equal(a.revisions, old.revisions) {
		return Applied{}, wire.Effects{}, why
	}
	if a.Restarts == nil {
		a.Restarts = map[string]uint64{}
	}
	for _, name := range restarts {
		a.Restarts[name]++
	}
	a.UpdatedAt = now
	e.Look(k.App)
	e.saveApp(a, &fx)
	e.appEvent(&fx, now, a, k.Service, "RestartAsked", "by "+orNobody(actor))
	return Applied{Key: k.App, Gen: a.Gen, Notes: notes}, fx, nil
}

// fits refuses a version that is too large by itself, or for which its organisation has no room.
func (e *editor) fits(old, next *App) error {
	if err := checkSize(next); err != nil {
		return err
	}
	grows := len(mustJSON(next.Manifest))
	if old != nil { // which takes the place of an earlier version where there is no room
		grows -= len(mustJSON(old.Manifest))
	}
	if grows <= 0 {
		return nil
	}
	return e.tenants.mayDefine(next.Org, grows, old == nil)
}

// restarting names the services of an application, or the one that is asked for, of which something restarts, and says why the others have
// nothing. Those that were updated since old are neither.
func (e *editor) restarting(app, old *App, only string) (names []string, why error) {
	for i := range app.Manifest.Spec.Services {
		svc := &app.Manifest.Spec.Services[i]
		if only != "" && only != svc.Name || app.revisions[svc.Name] != old.revisions[svc.Name] {
			continue
		}
		switch err := e.restartable(app, svc); {
		case err == nil:
			names = append(names, svc.Name)
		case why == nil:
			why = err
		default:
			why = skerry.Errorf(skerry.CodeConflict,
				"nothing restarts: the services of %s have no instances, run by schedules, or wait with a paused update", app.Key()).
				WithHint("`skerry describe app %s` shows them", app.Key().Name)
		}
	}
	return names, why
}

// restartable gives what stands against a restart of a service.
func (e *editor) restartable(app *App, svc *spec.ServiceSpec) error {
	key := skerry.ServiceKey{App: app.Key(), Service: svc.Name}
	if svc.Mode == spec.ModeJob {
		return nil // it runs once more
	}
	if svc.Mode == spec.ModeCron {
		return skerry.Errorf(skerry.CodeConflict, "nothing restarts: %s runs by a schedule", key).
			WithHint("`skerry describe app %s` shows its runs", key.App.Name)
	}
	there, former, done := e.revised(key, app.revisions[svc.Name], svc.Mode.HasCopies())
	switch {
	case there:
		return nil
	case former && app.Paused[svc.Name] != "":
		return skerry.Errorf(skerry.CodeConflict, "nothing restarts: all instances of %s wait for its update, which is paused", key).
			WithHint("`skerry rollout resume %s/%s` has the new version replace them", key.App.Name, key.Service)
	case former, !svc.Mode.HasCopies() && *svc.Replicas > done:
		return nil // an update replaces them, or they are about to start
	}
	return skerry.Errorf(skerry.CodeConflict, "nothing restarts: %s has no instances", key).
		WithHint("`skerry describe app %s` shows why", key.App.Name)
}

// revised reports whether an instance of a service runs a revision, or is to, and whether one runs another; done of them have done their
// work. With one for each site, that of a site which has nothing to do for it does not count.
func (e *editor) revised(key skerry.ServiceKey, rev string, perSite bool) (there, former bool, done int) {
	for _, i := range e.Instances(key) {
		idle := perSite && i.Want == 0 && i.State != skerry.Requested && i.Reason != ""
		switch {
		case i.Live() && i.wanted() == rev:
			there = there || !idle
		case i.Live():
			former = true
		case i.State == skerry.Terminated && !i.Stopping && i.Revision == rev:
			done++
		}
	}
	return there, former, done
}

// delete ends an application in whatever state it is. It is idempotent.
func (e *editor) delete(now time.Time, m Delete) (Deleted, wire.Effects, error) {
	var fx wire.Effects
	a := e.apps[m.Key]
	if a == nil {
		err := skerry.Errorf(skerry.CodeNotFound, "there is no application %s", m.Key).WithHint("`skerry get apps` lists them")
		if len(e.claimed[m.Key]) > 0 {
			err = err.WithHint("volumes of it are kept: `skerry get volumes` lists them, and `skerry delete volume NAME` deletes them")
		}
		return Deleted{}, fx, err
	}
	if !a.Deleting || m.Volumes && !a.DeleteVolumes {
		if !a.Deleting {
			e.appEvent(&fx, now, a, "", "Deleting", "deletion was asked for by "+orNobody(m.Actor))
		}
		a.Deleting, a.DeleteVolumes, a.UpdatedAt = true, a.DeleteVolumes || m.Volumes, now
		a.Gen++
		e.Look(m.Key)
		e.networks.noteExports(a)
		e.saveApp(a, &fx)
	}
	return e.volumes.deleted(a), fx, nil
}

func (e *editor) addApp(a *App) {
	e.enter(a)
	e.networks.noteExports(a)
}
