package core

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/uplink"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// herald tells whoever wants an instance here, the root or the site's own applications, how it is, and the journal what
// happens at the site. The root learns of no worker and of no address. It changes nothing of what it tells about.
//
//	an instance, a group ─► report ─► the root's set of observations
//	                     └► Observe ─► the site's own applications
//	something happens ─► event ─► the journal ─► and the root's, without names of workers
type herald struct {
	ledger
	name    string // of the site
	workers roster
	Apps    *apps.Controller // the site's own applications
	Up      *members.Parent  // the link to the root
	codec   *wire.Codec
}

// siteEvent tells of something that is the site's own business; it does not go up.
func (h *herald) siteEvent(fx *wire.Effects, now time.Time, t wire.EventType, reason, text, worker string) {
	fx.Events = append(fx.Events, wire.Event{At: now, Type: t, Reason: reason, Text: text, Worker: skerry.WorkerName(worker),
		Cluster: skerry.ClusterName(h.name)})
}

// event tells of something that happened to an instance; for one of the root it also goes up, without workers' names.
func (h *herald) event(fx *wire.Effects, now time.Time, p *placement, t wire.EventType, reason, text string) {
	h.eventUp(fx, now, p, t, reason, text, text)
}

// eventUp is event where what goes up says less.
func (h *herald) eventUp(fx *wire.Effects, now time.Time, p *placement, t wire.EventType, reason, text, up string) {
	e := wire.Event{At: now, Type: t, Reason: reason, Text: text, App: p.A.Service.App, Service: p.A.Service.Service,
		Instance: p.A.ID, Worker: skerry.WorkerName(p.Worker), Cluster: skerry.ClusterName(h.name), Org: p.A.Org}
	fx.Events = append(fx.Events, e)
	if p.Origin == "root" && t == wire.EventWarning {
		e.Worker, e.Text = "", h.workers.redact(p, up)
		if p.Group != "" {
			e.Instance = p.Group // a copy's id names its worker
		}
		if _, err := h.Up.Events.Append(h.codec.Marshal(e)); err == nil {
			return // an event that is too large to travel stays here
		}
	}
}

func (h *herald) report(spec *spec.ServiceSpec, o wire.Observation) {
	o.Address, o.Devices = "", nil
	o.Why = uplink.InCounts(spec, o.Why)
	o.Ports = slices.Clone(o.Ports)
	for i := range o.Ports {
		o.Ports[i].Address = ""
	}
	_, _ = h.Up.Observed.Put(wire.AssignmentKey(o.ID), h.codec.Marshal(&o)) // it always fits: texts are bounded, ports few
}

// ownerGone tells the owner that nothing of an instance is left here.
func (h *herald) ownerGone(now time.Time, id skerry.InstanceID, fx *wire.Effects) {
	h.Up.Observed.Delete(wire.AssignmentKey(id))
	h.Apps.Gone(now, Self, id, fx)
}

// mine reports whether the site decides about an instance: its own, and those of delegated applications.
func (h *herald) mine(p *placement) bool {
	i := h.Apps.Instance(p.A.ID)
	return i != nil && i.Holder == Self
}

// localApp gives an application of the site's own, or nil.
func (h *herald) localApp(k skerry.AppKey) *apps.App {
	if a := h.Apps.App(k); a != nil && !a.Delegated {
		return a
	}
	return nil
}

func (h *herald) rootWants(id skerry.InstanceID) bool {
	_, _, ok := h.Up.Desired.Get(wire.AssignmentKey(id))
	return ok
}

// tellGroup folds the copies of a group into one observation for its owner.
func (h *herald) tellGroup(now time.Time, g *group, fx *wire.Effects) {
	list := h.copies(g.A.ID)
	if g.Removing && len(list) == 0 {
		h.strikeGroup(g.A.ID)
		fx.Delete(prefixGroup + string(g.A.ID))
		h.ownerGone(now, g.A.ID, fx)
		return
	}
	var turns []*placement // of the version before, which stay until it is their turn
	if !g.Removing {
		turns, _ = h.before(g)
	}
	o := wire.Observation{ID: g.A.ID, Gen: g.A.Gen, Fence: g.A.Fence, State: skerry.ClusterScheduled, Restart: g.A.Restart,
		Want: len(list) + len(turns)}
	if len(list) == 0 {
		if o.Reason = "no worker fits yet"; g.A.Spec.Mode == spec.ModePerDevice {
			o.Reason = "no worker offers a device that fits yet"
		}
	}
	for _, p := range list {
		switch {
		case p.Obs.Ready:
			o.Have++
		case p.Obs.Reason != "" && o.Reason == "":
			o.Reason = h.workers.redact(p, p.Obs.Reason)
		}
		if p.Obs.State == skerry.Running {
			o.State = skerry.Running
		} else if p.Worker != "" && o.State == skerry.ClusterScheduled {
			o.State = skerry.WorkerScheduled
		}
		if o.CrashLoop == "" {
			o.CrashLoop = h.workers.redact(p, p.Obs.CrashLoop)
		}
		if !slices.Contains(g.Ailing, p.spot()) { // restarts speak against the version
			o.Restarts += p.Obs.Restarts
		}
		if p.Obs.State == skerry.Running { // else it will run as if it was restarted
			o.Restart = min(o.Restart, p.Obs.Restart)
		}
	}
	if len(turns) > 0 && o.Reason == "" {
		what := " workers until it is their turn"
		if g.A.Spec.Mode == spec.ModePerDevice {
			what = " devices until it is their turn"
		}
		o.Reason = "the version before runs on " + strconv.Itoa(len(turns)) + what
	}
	o.Copies = h.counts(g, list, turns)
	o.Ready = o.Want > 0 && o.Have == o.Want
	if o.Ready {
		o.Reason = ""
	}
	h.tellGroupAs(now, g, o, fx)
	if g.Removing {
		if next := h.successor(g); next != nil { // it counts those of this one that stay until it is their turn
			h.tellGroup(now, next, fx)
		}
	}
}

// counts tells how far the copies of a group have come, beside those of other groups whose turn is yet to come.
func (h *herald) counts(of *group, list, turns []*placement) *wire.Copies {
	sum := &wire.Copies{Former: len(turns), Canary: of.trial}
	for _, p := range turns {
		if p.Obs.Ready {
			sum.Serving++
		}
	}
	begun := h.begunFor(of)
	for _, p := range list {
		switch {
		case p.Obs.State == skerry.Terminated:
			sum.Done++
		case (!p.Obs.Ready || p.Obs.CrashLoop != "") && !h.workers.silent(p, begun) && !slices.Contains(of.Ailing, p.spot()):
			sum.Short++
		}
		delete(begun, p.spot())
	}
	for at := range begun { // the other one has not ended yet
		if w := h.workers[at.worker()]; w != nil && w.report.Frozen == "" && w.refusing() == "" { // else nothing can come there
			sum.Short++
		}
	}
	return sum
}

func (h *herald) tellGroupAs(now time.Time, g *group, o wire.Observation, fx *wire.Effects) {
	if g.Origin == "local" {
		h.Apps.Observe(now, Self, o, fx)
		return
	}
	h.report(&g.A.Spec, o)
}

func (h *herald) show(p *placement) wire.Instance {
	o := p.Obs
	v := wire.Instance{ID: p.A.ID, Service: p.A.Service, Org: p.A.Org, Ordinal: p.A.Ordinal, Gen: p.A.Gen, Revision: p.A.Revision,
		State: o.State, Phase: o.Phase, Reason: o.Reason, Why: o.Why, Cluster: skerry.ClusterName(h.name), Worker: skerry.WorkerName(p.Worker),
		Runtime: o.Runtime, Restarts: o.Restarts, Exit: o.Exit, Address: o.Address, Ports: o.Ports, Fence: p.A.Fence, QoS: p.qos,
		CreatedAt: p.Created, StartedAt: o.StartedAt, Stopping: p.Removing, Digest: o.Digest, Monitor: o.Monitor, Timeline: p.Timeline,
		Resources: p.A.Level.Enforced(p.A.Spec.Resources, p.A.Runtime).OrNone(),
		Overhead:  p.A.Spec.Overhead(p.A.Runtime).OrNone(), Egress: p.A.Egress,
		Devices: p.A.Devices}
	why := o.Reason
	if !o.Ready && why == "" {
		why = "not ready"
	}
	if o.Ready {
		why = ""
	}
	since := p.Created
	if n := len(p.Timeline); n > 0 {
		since = p.Timeline[n-1].At
	}
	v.Conditions = []skerry.Condition{{Type: skerry.Ready, Status: o.Ready, Reason: why, Since: since}}
	touch := ""
	if o.Unreachable {
		touch = "its worker is not in touch"
	}
	if o.Frozen != "" {
		v.Conditions = append(v.Conditions, skerry.Condition{Type: skerry.Frozen, Status: true, Reason: o.Frozen, Since: since})
	}
	switch {
	case p.Limits != nil:
		v.Conditions = append(v.Conditions, skerry.Condition{Type: skerry.UpToDate, Reason: "its limits stay: " + p.Limits.Reason, Since: since})
	case p.Resize != nil:
		v.Conditions = append(v.Conditions, skerry.Condition{Type: skerry.UpToDate, Reason: "its limits change while it runs", Since: since})
	}
	if p.SLA.Alarmed() {
		why, judged := p.SLA.Violated()
		v.Conditions = append(v.Conditions, skerry.Condition{Type: skerry.Satisfied, Reason: why, Since: judged})
	}
	if p.Strain.Crowded != "" {
		v.Conditions = append(v.Conditions, skerry.Condition{Type: skerry.HeadRoom, Reason: p.Strain.Crowded, Since: since})
	}
	if o.CrashLoop != "" {
		v.Conditions = append(v.Conditions, skerry.Condition{Type: skerry.CrashLoop, Status: true, Reason: o.CrashLoop, Since: since})
	}
	v.Conditions = append(v.Conditions, skerry.Condition{Type: skerry.Reachable, Status: !o.Unreachable, Reason: touch, Since: since})
	return v
}

// answerOf is what the owner of an instance is told; nil: it need not know.
func (h *herald) answerOf(p *placement) *wire.SuccessorAnswer {
	k := h.asking[p.A.ID]
	switch {
	case k != nil && p.A.Successor != nil:
		told := k.SuccessorAnswer
		return &told
	case p.A.Spec.EndsFirst():
		return &wire.SuccessorAnswer{} // it would be answered
	}
	return nil
}

// redactAnswer is an answer that names no worker.
func (h *herald) redactAnswer(p *placement, k *wire.SuccessorAnswer) *wire.SuccessorAnswer {
	if k == nil {
		return nil
	}
	return &wire.SuccessorAnswer{Revision: k.Revision, Why: h.workers.redact(p, k.Why)}
}

// takenHere says why an instance of the root's may not come: the site has an application of its name, and of another organisation.
func (h *herald) takenHere(a *spec.Assignment, origin string) *wire.Reason {
	if local := h.localApp(a.Service.App); origin != "root" || local == nil || local.Org == a.Org {
		return nil
	}
	return &wire.Reason{What: "admission", Text: "this site has an application " + a.Service.App.String() +
		" of its own, of another organisation", Hint: "choose another site or name, or ask the operator of the site"}
}

// arrivalsBy tells the site's own applications what came to them by a worker's ingress.
func (h *herald) arrivalsBy(now time.Time, w *worker) {
	by := map[skerry.ServiceKey]wire.IngressUse{}
	for _, u := range w.report.Ingress {
		if h.localApp(u.Service.App) != nil {
			by[u.Service] = by[u.Service].Add(u)
		}
	}
	h.Apps.Arrivals(now, w.Name, by)
}

// came sums what comes to the root's services by the ingresses of the site.
func (h *herald) arrivals() map[skerry.ServiceKey]wire.IngressUse {
	by := map[skerry.ServiceKey]wire.IngressUse{}
	for _, name := range slices.Sorted(maps.Keys(h.workers)) { // the sums do not depend on the order
		w := h.workers[name]
		if w.sight.Lost() {
			continue
		}
		for _, u := range w.report.Ingress {
			if h.localApp(u.Service.App) == nil {
				by[u.Service] = by[u.Service].Add(u)
			}
		}
	}
	return by
}

// foldArrivals tells the root what comes to its services here.
func (h *herald) foldArrivals() []wire.IngressUse {
	var out []wire.IngressUse
	for k, u := range h.arrivals() {
		u.Service = k
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b wire.IngressUse) int { return strings.Compare(a.Service.String(), b.Service.String()) })
	return out[:min(len(out), wire.MaxIngressUses)]
}

// showNow shows an instance with what it uses now: not what it used last where nobody hears of it.
func (h *herald) showNow(p *placement) wire.Instance {
	shown := h.show(p)
	if !h.workers.uses(p) {
		shown.QoS = nil
	}
	return shown
}

// Instances lists every instance at the site: those placed, whoever wants them, and those of the site's own
// applications that have no place yet.
func (h *herald) Instances() []wire.Instance {
	out := make([]wire.Instance, 0, len(h.places))
	for _, id := range sortedIDs(h.places) {
		if p := h.places[id]; !p.Refused {
			out = append(out, h.showNow(p))
		}
	}
	for _, a := range h.Apps.Apps() {
		for _, i := range h.Apps.InstancesOf(a.Key()) {
			if h.places[i.ID] == nil && h.groups[i.ID] == nil {
				out = append(out, i.Instance)
			}
		}
	}
	return out
}

// InstancePage gives a part of what Instances does, in the order of IDs, and whether there is more after it.
func (h *herald) InstancePage(page *apps.InstancePage) (out []wire.Instance, more bool) {
	local := func(id skerry.InstanceID) bool { return h.places[id] == nil && h.groups[id] == nil }
	picked, more := page.Pick(func(yield func(skerry.InstanceID, skerry.ServiceKey) bool) {
		for id, p := range h.places {
			if !p.Refused && !yield(id, p.A.Service) {
				return
			}
		}
		for i := range h.Apps.Every {
			if local(i.ID) && !yield(i.ID, i.Service) {
				return
			}
		}
	})
	for _, id := range picked {
		if i, _, ok := h.Instance(id); ok {
			out = append(out, i)
		}
	}
	return out, more
}

// Instance finds one instance, or gives false.
func (h *herald) Instance(id skerry.InstanceID) (wire.Instance, *wire.Decision, bool) {
	if p := h.places[id]; p != nil {
		return h.showNow(p), p.Decision, true
	}
	if i := h.Apps.Instance(id); i != nil {
		return i.Instance, i.Decision, true
	}
	return wire.Instance{}, nil, false
}

// Self is the holder's name of instances that the site's own applications want.
const Self = "self"

func NoInstance(id skerry.InstanceID) error {
	return skerry.Errorf(skerry.CodeNotFound, "there is no instance %q at this site", id).WithHint("`skerry get instances` lists them")
}

func orNobody(actor string) string {
	if actor == "" {
		return "the system"
	}
	return actor
}
