package apps

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Planned is what applying a manifest would do to its instances.
type Planned struct {
	Key  skerry.AppKey
	Org  string
	New  []*Instance // that would be created; they are in no map
	Kept []*Instance
	// Resized are those of Kept whose limits are to change while they run, and how.
	Resized map[skerry.InstanceID]string
	Lost    []string // what goes for good, in words
}

// Plan tells which instances applying a manifest would need anew and which it would keep, changing nothing. It makes the
// checks that Apply makes.
func (e *editor) Plan(now time.Time, app spec.Application, digests map[string]string) (Planned, error) {
	ns, old, err := e.check(&app, 0)
	if err != nil {
		return Planned{}, err
	}
	app.Spec.NeedAliases()
	pin(&app, digests, old)
	a := &App{Manifest: app, Org: ns.Org, Gen: 1, revisions: map[string]string{}}
	if old != nil {
		a.Gen, a.Paused = old.Gen+1, old.Paused
	}
	p := Planned{Key: app.Key(), Org: ns.Org, Resized: map[skerry.InstanceID]string{}}
	p.Lost, _ = e.volumes.loses(&app)
	for n := range app.Spec.Services {
		s := &a.Manifest.Spec.Services[n]
		a.revisions[s.Name] = s.Revision()
		live := s.Mode == spec.ModeService && s.Update.Limits != spec.LimitsReplace && a.Paused[s.Name] == ""
		kept := map[string]int{} // by target
		for _, i := range e.Instances(skerry.ServiceKey{App: app.Key(), Service: s.Name}) {
			resized := live && i.Revision != a.revisions[s.Name] && e.resizable(a, s, i)
			if i.Live() && (i.Revision == a.revisions[s.Name] || resized) && i.Run == "" && i.Replaces == "" && (s.Mode != spec.ModeService || kept[""] < *s.Replicas) {
				kept[i.Target]++
				p.Kept = append(p.Kept, i)
				if resized {
					p.Resized[i.ID] = limitsText(i.Spec) + " -> " + limitsText(s)
				}
			}
		}
		add := func(ordinal int, target string) {
			p.New = append(p.New, &Instance{Instance: wire.Instance{ID: skerry.InstanceID(s.Name + "-new-" + itoa(len(p.New))), Service: skerry.ServiceKey{App: app.Key(), Service: s.Name},
				Org: a.Org, Ordinal: ordinal, Gen: a.Gen, Revision: a.revisions[s.Name], State: skerry.Requested, CreatedAt: now}, Target: target, Spec: s,
				Deadline: now.Add(s.ConvergenceTime())})
		}
		switch s.Mode {
		case spec.ModePerWorker, spec.ModePerDevice:
			for _, t := range e.targets {
				if kept[t] == 0 && e.Allows(s, t) {
					add(0, t)
				}
			}
		case spec.ModeCron: // nothing runs before its time
		case spec.ModeJob:
			if old != nil {
				if r := lastRun(old.Runs[s.Name]); r != nil && r.ID == runID(a, s, old.Restarts[s.Name]) {
					break // it has its run
				}
			}
			for n := range min(*s.Job.Completions, *s.Job.Parallelism) {
				add(n, "")
			}
		default:
			for n := kept[""]; n < *s.Replicas; n++ {
				add(n, "")
			}
		}
	}
	return p, nil
}
