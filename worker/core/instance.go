package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Limits of one instance's way.
const (
	prepareTries = 5
	firstWait    = time.Second
	longestWait  = 30 * time.Second
	cleanWait    = 5 * time.Second
	// drainTime is how long an instance that served runs on when it is to end: the word that it ends takes as long to those
	// who send it requests as to its worker, and what they had sent by then is answered. Where that word is late, clients
	// go on connecting: it is stopped when none has for quietTime, or after longestDrain, whatever they do.
	drainTime    = 2 * time.Second
	quietTime    = time.Second
	longestDrain = 10 * time.Second
)

// inst is one instance on this worker. Its way:
//
//	Fetching --Prepared--> Starting: init 1..n, side containers, main --Started--> Running
//	    ^                      ^                                                      |
//	    | (back-off, tries)    +------------- BackOff <------- main exited -----------+
//	    |                                                          | policy or limit
//	    +-- Next                Stopping <--- tombstone            v
//	          ^                     |                            Exited (Terminated or Failed)
//	          +----- Cleaned <------+--------------- tombstone ----+
type inst struct {
	A          spec.Assignment       `json:"assignment"`
	State      skerry.State          `json:"state"`
	Phase      skerry.Phase          `json:"phase"`
	Reason     string                `json:"reason,omitempty"`
	Containers map[string]*container `json:"containers"`
	Restarts   int                   `json:"restarts"`
	Times      []time.Time           `json:"times,omitempty"` // of counted restarts, in the window
	Exit       *wire.Exit            `json:"exit,omitempty"`
	StartedAt  time.Time             `json:"startedAt,omitzero"`
	Ports      []wire.PortBinding    `json:"ports,omitempty"`
	Address    string                `json:"address,omitempty"`
	Runtime    string                `json:"runtime,omitempty"`
	Digest     string                `json:"digest,omitempty"`
	Restart    uint64                `json:"restart"` // the last request that was carried out
	Ending     bool                  `json:"ending,omitempty"`
	Next       *spec.Assignment      `json:"next,omitempty"` // to run once this one is gone
	Ready      bool                  `json:"ready"`
	Unhealthy  bool                  `json:"unhealthy,omitempty"` // main is being ended because a probe failed
	Resize     *resize               `json:"resize,omitempty"`    // limits that it is to have
	Limits     *wire.LimitsRefusal   `json:"limits,omitempty"`    // why it has not got them
	Left       *leaving              `json:"left,omitempty"`      // its state is, or is being, written for another worker
	Resume     bool                  `json:"resume,omitempty"`    // main goes on from that state
	recipient  string                // for what it is to start from
	resizing   bool                  // SetLimits is under way
	resizeAt   time.Time             // it is tried again then
	preparing  bool
	cleaning   bool
	tries      int
	draining   bool      // AwaitQuiet is under way, after which what must end is stopped
	retryAt    time.Time // of what waits: prepare, restart or clean-up
	restarting bool      // the stop of main was asked for in order to start it again
	probes     probeState
}

// container is one container with its present attempt.
type container struct {
	Attempt int               `json:"attempt"`
	Crashes int               `json:"crashes,omitempty"` // of the main one and side ones: restarts in a row after less than SteadyTime
	Since   time.Time         `json:"since,omitzero"`    // of a side container: its last start
	Why     string            `json:"why,omitempty"`     // of a side container: how it ended last
	Handle  json.RawMessage   `json:"handle,omitempty"`
	Running bool              `json:"running,omitempty"`
	Done    bool              `json:"done,omitempty"` // an init container that ended well
	Old     []json.RawMessage `json:"old,omitempty"`  // the attempt before, whose log is kept
	// Limits is the revision of which it has the limits; empty: that of the instance, unsure: one of two.
	Limits  string `json:"limits,omitempty"`
	start   bool   // StartContainer is under way
	stop    bool   // StopContainer is under way
	retryAt time.Time
}

func (i *inst) names() []string {
	out := make([]string, 0, len(i.Containers))
	for n := range i.Containers {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func (i *inst) container(name string) *container {
	k := i.Containers[name]
	if k == nil {
		k = &container{}
		i.Containers[name] = k
	}
	return k
}

func (i *inst) main() *container { return i.container(spec.MainContainer) }

// wake is when the instance has something to do by itself.
func (i *inst) wake() time.Time {
	next := i.retryAt
	if at := i.comesBackAt(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
		next = at
	}
	if !i.resizeAt.IsZero() && (next.IsZero() || i.resizeAt.Before(next)) {
		next = i.resizeAt
	}
	if at := steadyAt(i); !at.IsZero() && (next.IsZero() || at.Before(next)) {
		next = at
	}
	for _, k := range i.Containers {
		if !k.retryAt.IsZero() && (next.IsZero() || k.retryAt.Before(next)) {
			next = k.retryAt
		}
	}
	return next
}

// due does what an instance waited for.
func (c *Core) due(now time.Time, i *inst, fx *wire.Effects) {
	for _, s := range i.A.Spec.Sidecars {
		if k := i.Containers[s.Name]; k != nil && !k.retryAt.IsZero() && !k.retryAt.After(now) {
			k.retryAt = time.Time{}
			if !i.Ending && !i.halted() {
				c.start(i, s.Name, fx)
			}
		}
	}
	if !i.resizeAt.IsZero() && !i.resizeAt.After(now) {
		i.resizeAt = time.Time{}
		c.setLimits(now, i, fx)
	}
	c.comeBack(now, i, fx)
	if at := steadyAt(i); !at.IsZero() && !at.After(now) {
		settle(i, now)
		c.save(i, fx)
	}
	if i.retryAt.IsZero() || i.retryAt.After(now) {
		return
	}
	i.retryAt = time.Time{}
	switch {
	case i.Ending:
		c.cleanup(i, fx)
	case i.Phase == skerry.PhaseFetching:
		c.prepare(i, fx)
	case i.Phase == skerry.PhaseBackOff:
		c.proceed(now, i, fx)
	}
}

// assign takes an assignment, new or changed.
func (c *Core) assign(now time.Time, a spec.Assignment, fx *wire.Effects) {
	i := c.insts[a.ID]
	switch {
	case i == nil:
		c.begin(now, a, fx)
	case a.Fence.Compare(i.A.Fence) > 0 && c.regrant(now, i, a, fx):
		restartFor(c, now, i, a, fx)
	case a.Fence.Compare(i.A.Fence) < 0, i.Next != nil && a.Fence.Compare(i.Next.Fence) < 0:
		c.Up.Ignored.Count(members.IgnoredToken) // an old word that was overtaken
	case i.Ending || a.Fence.Compare(i.A.Fence) > 0:
		i.Next = &a
		c.end(now, i, fx)
		c.save(i, fx)
	default:
		i.A.Leave = a.Leave
		c.relimit(now, i, a, fx)
		c.comeBack(now, i, fx)
		restartFor(c, now, i, a, fx)
	}
}

// restartFor restarts an instance if an assignment asks for that; its images need the signatures that the site asks for now.
func restartFor(c *Core, now time.Time, i *inst, a spec.Assignment, fx *wire.Effects) {
	if a.Restart > i.A.Restart {
		i.A.Restart, i.A.Signers = a.Restart, a.Signers
		c.restartNow(now, i, "restart was asked for", fx)
		c.save(i, fx)
	}
}

func (c *Core) begin(now time.Time, a spec.Assignment, fx *wire.Effects) {
	i := &inst{A: a, State: skerry.WorkerScheduled, Phase: skerry.PhaseFetching, Containers: map[string]*container{}, Restart: a.Restart}
	c.insts[a.ID] = i
	c.save(i, fx)
	if c.ready {
		c.prepare(i, fx)
	}
}

func (c *Core) prepare(i *inst, fx *wire.Effects) {
	if awaitVolumes(c, i, fx) {
		return
	}
	i.preparing = true
	i.tries++
	fx.Actions = append(fx.Actions, Prepare{A: i.A, Keep: i.Ports})
}

func (c *Core) prepared(now time.Time, i *inst, m Prepared, fx *wire.Effects) {
	if m.Fence != i.A.Fence || !i.preparing {
		return
	}
	i.preparing = false
	if i.Ending {
		c.cleanup(i, fx)
		return
	}
	if i.halted() {
		i.Ports, i.Address = m.Ports, m.Address
		c.stopNext(i, fx)
		return
	}
	if m.Err != "" {
		i.Reason = m.Err
		if m.Permanent || i.tries >= prepareTries {
			c.event(now, i, wire.EventWarning, "PrepareFailed", m.Err, fx)
			c.finish(now, i, skerry.Failed, m.Err, fx)
			return
		}
		i.retryAt = now.Add(wait(i.tries, firstWait, longestWait))
		c.save(i, fx)
		return
	}
	i.tries, i.Reason = 0, ""
	i.Ports, i.Address, i.Runtime, i.Digest, i.recipient = m.Ports, m.Address, m.Runtime, m.Digest, m.Recipient
	i.Phase = skerry.PhaseStarting
	if !c.strays.join(c, now, i, fx) {
		c.proceed(now, i, fx)
	}
}

func wait(tries int, first, longest time.Duration) time.Duration {
	d := first << min(max(tries-1, 0), 20)
	if d <= 0 || d > longest {
		return longest
	}
	return d
}

// proceed starts the next container that is to start: init containers one by one, side containers, main.
func (c *Core) proceed(now time.Time, i *inst, fx *wire.Effects) {
	if i.Ending || i.halted() {
		return
	}
	defer c.save(i, fx)
	if i.Phase == skerry.PhaseBackOff && !i.retryAt.IsZero() {
		return
	}
	i.Phase = skerry.PhaseStarting
	for _, s := range i.A.Spec.Init {
		k := i.container(s.Name)
		if k.Done {
			continue
		}
		if !k.Running && !k.start {
			c.start(i, s.Name, fx)
		}
		return
	}
	for _, s := range i.A.Spec.Sidecars {
		k := i.container(s.Name)
		if !k.Running && !k.start && k.retryAt.IsZero() {
			c.start(i, s.Name, fx)
		}
	}
	for _, s := range i.A.Spec.Sidecars {
		if k := i.container(s.Name); k.start && k.Crashes == 0 {
			return // main waits until each was started once
		}
	}
	if k := i.main(); !k.Running && !k.start {
		c.start(i, spec.MainContainer, fx)
	}
	if i.main().Running {
		i.Phase = skerry.PhaseRunning
	}
}

func (c *Core) start(i *inst, name string, fx *wire.Effects) {
	k := i.container(name)
	if len(k.Handle) > 0 {
		k.Old = append(k.Old, k.Handle)
		k.Handle = nil
	}
	k.Attempt++
	k.start, k.stop, k.Limits = true, false, i.A.Revision
	fx.Actions = append(fx.Actions, StartContainer{A: i.A, Name: name, Attempt: k.Attempt, Resume: i.Resume && name == spec.MainContainer})
}

func (c *Core) started(now time.Time, i *inst, m Started, fx *wire.Effects) {
	k := i.Containers[m.Name]
	if k == nil || k.Attempt != m.Attempt {
		return
	}
	k.start = false
	if m.Err != "" && c.notRestored(now, i, m, fx) {
		return
	}
	if m.Err != "" {
		c.exited(now, i, Exited{ID: m.ID, Name: m.Name, Attempt: m.Attempt,
			Exit: wire.Exit{Code: 127, At: now, Message: m.Err}}, fx)
		return
	}
	k.Running, k.Handle = true, m.Handle
	// The driver has taken over what it needs of the attempt before the last.
	if len(k.Old) > 1 {
		for _, h := range k.Old[:len(k.Old)-1] {
			fx.Actions = append(fx.Actions, Discard{Handle: h})
		}
		k.Old = slices.Clone(k.Old[len(k.Old)-1:])
	}
	if i.Ending || i.Phase == skerry.PhaseCutOff {
		c.stopNext(i, fx)
		c.save(i, fx)
		return
	}
	if m.Name == spec.MainContainer {
		i.State, i.Phase, i.StartedAt, i.Reason = skerry.Running, skerry.PhaseRunning, m.At, ""
		i.restarting, i.Resume, i.recipient = false, false, ""
		i.Restart = max(i.Restart, i.A.Restart)
		c.probe(i, fx)
		c.setLimits(now, i, fx)
		c.save(i, fx)
		return
	}
	c.setLimits(now, i, fx)
	if !i.isInit(m.Name) {
		k.Since = m.At
		if i.Reason == k.Why {
			i.Reason = ""
		}
	}
	c.proceed(now, i, fx)
}

func (c *Core) exited(now time.Time, i *inst, m Exited, fx *wire.Effects) {
	k := i.Containers[m.Name]
	if k == nil || k.Attempt != m.Attempt {
		return
	}
	k.Running, k.start, k.stop = false, false, false
	exit := m.Exit
	defer c.save(i, fx)
	defer c.setLimits(now, i, fx) // what ended may have been all that had other limits
	if exit.OOMKilled {
		c.event(now, i, wire.EventWarning, "OOMKilled", "container "+m.Name+" used more memory than its limit and was killed", fx)
	}
	if exit.StorageExceeded {
		c.event(now, i, wire.EventWarning, "StorageExceeded", "container "+m.Name+" "+describe(exit), fx)
	}
	switch {
	case i.Ending || i.Phase == skerry.PhaseCutOff:
		c.stopNext(i, fx)
	case m.Name == spec.MainContainer && i.Left != nil:
		c.comeBack(now, i, fx)
	case m.Name == spec.MainContainer:
		i.Exit = &exit
		c.mainExited(now, i, exit, fx)
	case i.isInit(m.Name):
		if exit.Code == 0 {
			k.Done = true
			c.proceed(now, i, fx)
			return
		}
		i.Exit = &exit
		c.again(now, i, "init container "+m.Name+" "+describe(exit), fx)
	case i.Phase == skerry.PhaseExited:
		c.stopNext(i, fx)
	default:
		sideExited(c, now, i, k, m.Name, exit, fx)
	}
}

func (i *inst) isInit(name string) bool {
	return slices.ContainsFunc(i.A.Spec.Init, func(s spec.SideContainer) bool { return s.Name == name })
}

func describe(e wire.Exit) string {
	switch {
	case e.StorageExceeded:
		return "was ended for its use of the disk: " + e.Message
	case e.Message != "":
		return "did not start: " + e.Message
	case e.OOMKilled:
		return "was killed for using more memory than its limit"
	case e.Signal != "":
		return "was ended by " + e.Signal
	}
	return fmt.Sprintf("ended with status %d", e.Code)
}

func (c *Core) mainExited(now time.Time, i *inst, exit wire.Exit, fx *wire.Effects) {
	c.unready(i, fx)
	if ranSteadily(now, i, &exit) {
		i.main().Crashes = 0
	}
	if i.restarting {
		i.restarting = false
		i.Restarts++
		c.proceed(now, i, fx)
		return
	}
	why := describe(exit)
	unhealthy := i.Unhealthy
	i.Unhealthy = false
	if unhealthy {
		why = i.Reason
	}
	policy := i.A.Spec.Restart.Policy
	switch {
	case exit.Code == 0 && policy != "always" && !unhealthy:
		c.finish(now, i, skerry.Terminated, "ended with status 0", fx)
	case policy == "never":
		c.finish(now, i, skerry.Failed, why, fx)
	default:
		c.again(now, i, why, fx)
	}
}

// again starts the instance's containers anew after a back-off, unless that was done too often.
func (c *Core) again(now time.Time, i *inst, why string, fx *wire.Effects) {
	r := i.A.Spec.Restart
	if r.Policy == "never" {
		c.finish(now, i, skerry.Failed, why, fx)
		return
	}
	i.Times = slices.DeleteFunc(i.Times, func(t time.Time) bool { return now.Sub(t) > time.Duration(r.Window) || t.After(now) })
	if len(i.Times) >= *r.MaxAttempts {
		c.event(now, i, wire.EventWarning, "GaveUp", fmt.Sprintf("%d restarts within %s: %s", len(i.Times), r.Window, why), fx)
		c.finish(now, i, skerry.Failed, fmt.Sprintf("%s; gave up after %d restarts", why, len(i.Times)), fx)
		return
	}
	i.Times = append(i.Times, now)
	i.Restarts++
	i.main().Crashes++
	i.Phase, i.Reason = skerry.PhaseBackOff, why
	i.retryAt = now.Add(max(wait(len(i.Times), time.Duration(r.Backoff), time.Duration(r.MaxBackoff)), leastBackoff(i.Restarts)))
}

// finish ends an instance by itself; its record and logs stay until the cluster takes it back.
func (c *Core) finish(now time.Time, i *inst, s skerry.State, why string, fx *wire.Effects) {
	c.unready(i, fx)
	i.State, i.Phase, i.Reason, i.retryAt = s, skerry.PhaseExited, why, time.Time{}
	c.stopNext(i, fx)
	c.save(i, fx)
}

// restartNow ends main in order to start it again at once; it is not counted against the limit.
func (c *Core) restartNow(now time.Time, i *inst, why string, fx *wire.Effects) {
	k := i.main()
	i.Reason = why
	switch {
	case i.Ending || i.halted():
	case k.Running && !k.stop:
		i.restarting = true
		c.unready(i, fx)
		c.stop(i, spec.MainContainer, fx)
	case i.Phase == skerry.PhaseBackOff:
		i.retryAt, i.Times = now, nil
		i.Restart = max(i.Restart, i.A.Restart)
	default:
		i.Restart = max(i.Restart, i.A.Restart) // it is starting anyway
	}
}

// end is the tombstone: everything of the instance goes.
func (c *Core) end(now time.Time, i *inst, fx *wire.Effects) {
	if i.Ending {
		return
	}
	i.Ending = true
	served := i.Ready && len(i.A.Spec.Ports) > 0
	c.unready(i, fx)
	i.Phase, i.retryAt = skerry.PhaseStopping, time.Time{}
	if served && i.main().Running {
		// Those who send requests here are told at this moment, too: what is on its way is served.
		i.draining = true
		fx.Actions = append(fx.Actions, AwaitQuiet{ID: i.A.ID, Least: drainTime, For: quietTime, Most: longestDrain})
		c.save(i, fx)
		return
	}
	if i.preparing {
		fx.Actions = append(fx.Actions, Cancel{ID: i.A.ID})
	} else {
		if i.fromCheckpoint() {
			fx.Actions = append(fx.Actions, Cancel{ID: i.A.ID}) // it may wait for a checkpoint
		}
		c.stopNext(i, fx)
	}
	c.save(i, fx)
}

// stopNext stops main first, then the rest; when nothing runs, an ending instance is cleaned up and an exited one gives
// its network back.
func (c *Core) stopNext(i *inst, fx *wire.Effects) {
	if i.draining {
		return
	}
	if k := i.Containers[spec.MainContainer]; k != nil && (k.Running || k.start) {
		if k.Running && !k.stop {
			c.stop(i, spec.MainContainer, fx)
		}
		return
	}
	busy := false
	for _, n := range i.names() {
		if k := i.Containers[n]; k.Running || k.start {
			busy = true
			if k.Running && !k.stop {
				c.stop(i, n, fx)
			}
		}
	}
	if busy || i.preparing {
		return
	}
	if i.Ending {
		c.cleanup(i, fx)
	} else {
		fx.Actions = append(fx.Actions, Release{ID: i.A.ID})
	}
}

func (c *Core) stop(i *inst, name string, fx *wire.Effects) {
	k := i.Containers[name]
	k.stop = true
	fx.Actions = append(fx.Actions, StopContainer{ID: i.A.ID, Name: name, Attempt: k.Attempt, Handle: k.Handle, Grace: graceOf(i)})
}

func (c *Core) cleanup(i *inst, fx *wire.Effects) {
	if i.cleaning || !c.ready {
		return
	}
	i.cleaning = true
	var handles []json.RawMessage
	for _, n := range i.names() {
		k := i.Containers[n]
		handles = append(handles, k.Old...)
		if len(k.Handle) > 0 {
			handles = append(handles, k.Handle)
		}
	}
	fx.Actions = append(fx.Actions, Cleanup{ID: i.A.ID, Handles: handles})
}

func (c *Core) cleaned(now time.Time, i *inst, m Cleaned, fx *wire.Effects) {
	i.cleaning = false
	if !i.Ending {
		return
	}
	if m.Err != "" {
		i.Reason = "clean-up: " + m.Err
		i.retryAt = now.Add(cleanWait)
		c.save(i, fx)
		return
	}
	delete(c.insts, i.A.ID)
	delete(c.usage.Instances, i.A.ID)
	fx.Delete(prefixInst + string(i.A.ID))
	fx.Changed = append(fx.Changed, wire.Change{App: i.A.Service.App, Instance: i.A.ID, Deleted: true})
	if i.Next != nil {
		c.begin(now, *i.Next, fx)
		return
	}
	c.Up.Observed.Delete(wire.AssignmentKey(i.A.ID))
	c.leftVolumes(i, fx)
}

// save persists an instance and tells the cluster.
func (c *Core) save(i *inst, fx *wire.Effects) {
	if c.insts[i.A.ID] != i {
		return // it ended within this step
	}
	data, err := json.Marshal(i)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	fx.Put(prefixInst+string(i.A.ID), data)
	fx.Changed = append(fx.Changed, wire.Change{App: i.A.Service.App, Instance: i.A.ID})
	c.tell(i)
}
