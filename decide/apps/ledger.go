package apps

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/sorted"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Instance is an instance with what this tier knows of its place.
type Instance struct {
	wire.Instance
	Holder   string            `json:"holder,omitempty"`   // the child that has it; empty: it needs one
	Target   string            `json:"target,omitempty"`   // the only child that may have it (perWorker)
	Run      string            `json:"run,omitempty"`      // the run of a job it belongs to
	Rejected []string          `json:"rejected,omitempty"` // children that had no place for it, in this round
	Refusals []wire.Reason     `json:"refusals,omitempty"` // what they said
	Restart  uint64            `json:"restart,omitempty"`  // restart asked for
	Failures int32             `json:"failures,omitempty"` // in a row, for the back-off
	Misses   int32             `json:"misses,omitempty"`   // rounds in a row in which nobody had a place, for the back-off
	RetryAt  time.Time         `json:"retryAt,omitzero"`   // not before
	Deadline time.Time         `json:"deadline,omitzero"`  // end of the convergence time
	Told     bool              `json:"told,omitempty"`     // the deadline's event was sent
	Spec     *spec.ServiceSpec `json:"spec"`
	Decision *wire.Decision    `json:"decision,omitempty"`
	Due      time.Time         `json:"due,omitzero"`       // a job must be done by then
	Replaces skerry.InstanceID `json:"replaces,omitempty"` // the instance whose SLA it is to keep elsewhere
	Asked    bool              `json:"asked,omitempty"`    // it replaces that because somebody asked for it
	Shun     []string          `json:"shun,omitempty"`     // holders that cannot keep its SLA
	Moves    int               `json:"moves,omitempty"`    // for its SLA, so far
	Calm     time.Time         `json:"calm,omitzero"`      // no such move before
	// Next is the copy that is to take over from a holder that is out of touch, Left the one that was left behind there.
	Next *Copy `json:"next,omitempty"`
	Left *Copy `json:"left,omitempty"`
	// Cut: its holder is out of touch for so long that the tier above seeks another.
	Cut        bool          `json:"cut,omitempty"`
	PriorFence *skerry.Fence `json:"held,omitempty"` // as in Assignment
	// Bound: its holder has confirmed that it ends it by itself when it is out of touch (Assignment.Failover).
	Bound bool `json:"bound,omitempty"`
	// Resize are other limits that it is to have while it runs on; nil: it has those of Spec.
	Resize *Resize `json:"resize,omitempty"`
	// Taken is the last change of limits that was taken back; its holder may have carried it out.
	Taken *Resize `json:"taken,omitempty"`
	// Looping: its holder tells of a crash loop. The condition outlives that until it has run steadily, perhaps elsewhere.
	Looping bool `json:"looping,omitempty"`
	// Restarted is how many of the restarts that somebody asked for are carried out, its site's users included.
	Restarted uint64 `json:"restarted,omitempty"`
	// Fixed is the revision whose limits it could not be given while it runs, Limited when they were changed last.
	Fixed   string    `json:"fixed,omitempty"`
	Limited time.Time `json:"limited,omitzero"`
	// Ask is what its holder is asked about its successor; nil: nothing. Answers: its holder answers such questions.
	Ask     *Ask `json:"ask,omitempty"`
	Answers bool `json:"answers,omitempty"`
	counted bool // in its run's result. It stands here so that an instance fits into 1,024 bytes (TestInstanceSize)
	behind  bool // its record has an earlier generation (follows)
	apart   bool // it is out of touch, and its record says otherwise (OutOfTouch)
	// Copies counts the copies that it stands for, if its service is perWorker. Exchange is as in Assignment. Both follow from what sites
	// report and from the rollout, so they are in no record, which an older program could not open.
	Copies   *wire.Copies `json:"-"`
	Exchange string       `json:"-"`
	// Shared is what all instances of its service at its holder use together, where that is all that is known.
	Shared *wire.QoS    `json:"shared,omitempty"`
	counts *counts      // nil: they have not changed since the start
	listed string       // the holder under which the ledger lists it; empty: none
	fence  skerry.Fence // of the copy that was reported last; zero: not known since the start
}

// counts is when Copies, Want or Have of an instance last changed, and when they last came nearer to what is wanted. Nobody changes it in
// place.
type counts struct{ at, nearer time.Time }

// restarts is how often the copy that is reported was restarted since the last report. Another copy comes with a count of its own, of
// which nothing is new: an original that is kept in place of its replacement counts on where it was.
func (i *Instance) restarts(before *Instance) int {
	if before.fence != (skerry.Fence{}) && i.fence != before.fence {
		return 0
	}
	return max(0, i.Restarts-before.Restarts)
}

// Live reports whether the instance is or should be running.
func (i *Instance) Live() bool { return !i.Stopping && !i.State.Final() }

// IsReady reports whether it may get traffic.
func (i *Instance) IsReady() bool {
	return i.State == skerry.Running && skerry.HasCondition(i.Conditions, skerry.Ready)
}

// Shown is the instance as users see it. Whether one is ready whose holder is out of touch, nobody here knows; for decisions it
// stays what it was when it was heard of last.
func (i *Instance) Shown() wire.Instance {
	out := i.Instance
	for _, k := range i.Conditions {
		if k.Type == skerry.Reachable && !k.Status && i.IsReady() {
			out.Conditions = skerry.SetCondition(i.Conditions, k.Since, skerry.Ready, false, k.Reason)
		}
	}
	return out
}

// ledger has the instances of a tier, and lists those for the core above to place and to end. It alone changes its lists (archtest
// TestOwners) and has the claims of local volumes follow. It knows nothing of applications but what an instance says.
//
//	add ─► unplaced ─ gets a holder ─► placed ─ to be ended ─► stopping ─► drop
//	          ▲                          │
//	          └── its holder is gone ────┘
type ledger struct {
	*claims
	seed      [16]byte
	counter   uint64
	local     string // prefix for instance ids; keeps those of different tiers apart
	inst      map[skerry.InstanceID]*Instance
	order     sorted.List[*Instance] // the same by ID
	byService map[skerry.ServiceKey]map[skerry.InstanceID]*Instance
	byHolder  map[string]map[skerry.InstanceID]*Instance
	unplaced  map[skerry.InstanceID]bool
	stopping  map[skerry.InstanceID]bool
	ofApp     map[skerry.AppKey]map[string]bool // names of services with instances
	labels    map[string]map[string]string      // of holders
}

func newLedger(seed [16]byte, tier string) *ledger {
	return &ledger{claims: newClaims(), seed: seed, local: tier, inst: map[skerry.InstanceID]*Instance{},
		byService: map[skerry.ServiceKey]map[skerry.InstanceID]*Instance{}, ofApp: map[skerry.AppKey]map[string]bool{},
		byHolder: map[string]map[skerry.InstanceID]*Instance{},
		unplaced: map[skerry.InstanceID]bool{}, stopping: map[skerry.InstanceID]bool{}, labels: map[string]map[string]string{}}
}

func (l *ledger) addInstance(i *Instance) {
	l.inst[i.ID] = i
	l.order.Put(string(i.ID), i)
	m := l.byService[i.Service]
	if m == nil {
		m = map[skerry.InstanceID]*Instance{}
		l.byService[i.Service] = m
		if l.ofApp[i.Service.App] == nil {
			l.ofApp[i.Service.App] = map[string]bool{}
		}
		l.ofApp[i.Service.App][i.Service.Service] = true
	}
	m[i.ID] = i
	l.index(i)
}

// index keeps the two work lists, and that of its holder, right after a change of an instance.
func (l *ledger) index(i *Instance) {
	if i.State == skerry.Requested && i.Holder == "" && !i.Stopping {
		l.unplaced[i.ID] = true
	} else {
		delete(l.unplaced, i.ID)
	}
	if i.Stopping {
		l.stopping[i.ID] = true
	} else {
		delete(l.stopping, i.ID)
	}
	l.list(i, i.Holder)
}

// list has a holder's list have an instance, and no other; empty: none has.
func (l *ledger) list(i *Instance, holder string) {
	if i.listed == holder {
		return
	}
	if was := l.byHolder[i.listed]; was != nil {
		if delete(was, i.ID); len(was) == 0 {
			delete(l.byHolder, i.listed)
		}
	}
	if i.listed = holder; holder == "" {
		return
	}
	if l.byHolder[holder] == nil {
		l.byHolder[holder] = map[skerry.InstanceID]*Instance{}
	}
	l.byHolder[holder][i.ID] = i
}

func (l *ledger) saveInstance(i *Instance, fx *wire.Effects) {
	l.index(i)
	i.behind, i.apart = false, false
	i.shareResources()
	if i.Spec.KeepsData() {
		l.noteClaim(i, fx)
	}
	fx.Put(prefixInst+string(i.ID), mustJSON(i))
	l.showInstance(i, fx)
}

// shareResources shows the resources of the instance's specification, which nobody changes in place.
func (i *Instance) shareResources() {
	if i.Resources = nil; i.Spec.Resources != (spec.Resources{}) {
		i.Resources = &i.Spec.Resources
	}
}

// showInstance tells users that an instance has changed.
func (l *ledger) showInstance(i *Instance, fx *wire.Effects) {
	fx.Changed = append(fx.Changed, wire.Change{App: i.Service.App, Instance: i.ID, Org: i.Org})
}

func (l *ledger) dropInstance(i *Instance, fx *wire.Effects) {
	delete(l.inst, i.ID)
	l.order.Remove(string(i.ID))
	delete(l.byService[i.Service], i.ID)
	if len(l.byService[i.Service]) == 0 {
		delete(l.byService, i.Service)
		if delete(l.ofApp[i.Service.App], i.Service.Service); len(l.ofApp[i.Service.App]) == 0 {
			delete(l.ofApp, i.Service.App)
		}
	}
	delete(l.unplaced, i.ID)
	delete(l.stopping, i.ID)
	l.list(i, "")
	fx.Delete(prefixInst + string(i.ID))
	fx.Changed = append(fx.Changed, wire.Change{App: i.Service.App, Instance: i.ID, Org: i.Org, Deleted: true})
}

// newID mints an instance id: service, tier and forty bits that do not repeat.
func (l *ledger) newID(service string) skerry.InstanceID {
	for {
		l.counter++
		var buf [24]byte
		copy(buf[:], l.seed[:])
		binary.BigEndian.PutUint64(buf[16:], l.counter)
		sum := sha256.Sum256(buf[:])
		id := skerry.InstanceID(service + "-" + l.local + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5])))
		if l.inst[id] == nil {
			return id
		}
	}
}

// Instance finds an instance.
func (l *ledger) Instance(id skerry.InstanceID) *Instance { return l.inst[id] }

// Instances lists the instances of a service, oldest first.
func (l *ledger) Instances(k skerry.ServiceKey) []*Instance {
	out := slices.AppendSeq(make([]*Instance, 0, len(l.byService[k])), maps.Values(l.byService[k]))
	slices.SortFunc(out, func(a, b *Instance) int {
		if n := a.CreatedAt.Compare(b.CreatedAt); n != 0 {
			return n
		}
		if a.Ordinal != b.Ordinal {
			return a.Ordinal - b.Ordinal
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return out
}

// ofRevision gives an instance of a service that is of a revision, or nil.
func (l *ledger) ofRevision(k skerry.ServiceKey, rev string) *Instance {
	for _, i := range l.Instances(k) {
		if i.Revision == rev {
			return i
		}
	}
	return nil
}

// InstancesOf lists the instances of an application, by service and age.
func (l *ledger) InstancesOf(k skerry.AppKey) []*Instance {
	var out []*Instance
	for _, n := range slices.Sorted(maps.Keys(l.ofApp[k])) {
		out = append(out, l.Instances(skerry.ServiceKey{App: k, Service: n})...)
	}
	return out
}

// Unplaced lists the instances that need a holder and may be tried now, oldest first.
func (l *ledger) Unplaced(now time.Time) []*Instance {
	var out []*Instance
	for id := range l.unplaced {
		if i := l.inst[id]; !i.RetryAt.After(now) {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b *Instance) int {
		if n := a.CreatedAt.Compare(b.CreatedAt); n != 0 {
			return n
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return out
}

// Stopping lists the instances that their holder must end.
func (l *ledger) Stopping() []*Instance {
	out := make([]*Instance, 0, len(l.stopping))
	for id := range l.stopping {
		out = append(out, l.inst[id])
	}
	slices.SortFunc(out, func(a, b *Instance) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out
}

// HeldBy lists the instances that a child holds.
func (l *ledger) HeldBy(holder string) []*Instance {
	out := slices.Collect(maps.Values(l.byHolder[holder]))
	slices.SortFunc(out, func(a, b *Instance) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out
}

// CountHeldBy is how many these are.
func (l *ledger) CountHeldBy(holder string) int { return len(l.byHolder[holder]) }

// numbered is how many instances of a service have an address of their own: those with an ordinal.
func (l *ledger) numbered(k skerry.ServiceKey, s *spec.ServiceSpec) int {
	n := 0
	if s.Mode == "" || s.Mode == spec.ModeService {
		n = 1
		if s.Replicas != nil {
			n = *s.Replicas
		}
		if s.Sleeps() {
			n = max(n, 1) // its first instance keeps its address
		}
		for _, i := range l.byService[k] {
			n = max(n, i.Ordinal+1) // one that is on its way out is still reached
		}
	}
	return min(n, spec.MaxInstanceAddrs)
}

// RetryNow lets every waiting instance try again at once, because something changed that may help.
func (l *ledger) RetryNow() {
	for id := range l.unplaced {
		l.inst[id].RetryAt = time.Time{}
	}
}

func (l *ledger) servicesWithInstances(k skerry.AppKey) []skerry.ServiceKey {
	var out []skerry.ServiceKey
	for service := range l.ofApp[k] {
		out = append(out, skerry.ServiceKey{App: k, Service: service})
	}
	return out
}

func (l *ledger) anyStoppingOld(sk skerry.ServiceKey, rev string) bool {
	for _, i := range l.byService[sk] {
		if i.Stopping && !i.State.Final() && i.Revision != rev && (i.Target == "" || !outOfTouch(i)) {
			return true
		}
	}
	return false
}

// userOf gives the instance that has local volumes, or nil.
func (l *ledger) userOf(v spec.VolumeClaim) *Instance {
	if v.Volume != "" {
		return nil // its service no longer has it
	}
	for _, i := range l.byService[v.Service] {
		if i.Ordinal == v.Ordinal {
			return i
		}
	}
	return nil
}

// leaving counts the instances of a service that are told to end, and have not yet. With local volumes each holds its place.
func (l *ledger) leaving(s *spec.ServiceSpec, sk skerry.ServiceKey) (n int) {
	if !s.KeepsData() {
		return 0
	}
	for _, i := range l.byService[sk] {
		if i.Stopping {
			n++
		}
	}
	return n
}

// audit says which lists contradict the instances.
func (l *ledger) audit() (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	listed, unplaced, stopping, held := 0, 0, 0, 0
	for _, list := range l.byService {
		listed += len(list)
	}
	for _, list := range l.byHolder {
		held += len(list)
	}
	for id, i := range l.inst {
		if i.ID != id || l.byService[i.Service][id] != i || !l.ofApp[i.Service.App][i.Service.Service] {
			bad("%s is not listed under its service", id)
		}
		if waits := i.State == skerry.Requested && i.Holder == "" && !i.Stopping; waits != l.unplaced[id] {
			bad("%s at %q, %s, stopping %v: unplaced is %v", id, i.Holder, i.State, i.Stopping, l.unplaced[id])
		} else if waits {
			unplaced++
		}
		if i.Holder != "" {
			if held--; l.byHolder[i.Holder][id] != i {
				bad("%s is not listed under its holder %q, but under %q", id, i.Holder, i.listed)
			}
		}
		if i.Stopping != l.stopping[id] {
			bad("%s: stopping is %v, its list says %v", id, i.Stopping, l.stopping[id])
		} else if i.Stopping {
			stopping++
		}
	}
	if listed != len(l.inst) || len(faults) == 0 && (unplaced != len(l.unplaced) || stopping != len(l.stopping)) {
		bad("of %d instances %d are listed by service; %d are unplaced and %d stopping, their lists have %d and %d",
			len(l.inst), listed, unplaced, stopping, len(l.unplaced), len(l.stopping))
	}
	if held != 0 {
		bad("holders have %d instances more in their lists than they hold", held)
	}
	return faults
}

// wanted is the revision that an instance has or is to have.
func (i *Instance) wanted() string {
	if i.Resize != nil {
		return i.Resize.Revision
	}
	return i.Revision
}

// since is when the last stretch of steps began of which is is true, by this tier's clock: a holder's may say anything. Without any it is
// when the instance was made.
func (i *Instance) since(is func(wire.Step) bool) time.Time {
	n := len(i.Timeline)
	for n > 0 && !is(i.Timeline[n-1]) {
		n--
	}
	at := i.CreatedAt
	for ; n > 0 && is(i.Timeline[n-1]); n-- {
		at = i.Timeline[n-1].At
	}
	return at
}

// lastRan is how long an instance last ran without a break where it is now, by this tier's clock. One that ended before anybody heard that
// it ran did not run. One that stands for the copies at a site has no phase.
func (i *Instance) lastRan(now time.Time) time.Duration {
	end, running := now, skerry.PhaseRunning
	if i.Target != "" {
		running = skerry.PhaseNone
	}
	for n := len(i.Timeline) - 1; n >= 0 && i.Timeline[n].State != skerry.Requested; n-- {
		if t := &i.Timeline[n]; t.State != skerry.Running || t.Phase != running {
			end = t.At
		} else if n == 0 || i.Timeline[n-1].State != t.State || i.Timeline[n-1].Phase != t.Phase {
			return end.Sub(t.At)
		}
	}
	return 0
}

// well reports whether nothing is wrong with an instance as far as it has come; one that stands for the copies at a site may have some of
// another version yet, until it is their turn.
func (i *Instance) well() bool {
	if k := i.Copies; k != nil {
		return k.Short == 0
	}
	return i.IsReady()
}

// settled reports whether an instance has come and serves. Of a site that is out of touch nobody knows.
func (i *Instance) settled() bool {
	return i.well() && (i.Copies == nil || i.Copies.Former == 0 && !outOfTouch(i))
}

// barred reports whether an instance that stands for the copies at a site can have none there: the site is in quarantine, or does not
// admit the version.
func (i *Instance) barred() bool {
	return i.Holder == "" || i.Copies == nil && i.Want == 0 && i.Reason != ""
}

// silent reports whether an instance says nothing about its version: it has no place, or is out of touch or frozen. For a copy at a site
// others have ended, so that it says something without a place.
func (i *Instance) silent() bool {
	placed := i.State == skerry.Running || i.State == skerry.WorkerScheduled || i.Copies != nil
	return !placed || !skerry.HasCondition(i.Conditions, skerry.Reachable) || skerry.HasCondition(i.Conditions, skerry.Frozen)
}

// sinceOf is since when a condition of an instance is what it is.
func sinceOf(i *Instance, t skerry.ConditionType) time.Time {
	for _, k := range i.Conditions {
		if k.Type == t {
			return k.Since
		}
	}
	return i.CreatedAt
}

// conditionOf is the reason of a condition, or "".
func conditionOf(i *Instance, t skerry.ConditionType) string {
	for _, k := range i.Conditions {
		if k.Type == t {
			return k.Reason
		}
	}
	return ""
}

func outOfTouch(i *Instance) bool {
	return slices.ContainsFunc(i.Conditions, func(x skerry.Condition) bool { return x.Type == skerry.Reachable && !x.Status })
}

// replacement gives the instance that is to replace another, or nil.
func (l *ledger) replacement(i *Instance) *Instance {
	for _, n := range l.byService[i.Service] {
		if n.Replaces == i.ID && n.Live() {
			return n
		}
	}
	return nil
}

// label names the labels of a holder, and reports whether they are others than before.
func (l *ledger) label(holder string, labels map[string]string) bool {
	if maps.Equal(labels, l.labels[holder]) {
		return false
	}
	if l.labels[holder] = maps.Clone(labels); len(labels) == 0 {
		delete(l.labels, holder)
	}
	return true
}

// Allows reports whether a holder may have a service: at the root holders are clusters, which the manifest may list or select by labels.
func (l *ledger) Allows(s *spec.ServiceSpec, holder string) bool {
	return l.local != "r" || s.Placement.AllowsCluster(holder) && spec.HasLabels(l.labels[holder], s.Placement.ClusterLabels)
}

// otherEndMoves reports whether a service at the other end of a limited link, whichever end that is of, is on its way to another holder.
func (l *ledger) otherEndMoves(a *App, s *spec.ServiceSpec) bool {
	leads := func(from, to *spec.ServiceSpec) bool {
		return slices.ContainsFunc(from.Links, func(l spec.Link) bool { return l.Limited() && l.Service == to.Name })
	}
	for n := range a.Manifest.Spec.Services {
		o := &a.Manifest.Spec.Services[n]
		if o.Name == s.Name || !leads(s, o) && !leads(o, s) {
			continue
		}
		for _, i := range l.byService[skerry.ServiceKey{App: a.Key(), Service: o.Name}] {
			if i.Replaces != "" && i.Live() {
				return true
			}
		}
	}
	return false
}

// resizable reports whether an instance may follow what is wanted by other limits alone. What is on its way somewhere is not.
func (l *ledger) resizable(a *App, s *spec.ServiceSpec, i *Instance) bool {
	return i.IsReady() && i.Holder != "" && !i.Cut && i.Next == nil && i.Left == nil && i.Replaces == "" && l.replacement(i) == nil &&
		i.Fixed != a.revisions[s.Name] && skerry.HasCondition(i.Conditions, skerry.Reachable) && s.DiffersInLimits(i.Spec)
}

// updateWaits says why an update does not go on although nothing of it fails, or "".
func (l *ledger) updateWaits(a *App, s *spec.ServiceSpec) string {
	for _, i := range l.Instances(skerry.ServiceKey{App: a.Key(), Service: s.Name}) {
		if k := i.Ask; k != nil && i.Live() && k.Revision == a.revisions[s.Name] && k.Why != "" {
			return k.Why
		}
	}
	return ""
}

// adoptOrdinal gives the number of an instance that a site started while it was alone: its own, or if an instance that stays has
// that, the first that is free. The site does not know the numbers of other sites. What runs learns of it when it starts again.
func (l *ledger) adoptOrdinal(site string, x *wire.AmendedInstance, service string, a *App, here map[skerry.InstanceID]bool) int {
	k := skerry.ServiceKey{App: a.Key(), Service: service}
	taken := slices.ContainsFunc(l.Instances(k), func(i *Instance) bool {
		return i.Live() && i.Revision == x.Revision && i.Ordinal == x.Ordinal && (i.Holder != site || here[i.ID])
	})
	if x.Ordinal < 0 || taken {
		return l.freeOrdinal(k, x.Revision)
	}
	return x.Ordinal
}

// waitsForVolumes gives the instance of the same replica that cannot start because the one that is taken up has its local volumes, or nil.
func (l *ledger) waitsForVolumes(i *Instance) *Instance {
	if !i.Spec.KeepsData() {
		return nil
	}
	for _, o := range l.Instances(i.Service) {
		if o.Ordinal == i.Ordinal && o.Live() && o.State != skerry.Running {
			return o
		}
	}
	return nil
}
