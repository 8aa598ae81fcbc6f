package apps

import (
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

const (
	// firstCalm is the least time between two tries to keep an instance's SLA elsewhere; it doubles each time.
	firstCalm   = time.Minute
	longestCalm = time.Hour
)

// mover has instances take each other's place at another holder: a copy starts there, and the first one ends when it is ready.
type mover struct{ *lifecycle }

// violated takes what a holder says of an SLA that it cannot keep.
func (l *lifecycle) violated(now time.Time, i *Instance, why string) {
	was := slices.ContainsFunc(i.Conditions, func(k skerry.Condition) bool { return k.Type == skerry.Satisfied })
	if why == "" && !was {
		return // it never was violated
	}
	i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.Satisfied, why == "", why)
	if why != "" {
		l.Look(i.Service.App)
	}
}

// seekElsewhere starts an instance at another holder for one whose holder cannot keep its SLA; when it is ready it takes
// the first one's place (make before break). Never are more under way than an update may have beyond the replicas.
func (m *mover) seekElsewhere(now time.Time, a *App, s *spec.ServiceSpec, list []*Instance, fx *wire.Effects) {
	if len(m.targets) < 2 || s.Placement.Cluster != "" || s.KeepsData() {
		return
	}
	room := max(1, *s.Update.MaxSurge)
	for _, n := range m.byService[skerry.ServiceKey{App: a.Key(), Service: s.Name}] {
		if n.Replaces != "" {
			room-- // it may run until its end is confirmed
		}
	}
	for _, i := range list {
		k := slices.IndexFunc(i.Conditions, func(k skerry.Condition) bool { return k.Type == skerry.Satisfied && !k.Status })
		if k < 0 || i.State != skerry.Running || i.Cut || i.Replaces != "" || m.replacement(i) != nil {
			continue
		}
		if now.Before(i.Calm) && i.Calm.Sub(now) <= longestCalm { // else the clock was set back
			m.wakeAt(a.Key(), i.Calm)
			continue
		}
		if room <= 0 {
			return // the end of one that is under way comes back here
		}
		if m.otherEndMoves(a, s) { // then it is judged again first, or the two would change places
			i.Calm = now.Add(firstCalm)
			m.wakeAt(a.Key(), i.Calm)
			continue
		}
		room--
		m.startElsewhere(now, a, s, i, i.Conditions[k].Reason, fx)
	}
}

// startElsewhere starts an instance that is to replace another at another holder.
func (m *mover) startElsewhere(now time.Time, a *App, s *spec.ServiceSpec, i *Instance, why string, fx *wire.Effects) *Instance {
	i.Calm = now.Add(min(longestCalm, firstCalm<<min(i.Moves, 10)))
	i.Moves++
	m.saveInstance(i, fx)
	n := m.create(now, a, s, i.Ordinal, "", "", fx)
	n.Replaces, n.Shun, n.Moves, n.Calm = i.ID, append(slices.Clone(i.Shun), i.Holder), i.Moves, i.Calm
	m.saveInstance(n, fx)
	m.wakeAt(a.Key(), n.CreatedAt.Add(CopyTime+time.Millisecond))
	fx.Events = append(fx.Events, i.event(now, wire.EventWarning, "Elsewhere", "a copy starts elsewhere: "+why))
	return n
}

// TryElsewhere starts an instance at another holder for one that its holder does not start; whichever is ready first stays.
// It reports whether that may be and was begun.
func (m *mover) TryElsewhere(now time.Time, i *Instance, why string, fx *wire.Effects) bool {
	a := m.apps[i.Service.App]
	if a == nil || len(m.targets) < 2 || i.Replaces != "" || m.replacement(i) != nil {
		return false
	}
	s := a.Manifest.Spec.Service(i.Service.Service)
	if s == nil || s.Mode != spec.ModeService || s.Placement.Cluster != "" || s.KeepsData() || a.revisions[s.Name] != i.Revision {
		return false
	}
	m.startElsewhere(now, a, s, i, why, fx)
	return true
}

// Bound says why an instance can run nowhere but at its holder, or nothing.
func (m *mover) Bound(inst *Instance) string {
	app := m.apps[inst.Service.App]
	var svc *spec.ServiceSpec
	if app != nil {
		svc = app.Manifest.Spec.Service(inst.Service.Service)
	}
	switch {
	case svc == nil:
		return "" // it is about to end
	case svc.Mode.HasCopies():
		return "its service runs once on each worker"
	case svc.Mode != spec.ModeService:
		return "it is a job, which is not moved"
	case svc.Placement.Cluster != "":
		return "its manifest names cluster " + svc.Placement.Cluster
	case svc.KeepsData():
		return "it keeps data in its local volumes, which do not go along"
	case len(svc.HostPaths()) > 0:
		return "it keeps data at " + svc.HostPaths()[0] + " of its worker, which does not go along"
	}
	return ""
}

// Replaced gives those of many instances that have a copy under way that is to take their place.
func (m *mover) Replaced(list []*Instance) map[skerry.InstanceID]bool {
	out, seen := map[skerry.InstanceID]bool{}, map[skerry.ServiceKey]bool{}
	for _, inst := range list {
		if seen[inst.Service] {
			continue
		}
		seen[inst.Service] = true
		for _, n := range m.byService[inst.Service] {
			if n.Replaces != "" && n.Live() {
				out[n.Replaces] = true
			}
		}
	}
	return out
}

// Leave starts an instance at another holder for one that somebody wants to be elsewhere; when it is ready it takes the first one's place,
// and if it finds none nothing changes. It says why that may not be begun now, or nothing.
func (m *mover) Leave(now time.Time, inst *Instance, why string, fx *wire.Effects) string {
	app := m.apps[inst.Service.App]
	var svc *spec.ServiceSpec
	if app != nil {
		svc = app.Manifest.Spec.Service(inst.Service.Service)
	}
	switch {
	case svc == nil || inst.Stopping:
		return "it is about to end"
	case inst.Replaces != "" || m.replacement(inst) != nil || inst.Next != nil || inst.Left != nil:
		return "it is on its way already"
	case app.revisions[svc.Name] != inst.Revision:
		return "an update is about to end it"
	}
	n := m.startElsewhere(now, app, svc, inst, why, fx)
	n.Asked = true
	m.saveInstance(n, fx)
	return ""
}

// MoveTo starts an instance at a certain other holder for one, because somebody wants that; when it is ready it takes the
// first one's place. That the holder may have it has been found out. It gives the new one's name.
func (m *mover) MoveTo(now time.Time, i *Instance, to, why string, fx *wire.Effects) (skerry.InstanceID, *skerry.Error) {
	a := m.apps[i.Service.App]
	var s *spec.ServiceSpec
	if a != nil {
		s = a.Manifest.Spec.Service(i.Service.Service)
	}
	refuse := func(text string) (skerry.InstanceID, *skerry.Error) {
		return "", skerry.Errorf(skerry.CodeConflict, "instance %s cannot move to another cluster: %s", i.ID, text)
	}
	switch {
	case s == nil || i.Stopping || i.State != skerry.Running || i.Cut:
		return refuse("it does not run, or its cluster is out of touch")
	case m.Bound(i) != "":
		return refuse(m.Bound(i))
	case i.Replaces != "" || m.replacement(i) != nil || i.Next != nil || i.Left != nil:
		return refuse("it is on its way already")
	case !s.Placement.AllowsCluster(to):
		return refuse("its manifest allows only clusters " + strings.Join(s.Placement.Clusters, ", "))
	case !m.Allows(s, to):
		return refuse("its manifest allows only clusters with the labels " + spec.LabelText(s.Placement.ClusterLabels))
	case a.revisions[s.Name] != i.Revision:
		return refuse("an update is about to end it")
	}
	n := m.startElsewhere(now, a, s, i, why, fx)
	n.Asked = true
	for _, name := range m.targets {
		if name != to && !slices.Contains(n.Shun, name) {
			n.Shun = append(n.Shun, name)
		}
	}
	n.Shun = slices.DeleteFunc(n.Shun, func(name string) bool { return name == to })
	m.saveInstance(n, fx)
	return n.ID, nil
}

// settleReplacements ends instances whose replacement is ready, and replacements that found no place; it gives the rest
// without replacements under way, which do not count as replicas.
func (m *mover) settleReplacements(now time.Time, list []*Instance, fx *wire.Effects) []*Instance {
	var out []*Instance
	for _, n := range list {
		if n.Replaces == "" {
			out = append(out, n)
			continue
		}
		old := m.inst[n.Replaces]
		switch {
		case old == nil || !old.Live():
			n.Replaces, n.Shun, n.Asked = "", nil, false
			m.saveInstance(n, fx)
			out = append(out, n)
		case n.IsReady():
			why := "replaced where its SLA is kept"
			if n.Asked {
				why = "moved to cluster " + n.Holder + ", as somebody wanted"
			}
			m.stop(now, old, why, fx)
			n.Replaces, n.Shun, n.Asked = "", nil, false
			m.saveInstance(n, fx)
			out = append(out, n)
		case !n.Asked && old.IsReady() && !slices.ContainsFunc(old.Conditions, func(k skerry.Condition) bool { return k.Type == skerry.Satisfied && !k.Status }):
			m.stop(now, n, "the first one keeps its SLA again", fx)
		case n.Holder == "" && n.Misses > 0 || now.Sub(n.CreatedAt) > CopyTime:
			m.stop(now, n, "no better place was found", fx)
		default:
			m.wakeAt(n.Service.App, n.CreatedAt.Add(CopyTime+time.Millisecond))
		}
	}
	return slices.DeleteFunc(out, func(i *Instance) bool { return !i.Live() })
}

// CopyTime is how long a copy that is to take an instance's place elsewhere has to get ready.
const CopyTime = 3 * time.Minute
