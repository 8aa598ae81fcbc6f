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
	preparation
	Restart uint64           `json:"restart"` // the last request that was carried out
	Ending  bool             `json:"ending,omitempty"`
	Next    *spec.Assignment `json:"next,omitempty"` // to run once this one is gone
	health
	limits
	departure
	cleaning   bool
	draining   bool      // AwaitQuiet is under way, after which what must end is stopped
	retryAt    time.Time // of what waits: prepare, restart or clean-up
	restarting bool      // the stop of main was asked for in order to start it again
}

// preparation is what an instance got when it was prepared.
type preparation struct {
	Ports     []wire.PortBinding `json:"ports,omitempty"`
	Address   string             `json:"address,omitempty"`
	Runtime   string             `json:"runtime,omitempty"`
	Digest    string             `json:"digest,omitempty"`
	recipient string             // for what it is to start from
	preparing bool
	tries     int // that failed in a row, and the one under way
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

// start has the next attempt of a container started.
func (i *inst) start(name string, fx *wire.Effects) {
	k := i.container(name)
	if len(k.Handle) > 0 {
		k.Old = append(k.Old, k.Handle)
		k.Handle = nil
	}
	k.Attempt++
	k.start, k.stop, k.Limits = true, false, i.A.Revision
	fx.Actions = append(fx.Actions, StartContainer{A: i.A, Name: name, Attempt: k.Attempt, Resume: i.Resume && name == spec.MainContainer})
}

// stop has a container that runs end.
func (i *inst) stop(name string, fx *wire.Effects) {
	k := i.Containers[name]
	k.stop = true
	fx.Actions = append(fx.Actions, StopContainer{ID: i.A.ID, Name: name, Attempt: k.Attempt, Handle: k.Handle, Grace: graceOf(i)})
}

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
func (c *Core) due(now time.Time, instance *inst, fx *wire.Effects) {
	for _, s := range instance.A.Spec.Sidecars {
		if k := instance.Containers[s.Name]; k != nil && !k.retryAt.IsZero() && !k.retryAt.After(now) {
			k.retryAt = time.Time{}
			if !instance.Ending && !instance.halted() {
				instance.start(s.Name, fx)
			}
		}
	}
	if !instance.resizeAt.IsZero() && !instance.resizeAt.After(now) {
		instance.resizeAt = time.Time{}
		c.setLimits(now, instance, fx)
	}
	c.comeBack(now, instance, fx)
	if at := steadyAt(instance); !at.IsZero() && !at.After(now) {
		settle(instance, now)
		c.ledger.save(instance, fx)
	}
	if instance.retryAt.IsZero() || instance.retryAt.After(now) {
		return
	}
	instance.retryAt = time.Time{}
	switch {
	case instance.Ending:
		c.cleanup(instance, fx)
	case instance.Phase == skerry.PhaseFetching:
		c.prepare(instance, fx)
	case instance.Phase == skerry.PhaseBackOff:
		c.proceed(now, instance, fx)
	}
}

// assign takes an assignment, new or changed.
func (c *Core) assign(now time.Time, a spec.Assignment, fx *wire.Effects) {
	i := c.ledger.insts[a.ID]
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
		c.ledger.save(i, fx)
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
		c.ledger.save(i, fx)
	}
}

func (c *Core) begin(now time.Time, a spec.Assignment, fx *wire.Effects) {
	i := &inst{A: a, State: skerry.WorkerScheduled, Phase: skerry.PhaseFetching, Containers: map[string]*container{}, Restart: a.Restart}
	c.ledger.add(i, fx)
	if c.ledger.ready {
		c.prepare(i, fx)
	}
}

func (c *Core) prepare(i *inst, fx *wire.Effects) {
	if c.volumes.await(i, fx) {
		return
	}
	i.preparing = true
	i.tries++
	fx.Actions = append(fx.Actions, Prepare{A: i.A, Keep: i.Ports})
}

func (c *Core) prepared(now time.Time, instance *inst, msg Prepared, fx *wire.Effects) {
	if msg.Fence != instance.A.Fence || !instance.preparing {
		return
	}
	instance.preparing = false
	if instance.Ending {
		c.cleanup(instance, fx)
		return
	}
	if instance.halted() {
		instance.Ports, instance.Address = msg.Ports, msg.Address
		c.stopNext(instance, fx)
		return
	}
	if msg.Err != "" {
		instance.Reason = msg.Err
		if msg.Permanent || instance.tries >= prepareTries {
			c.ledger.event(now, instance, wire.EventWarning, "PrepareFailed", msg.Err, fx)
			c.finish(now, instance, skerry.Failed, msg.Err, fx)
			return
		}
		instance.retryAt = now.Add(wait(instance.tries, firstWait, longestWait))
		c.ledger.save(instance, fx)
		return
	}
	instance.tries, instance.Reason = 0, ""
	instance.Ports, instance.Address, instance.Runtime, instance.Digest, instance.recipient = msg.Ports, msg.Address, msg.Runtime,
		msg.Digest, msg.Recipient
	instance.Phase = skerry.PhaseStarting
	joined, other := c.strays.join(now, instance, fx)
	if !joined {
		c.proceed(now, instance, fx)
		return
	}
	c.resume(now, instance, fx)
	if other && !instance.restarting {
		c.restartNow(now, instance, "it is not known to run the image that is wanted", fx)
	}
	c.setLimits(now, instance, fx)
	c.ledger.save(instance, fx)
}

func wait(tries int, first, longest time.Duration) time.Duration {
	d := first << min(max(tries-1, 0), 20)
	if d <= 0 || d > longest {
		return longest
	}
	return d
}

// proceed starts the next container that is to start: init containers one by one, side containers, main.
func (c *Core) proceed(now time.Time, instance *inst, fx *wire.Effects) {
	if instance.Ending || instance.halted() {
		return
	}
	defer c.ledger.save(instance, fx)
	if instance.Phase == skerry.PhaseBackOff && !instance.retryAt.IsZero() {
		return
	}
	instance.Phase = skerry.PhaseStarting
	for _, s := range instance.A.Spec.Init {
		k := instance.container(s.Name)
		if k.Done {
			continue
		}
		if !k.Running && !k.start {
			instance.start(s.Name, fx)
		}
		return
	}
	for _, s := range instance.A.Spec.Sidecars {
		k := instance.container(s.Name)
		if !k.Running && !k.start && k.retryAt.IsZero() {
			instance.start(s.Name, fx)
		}
	}
	for _, s := range instance.A.Spec.Sidecars {
		if k := instance.container(s.Name); k.start && k.Crashes == 0 {
			return // main waits until each was started once
		}
	}
	if k := instance.main(); !k.Running && !k.start {
		instance.start(spec.MainContainer, fx)
	}
	if instance.main().Running {
		instance.Phase = skerry.PhaseRunning
	}
}

func (c *Core) started(now time.Time, instance *inst, m Started, fx *wire.Effects) {
	ctr := instance.Containers[m.Name]
	if ctr == nil || ctr.Attempt != m.Attempt {
		return
	}
	ctr.start = false
	if m.Err != "" && c.notRestored(now, instance, m, fx) {
		return
	}
	if m.Err != "" {
		c.exited(now, instance, Exited{ID: m.ID, Name: m.Name, Attempt: m.Attempt,
			Exit: wire.Exit{Code: 127, At: now, Message: m.Err}}, fx)
		return
	}
	ctr.Running, ctr.Handle = true, m.Handle
	// The driver has taken over what it needs of the attempt before the last.
	if len(ctr.Old) > 1 {
		for _, h := range ctr.Old[:len(ctr.Old)-1] {
			fx.Actions = append(fx.Actions, Discard{Handle: h})
		}
		ctr.Old = slices.Clone(ctr.Old[len(ctr.Old)-1:])
	}
	if instance.Ending || instance.Phase == skerry.PhaseCutOff {
		c.stopNext(instance, fx)
		c.ledger.save(instance, fx)
		return
	}
	if m.Name == spec.MainContainer {
		instance.State, instance.Phase, instance.StartedAt, instance.Reason = skerry.Running, skerry.PhaseRunning, m.At, ""
		instance.restarting, instance.Resume, instance.recipient = false, false, ""
		instance.Restart = max(instance.Restart, instance.A.Restart)
		instance.probe(fx)
		c.setLimits(now, instance, fx)
		c.ledger.save(instance, fx)
		return
	}
	c.setLimits(now, instance, fx)
	if !instance.isInit(m.Name) {
		ctr.Since = m.At
		if instance.Reason == ctr.Why {
			instance.Reason = ""
		}
	}
	c.proceed(now, instance, fx)
}

func (c *Core) exited(now time.Time, instance *inst, m Exited, fx *wire.Effects) {
	ctr := instance.Containers[m.Name]
	if ctr == nil || ctr.Attempt != m.Attempt {
		return
	}
	ctr.Running, ctr.start, ctr.stop = false, false, false
	exit := m.Exit
	defer c.ledger.save(instance, fx)
	defer c.setLimits(now, instance, fx) // what ended may have been all that had other limits
	if exit.OOMKilled {
		c.ledger.event(now, instance, wire.EventWarning, "OOMKilled", "container "+m.Name+" used more memory than its limit and was killed", fx)
	}
	if exit.StorageExceeded {
		c.ledger.event(now, instance, wire.EventWarning, "StorageExceeded", "container "+m.Name+" "+describe(exit), fx)
	}
	switch {
	case instance.Ending || instance.Phase == skerry.PhaseCutOff:
		c.stopNext(instance, fx)
	case m.Name == spec.MainContainer && instance.Left != nil:
		c.comeBack(now, instance, fx)
	case m.Name == spec.MainContainer:
		instance.Exit = &exit
		c.mainExited(now, instance, exit, fx)
	case instance.isInit(m.Name):
		if exit.Code == 0 {
			ctr.Done = true
			c.proceed(now, instance, fx)
			return
		}
		instance.Exit = &exit
		c.again(now, instance, "init container "+m.Name+" "+describe(exit), fx)
	case instance.Phase == skerry.PhaseExited:
		c.stopNext(instance, fx)
	default:
		sideExited(c, now, instance, ctr, m.Name, exit, fx)
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

func (c *Core) mainExited(now time.Time, instance *inst, exit wire.Exit, fx *wire.Effects) {
	instance.unready(fx)
	if ranSteadily(now, instance, &exit) {
		instance.main().Crashes = 0
	}
	if instance.restarting {
		instance.restarting = false
		instance.Restarts++
		c.proceed(now, instance, fx)
		return
	}
	why := describe(exit)
	unhealthy := instance.Unhealthy
	instance.Unhealthy = false
	if unhealthy {
		why = instance.Reason
	}
	policy := instance.A.Spec.Restart.Policy
	switch {
	case exit.Code == 0 && policy != "always" && !unhealthy:
		c.finish(now, instance, skerry.Terminated, "ended with status 0", fx)
	case policy == "never":
		c.finish(now, instance, skerry.Failed, why, fx)
	default:
		c.again(now, instance, why, fx)
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
		c.ledger.event(now, i, wire.EventWarning, "GaveUp", fmt.Sprintf("%d restarts within %s: %s", len(i.Times), r.Window, why), fx)
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
	i.unready(fx)
	i.State, i.Phase, i.Reason, i.retryAt = s, skerry.PhaseExited, why, time.Time{}
	c.stopNext(i, fx)
	c.ledger.save(i, fx)
}

// restartNow ends main in order to start it again at once; it is not counted against the limit.
func (c *Core) restartNow(now time.Time, i *inst, why string, fx *wire.Effects) {
	k := i.main()
	i.Reason = why
	switch {
	case i.Ending || i.halted():
	case k.Running && !k.stop:
		i.restarting = true
		i.unready(fx)
		i.stop(spec.MainContainer, fx)
	case i.Phase == skerry.PhaseBackOff:
		i.retryAt, i.Times = now, nil
		i.Restart = max(i.Restart, i.A.Restart)
	default:
		i.Restart = max(i.Restart, i.A.Restart) // it is starting anyway
	}
}

// end is the tombstone: everything of the instance goes.
func (c *Core) end(now time.Time, instance *inst, fx *wire.Effects) {
	if instance.Ending {
		return
	}
	instance.Ending = true
	served := instance.Ready && len(instance.A.Spec.Ports) > 0
	instance.unready(fx)
	instance.Phase, instance.retryAt = skerry.PhaseStopping, time.Time{}
	if served && instance.main().Running {
		// Those who send requests here are told at this moment, too: what is on its way is served.
		instance.draining = true
		fx.Actions = append(fx.Actions, AwaitQuiet{ID: instance.A.ID, Least: drainTime, For: quietTime, Most: longestDrain})
		c.ledger.save(instance, fx)
		return
	}
	if instance.preparing {
		fx.Actions = append(fx.Actions, Cancel{ID: instance.A.ID})
	} else {
		if instance.fromCheckpoint() {
			fx.Actions = append(fx.Actions, Cancel{ID: instance.A.ID}) // it may wait for a checkpoint
		}
		c.stopNext(instance, fx)
	}
	c.ledger.save(instance, fx)
}

// stopNext stops main first, then the rest; when nothing runs, an ending instance is cleaned up and an exited one gives
// its network back.
func (c *Core) stopNext(instance *inst, fx *wire.Effects) {
	if instance.draining {
		return
	}
	if k := instance.Containers[spec.MainContainer]; k != nil && (k.Running || k.start) {
		if k.Running && !k.stop {
			instance.stop(spec.MainContainer, fx)
		}
		return
	}
	busy := false
	for _, n := range instance.names() {
		if k := instance.Containers[n]; k.Running || k.start {
			busy = true
			if k.Running && !k.stop {
				instance.stop(n, fx)
			}
		}
	}
	if busy || instance.preparing {
		return
	}
	if instance.Ending {
		c.cleanup(instance, fx)
	} else {
		fx.Actions = append(fx.Actions, Release{ID: instance.A.ID})
	}
}

func (c *Core) cleanup(i *inst, fx *wire.Effects) {
	if i.cleaning || !c.ledger.ready {
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

func (c *Core) cleaned(now time.Time, instance *inst, msg Cleaned, fx *wire.Effects) {
	instance.cleaning = false
	if !instance.Ending {
		return
	}
	if msg.Err != "" {
		instance.Reason = "clean-up: " + msg.Err
		instance.retryAt = now.Add(cleanWait)
		c.ledger.save(instance, fx)
		return
	}
	c.ledger.remove(instance, fx)
	c.reports.forget(instance.A.ID)
	if instance.Next != nil {
		c.begin(now, *instance.Next, fx)
		return
	}
	c.Up.Observed.Delete(wire.AssignmentKey(instance.A.ID))
	c.volumes.left(instance, fx)
}
