package apps

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

const (
	firstRetry  = time.Second
	longestWait = time.Minute
	maxTimeline = 24
	// steady is how long an instance must have run for its earlier failures to be forgotten.
	steady = 5 * time.Minute
)

// lifecycle is what becomes of instances: they are made, get a holder, lose it, run, fail and end. Each change here keeps the ledger, the
// events and the list of applications to be looked at in line; which instances there should be, others decide.
//
//	create ─► Requested ─ Place ─► with its holder ─ Observe ─► runs ─ stop ─► told to end ─ Gone ─► end
//	              ▲                   │                 │        │
//	              └── unplace ◄───────┴─ Lost, rejected ┘        └ Strand ─ Copying ─► TakeOver, or Back
type lifecycle struct {
	*catalog
	*ledger
	// loading has an instance that was read share its service, which has a digest, and more with others; nil: nothing is being loaded.
	loading func(i *Instance, service json.RawMessage, digest [sha256.Size]byte) (*Instance, error)
}

// SetLabels names the labels of a child. What perWorker services have where they may no longer be ends; other instances stay.
func (l *lifecycle) SetLabels(child string, labels map[string]string) {
	if l.label(child, labels) {
		l.lookCopies()
	}
}

// tellLate says of instances that found no place within their convergence time.
func (l *lifecycle) tellLate(now time.Time, fx *wire.Effects) {
	for _, id := range slices.Sorted(maps.Keys(l.unplaced)) {
		i := l.inst[id]
		if !i.Told && !i.Deadline.IsZero() && !i.Deadline.After(now) {
			i.Told = true
			l.saveInstance(i, fx)
			fx.Events = append(fx.Events, i.event(now, wire.EventWarning, "NotPlaced",
				"no place was found within the convergence time; the search goes on: "+firstWhy(i, cmp.Or(i.Reason, "nobody has answered yet"))))
		}
	}
}

func (l *lifecycle) create(now time.Time, a *App, s *spec.ServiceSpec, ordinal int, target, run string, fx *wire.Effects) *Instance {
	i := &Instance{Instance: wire.Instance{
		ID: l.newID(s.Name), Service: skerry.ServiceKey{App: a.Key(), Service: s.Name}, Org: a.Org, Ordinal: ordinal,
		Gen: a.Gen, Revision: a.revisions[s.Name], State: skerry.Requested, CreatedAt: now,
	}, Target: target, Run: run, Restart: a.Restarts[s.Name], Spec: s,
		Deadline: now.Add(s.ConvergenceTime())}
	if target != "" {
		i.Restarted = i.Restart // its copies start as if they were carried out
	}
	for _, r := range a.Runs[s.Name] {
		if run != "" && r.ID == run {
			i.Due = r.due(s)
		}
	}
	i.Conditions = skerry.SetCondition(nil, now, skerry.Ready, false, "not running yet")
	i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.UpToDate, true, "")
	i.step(now, "created for generation "+itoa(int(a.Gen)))
	l.addInstance(i)
	l.saveInstance(i, fx)
	return i
}

// createAs makes another instance of an earlier revision, like one that there is.
func (l *lifecycle) createAs(now time.Time, a *App, like *Instance, ordinal int, target string, fx *wire.Effects) *Instance {
	i := l.create(now, a, like.Spec, ordinal, target, "", fx)
	i.Revision, i.Gen = like.Revision, like.Gen
	i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.UpToDate, false, "a newer version is being rolled out")
	l.saveInstance(i, fx)
	return i
}

// stop asks for the end of an instance; one that nobody holds ends at once.
func (l *lifecycle) stop(now time.Time, i *Instance, why string, fx *wire.Effects) {
	if i.Stopping {
		return
	}
	i.Stopping = true
	i.Reason = why
	i.step(now, "to be ended: "+why)
	if i.Holder == "" {
		l.end(now, i, fx)
		return
	}
	l.saveInstance(i, fx)
}

// revive has an instance stay that was told to end. Its holder, which has it yet, is told so.
func (l *lifecycle) revive(now time.Time, a *App, s *spec.ServiceSpec, i *Instance, fx *wire.Effects) {
	i.Stopping, i.Gen, i.Spec = false, a.Gen, s
	i.Reason = "it stays: its version is wanted again"
	i.step(now, i.Reason)
	l.saveInstance(i, fx)
}

// end drops an instance that runs nowhere any more.
func (l *lifecycle) end(now time.Time, i *Instance, fx *wire.Effects) {
	fx.Events = append(fx.Events, i.event(now, wire.EventNormal, "Terminated", orNothing(i.Reason)))
	l.dropInstance(i, fx)
	l.Look(i.Service.App)
}

// discard removes an ended instance: its holder cleans up, if it has one.
func (l *lifecycle) discard(now time.Time, i *Instance, fx *wire.Effects) {
	if i.Holder == "" {
		l.dropInstance(i, fx)
		return
	}
	i.Stopping = true
	l.saveInstance(i, fx)
}

// deleteInstance ends one instance; its service gets another.
func (l *lifecycle) deleteInstance(now time.Time, id skerry.InstanceID, actor string) (wire.Effects, error) {
	var fx wire.Effects
	i := l.inst[id]
	if i == nil {
		return fx, skerry.Errorf(skerry.CodeNotFound, "there is no instance %q", id).WithHint("`skerry get instances` lists them")
	}
	l.stop(now, i, "deleted by "+orNobody(actor), &fx)
	l.Look(i.Service.App)
	return fx, nil
}

// NextWake gives the time at which Reconcile has something to do by itself, or the zero time.
func (l *lifecycle) NextWake() time.Time {
	var next time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if l.Dirty() {
		return time.Unix(1, 0) // long since due
	}
	for _, t := range l.wake {
		earlier(t)
	}
	for id := range l.unplaced {
		if l.Frozen(l.inst[id].Service.App) {
			continue
		}
		earlier(l.inst[id].RetryAt)
		if i := l.inst[id]; !i.Told {
			earlier(i.Deadline)
		}
	}
	return next
}

func orNothing(s string) string {
	if s == "" {
		return "ended"
	}
	return s
}

func (i *Instance) event(now time.Time, t wire.EventType, reason, text string) wire.Event {
	return wire.Event{At: now, Type: t, Reason: reason, Text: text, App: i.Service.App, Service: i.Service.Service,
		Instance: i.ID, Cluster: i.Cluster, Worker: i.Worker, Org: i.Org}
}

// step adds an entry to the timeline; the oldest but the first go when it grows long.
func (i *Instance) step(now time.Time, text string) {
	if n := len(i.Timeline); n > 0 && i.Timeline[n-1].State == i.State && i.Timeline[n-1].Phase == i.Phase && i.Timeline[n-1].Text == text {
		return
	}
	i.Timeline = append(i.Timeline, wire.Step{At: now, State: i.State, Phase: i.Phase, Text: text})
	if len(i.Timeline) > maxTimeline {
		i.Timeline = slices.Delete(slices.Clone(i.Timeline), 1, 2) // others may read the one that they were shown
	}
}

// firstWhy is the first reason of the last decision, or what else there is to say.
func firstWhy(i *Instance, otherwise string) string {
	if len(i.Why) == 0 {
		return otherwise
	}
	return i.Why[0].Text
}

// countedAt and nearerAt give these times.
func (i *Instance) countedAt() time.Time {
	if i.counts == nil {
		return time.Time{}
	}
	return i.counts.at
}

func (i *Instance) nearerAt() time.Time {
	if i.counts == nil {
		return time.Time{}
	}
	return i.counts.nearer
}

// follows reports whether the generation of an instance is its application's, whatever its record has: that of the last change of its own.
// A change of an application that leaves a service's template alone is then one record, and not one for each instance as well. A site has
// delegated applications change otherwise, claims of volumes follow from what is saved, and a copy that is to take another's place waits
// for that.
func (i *Instance) follows(a *App) bool {
	s := a.Manifest.Spec.Service(i.Service.Service)
	return s != nil && (s.Mode == "" || s.Mode == spec.ModeService || s.Mode.HasCopies()) && !s.KeepsData() && a.Deployed &&
		!a.Deleting && !a.Delegated && i.Live() && i.Run == "" && i.Resize == nil && i.Replaces == "" && i.Revision == a.revisions[s.Name]
}

// saveApp writes the record of an application, after those of instances whose generation does not follow from it: were the application's
// there alone, they would fall back to that of their record.
func (l *lifecycle) saveApp(a *App, fx *wire.Effects) {
	l.keepGenerations(a, fx)
	l.catalog.saveApp(a, fx)
}

// keepGenerations writes down the generation of instances that no longer follow their application, as it has another template for them.
func (l *lifecycle) keepGenerations(a *App, fx *wire.Effects) {
	var late []*Instance
	for _, k := range l.servicesWithInstances(a.Key()) {
		for _, i := range l.byService[k] {
			if i.behind && !i.follows(a) {
				late = append(late, i)
			}
		}
	}
	slices.SortFunc(late, func(x, y *Instance) int { return strings.Compare(string(x.ID), string(y.ID)) })
	for _, i := range late {
		l.saveInstance(i, fx)
	}
}
