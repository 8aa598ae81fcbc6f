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

// due does what an instance waited for.
func (life *lifecycle) due(now time.Time, instance *inst, fx *wire.Effects) {
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
		life.setLimits(now, instance, fx)
	}
	life.comeBack(now, instance, fx)
	if at := steadyAt(instance); !at.IsZero() && !at.After(now) {
		settle(instance, now)
		life.ledger.save(instance, fx)
	}
	if instance.retryAt.IsZero() || instance.retryAt.After(now) {
		return
	}
	instance.retryAt = time.Time{}
	switch {
	case instance.Ending:
		life.cleanup(instance, fx)
	case instance.Phase == skerry.PhaseFetching:
		life.prepare(instance, fx)
	case instance.Phase == skerry.PhaseBackOff:
		life.proceed(now, instance, fx)
	}
}

// assign takes an assignment, new or changed.
func (life *lifecycle) assign(now time.Time, a spec.Assignment, fx *wire.Effects) {
	i := life.ledger.insts[a.ID]
	switch {
	case i == nil:
		life.begin(now, a, fx)
	case a.Fence.Compare(i.A.Fence) > 0 && life.regrant(now, i, a, fx):
		life.restartFor(now, i, a, fx)
	case a.Fence.Compare(i.A.Fence) < 0, i.Next != nil && a.Fence.Compare(i.Next.Fence) < 0:
		life.ledger.up.Ignored.Count(members.IgnoredToken) // an old word that was overtaken
	case i.Ending || a.Fence.Compare(i.A.Fence) > 0:
		i.Next = &a
		life.end(now, i, fx)
		life.ledger.save(i, fx)
	default:
		i.A.Leave = a.Leave
		life.relimit(now, i, a, fx)
		life.comeBack(now, i, fx)
		life.restartFor(now, i, a, fx)
	}
}

// restartFor restarts an instance if an assignment asks for that; its images need the signatures that the site asks for now.
func (life *lifecycle) restartFor(now time.Time, i *inst, a spec.Assignment, fx *wire.Effects) {
	if a.Restart > i.A.Restart {
		i.A.Restart, i.A.Signers = a.Restart, a.Signers
		life.restartNow(now, i, "restart was asked for", fx)
		life.ledger.save(i, fx)
	}
}

func (life *lifecycle) begin(now time.Time, a spec.Assignment, fx *wire.Effects) {
	i := &inst{A: a, State: skerry.WorkerScheduled, Phase: skerry.PhaseFetching, Containers: map[string]*container{}, Restart: a.Restart}
	life.ledger.add(i, fx)
	if life.ledger.ready {
		life.prepare(i, fx)
	}
}

func (life *lifecycle) prepare(i *inst, fx *wire.Effects) {
	if life.volumes.await(i, fx) {
		return
	}
	i.preparing = true
	i.tries++
	fx.Actions = append(fx.Actions, Prepare{A: i.A, Keep: i.Ports})
}

func (life *lifecycle) prepared(now time.Time, instance *inst, msg Prepared, fx *wire.Effects) {
	if msg.Fence != instance.A.Fence || !instance.preparing {
		return
	}
	instance.preparing = false
	if instance.Ending {
		life.cleanup(instance, fx)
		return
	}
	if instance.halted() {
		life.strays.drop(instance.A.ID, fx)
		instance.Ports, instance.Address = msg.Ports, msg.Address
		life.stopNext(instance, fx)
		return
	}
	if msg.Err != "" {
		instance.Reason = msg.Err
		if msg.Permanent || instance.tries >= prepareTries {
			life.ledger.event(now, instance, wire.EventWarning, "PrepareFailed", msg.Err, fx)
			life.finish(now, instance, skerry.Failed, msg.Err, fx)
			return
		}
		instance.retryAt = now.Add(wait(instance.tries, firstWait, longestWait))
		life.ledger.save(instance, fx)
		return
	}
	instance.tries, instance.Reason = 0, ""
	instance.Ports, instance.Address, instance.Runtime, instance.Digest, instance.recipient = msg.Ports, msg.Address, msg.Runtime,
		msg.Digest, msg.Recipient
	instance.Phase = skerry.PhaseStarting
	joined, other, ended := life.strays.join(now, instance, fx)
	if !joined {
		life.proceed(now, instance, fx)
		return
	}
	life.resume(now, instance, fx)
	if other && !instance.restarting {
		life.restartNow(now, instance, "it is not known to run the image that is wanted", fx)
	}
	life.setLimits(now, instance, fx)
	life.ledger.save(instance, fx)
	for _, e := range ended {
		life.exited(now, instance, e, fx)
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
func (life *lifecycle) proceed(now time.Time, instance *inst, fx *wire.Effects) {
	if instance.Ending || instance.halted() {
		return
	}
	// Of a first start there is nothing to find again but its tasks, which unwritten knows; it is written down with what comes of it.
	if len(instance.Containers) > 0 || instance.fromCheckpoint() {
		defer life.ledger.save(instance, fx)
	} else {
		defer life.ledger.further(instance, fx)
	}
	if instance.Phase == skerry.PhaseBackOff && !instance.retryAt.IsZero() {
		return
	}
	instance.Phase = skerry.PhaseStarting
	if !life.asOne && instance.startBefore(fx) {
		return
	}
	if k := instance.main(); !k.Running && !k.start {
		instance.Given = life.reports.given(instance.A.Devices)
		instance.start(spec.MainContainer, fx)
	}
	if instance.main().Running {
		instance.Phase = skerry.PhaseRunning
	}
}

// startBefore starts what is to be started before main, and reports whether main waits for it.
func (i *inst) startBefore(fx *wire.Effects) (waits bool) {
	for _, s := range i.A.Spec.Init {
		k := i.container(s.Name)
		if k.Done {
			continue
		}
		if !k.Running && !k.start {
			i.start(s.Name, fx)
		}
		return true
	}
	for _, s := range i.A.Spec.Sidecars {
		k := i.container(s.Name)
		if !k.Running && !k.start && k.retryAt.IsZero() {
			i.start(s.Name, fx)
		}
	}
	return slices.ContainsFunc(i.A.Spec.Sidecars, func(s spec.SideContainer) bool {
		k := i.container(s.Name)
		return (k.start || k.Running && k.Hook) && k.Crashes == 0 // main waits until each was started once
	})
}

func (life *lifecycle) started(now time.Time, instance *inst, m Started, fx *wire.Effects) {
	ctr := instance.Containers[m.Name]
	if ctr == nil || ctr.Attempt != m.Attempt {
		return
	}
	ctr.start = false
	if m.Err != "" && life.notRestored(now, instance, m, fx) {
		return
	}
	if m.Err != "" {
		life.exited(now, instance, Exited{ID: m.ID, Name: m.Name, Attempt: m.Attempt,
			Exit: wire.Exit{Code: 127, At: now, Message: m.Err}}, fx)
		return
	}
	ctr.Running, ctr.Handle, ctr.Monitor = true, m.Handle, m.Monitor
	ctr.dropOld(fx)
	if instance.Ending || instance.Phase == skerry.PhaseCutOff {
		life.stopNext(instance, fx)
		life.ledger.save(instance, fx)
		return
	}
	if m.Name == spec.MainContainer {
		instance.State, instance.Phase, instance.StartedAt, instance.Reason = skerry.Running, skerry.PhaseRunning, m.At, ""
		instance.restarting, instance.Resume, instance.recipient = false, false, ""
		instance.Restart = max(instance.Restart, instance.A.Restart)
		if !instance.postStart(m.Name, fx) {
			instance.probe(fx)
		}
		life.setLimits(now, instance, fx)
		life.ledger.save(instance, fx)
		return
	}
	instance.postStart(m.Name, fx)
	life.setLimits(now, instance, fx)
	if !instance.isInit(m.Name) {
		ctr.Since = m.At
		if instance.Reason == ctr.Why {
			instance.Reason = ""
		}
	}
	life.proceed(now, instance, fx)
}

// waits notes what a start waits for.
func (life *lifecycle) waits(instance *inst, m Waits, fx *wire.Effects) {
	if k := instance.main(); k.start && k.Attempt == m.Attempt && instance.Reason != m.Text {
		instance.Reason = m.Text
		life.ledger.save(instance, fx)
	}
}

// dropOld discards the attempts before the last: the driver has taken over what it needs of them.
func (c *container) dropOld(fx *wire.Effects) {
	if len(c.Old) > 1 {
		for _, h := range c.Old[:len(c.Old)-1] {
			fx.Actions = append(fx.Actions, Discard{Handle: h})
		}
		c.Old = slices.Clone(c.Old[len(c.Old)-1:])
	}
}

// hookDone goes on with a container whose postStart is done. One whose failed is ended; what follows is decided when it has exited.
func (life *lifecycle) hookDone(now time.Time, instance *inst, msg HookDone, fx *wire.Effects) {
	ctr := instance.Containers[msg.Name]
	if ctr == nil || ctr.Attempt != msg.Attempt || !ctr.Running || !ctr.Hook || ctr.stop || instance.Ending || instance.halted() {
		return
	}
	main := msg.Name == spec.MainContainer
	switch {
	case msg.Err != "":
		life.hookFailed(now, instance, msg.Name, msg.Err, fx)
		instance.stop(msg.Name, fx)
	case main:
		ctr.Hook, instance.Reason = false, ""
		instance.probe(fx)
	default:
		ctr.Hook = false
		life.proceed(now, instance, fx)
	}
	life.ledger.save(instance, fx)
}

// hookFailed tells that the postStart of a container went wrong. If it is main's, that is why the instance ends.
func (life *lifecycle) hookFailed(now time.Time, instance *inst, name, text string, fx *wire.Effects) {
	why := "postStart of container " + name + " failed: " + text
	life.ledger.event(now, instance, wire.EventWarning, "PostStartFailed", why, fx)
	if name == spec.MainContainer {
		instance.Reason, instance.Unhealthy = why, true
	}
}

func (life *lifecycle) exited(now time.Time, instance *inst, m Exited, fx *wire.Effects) {
	ctr := instance.Containers[m.Name]
	if ctr == nil || ctr.Attempt != m.Attempt {
		return
	}
	ctr.Running, ctr.start, ctr.stop = false, false, false
	name, exit := m.Name, m.Exit
	if m.Init != "" {
		name = m.Init
		if len(m.Handle) > 0 {
			ctr.Handle = m.Handle
			ctr.dropOld(fx)
		}
	}
	defer life.ledger.save(instance, fx)
	defer life.setLimits(now, instance, fx) // what ended may have been all that had other limits
	if exit.OOMKilled {
		life.ledger.event(now, instance, wire.EventWarning, "OOMKilled",
			"container "+name+" used more memory than its limit and was killed", fx)
	}
	if exit.StorageExceeded {
		life.ledger.event(now, instance, wire.EventWarning, "StorageExceeded", "container "+name+" "+describe(exit), fx)
	}
	switch {
	case instance.Ending || instance.Phase == skerry.PhaseCutOff:
		life.stopNext(instance, fx)
	case m.Name == spec.MainContainer && instance.Left != nil:
		life.comeBack(now, instance, fx)
	case m.Name == spec.MainContainer && m.Init == "":
		instance.Exit = &exit
		if m.PostStart != "" {
			life.hookFailed(now, instance, m.Name, m.PostStart, fx)
		}
		life.mainExited(now, instance, exit, fx)
	case m.Init != "" || instance.isInit(m.Name):
		if exit.Code == 0 && m.Init == "" {
			ctr.Done = true
			life.proceed(now, instance, fx)
			return
		}
		instance.Exit = &exit
		life.again(now, instance, "init container "+name+" "+describe(exit), fx)
	case instance.Phase == skerry.PhaseExited:
		life.stopNext(instance, fx)
	default:
		life.sideExited(now, instance, ctr, m.Name, exit, fx)
	}
}

// notSeen is the status of what ended without one, or without anybody who saw it; the message says how.
const notSeen = 255

func describe(e wire.Exit) string {
	switch {
	case e.StorageExceeded:
		return "was ended for its use of the disk: " + e.Message
	case e.Message != "" && e.Code == notSeen:
		return "ended: " + e.Message
	case e.Message != "":
		return "did not start: " + e.Message
	case e.OOMKilled:
		return "was killed for using more memory than its limit"
	case e.Signal == "SIGSYS":
		return "was ended by SIGSYS: a filter of system calls does not admit what it called" +
			" (a 32-bit program needs a 32-bit loader in its image, or security.seccomp: unconfined)"
	case e.Signal != "":
		return "was ended by " + e.Signal
	}
	return fmt.Sprintf("ended with status %d", e.Code)
}

func (life *lifecycle) mainExited(now time.Time, instance *inst, exit wire.Exit, fx *wire.Effects) {
	instance.unready(fx)
	if ranSteadily(now, instance, &exit) {
		instance.main().Crashes = 0
	}
	if instance.restarting {
		instance.restarting = false
		instance.Restarts++
		life.proceed(now, instance, fx)
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
		life.finish(now, instance, skerry.Terminated, "ended with status 0", fx)
	case policy == "never":
		life.finish(now, instance, skerry.Failed, why, fx)
	default:
		life.again(now, instance, why, fx)
	}
}

// again starts the instance's containers anew after a back-off, unless that was done too often.
func (life *lifecycle) again(now time.Time, i *inst, why string, fx *wire.Effects) {
	r := i.A.Spec.Restart
	if r.Policy == "never" {
		life.finish(now, i, skerry.Failed, why, fx)
		return
	}
	i.Times = slices.DeleteFunc(i.Times, func(t time.Time) bool { return now.Sub(t) > time.Duration(r.Window) || t.After(now) })
	if len(i.Times) >= *r.MaxAttempts {
		life.ledger.event(now, i, wire.EventWarning, "GaveUp", fmt.Sprintf("%d restarts within %s: %s", len(i.Times), r.Window, why), fx)
		life.finish(now, i, skerry.Failed, fmt.Sprintf("%s; gave up after %d restarts", why, len(i.Times)), fx)
		return
	}
	i.Times = append(i.Times, now)
	i.Restarts++
	i.main().Crashes++
	i.Phase, i.Reason = skerry.PhaseBackOff, why
	i.retryAt = now.Add(max(wait(len(i.Times), time.Duration(r.Backoff), time.Duration(r.MaxBackoff)), leastBackoff(i.Restarts)))
}

// finish ends an instance by itself; its record and logs stay until the cluster takes it back.
func (life *lifecycle) finish(now time.Time, i *inst, s skerry.State, why string, fx *wire.Effects) {
	i.unready(fx)
	life.strays.drop(i.A.ID, fx)
	i.State, i.Phase, i.Reason, i.retryAt = s, skerry.PhaseExited, why, time.Time{}
	life.stopNext(i, fx)
	life.ledger.save(i, fx)
}

// restartNow ends main in order to start it again at once; it is not counted against the limit.
func (life *lifecycle) restartNow(now time.Time, i *inst, why string, fx *wire.Effects) {
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
func (life *lifecycle) end(now time.Time, instance *inst, fx *wire.Effects) {
	if instance.Ending {
		return
	}
	instance.Ending = true
	served := instance.Ready && len(instance.A.Spec.Ports) > 0
	instance.unready(fx)
	life.strays.drop(instance.A.ID, fx)
	instance.Phase, instance.retryAt = skerry.PhaseStopping, time.Time{}
	if served && instance.main().Running {
		// Those who send requests here are told at this moment, too: what is on its way is served.
		instance.draining = true
		fx.Actions = append(fx.Actions, AwaitQuiet{ID: instance.A.ID, Least: drainTime, For: quietTime, Most: longestDrain})
		life.ledger.save(instance, fx)
		return
	}
	if instance.preparing {
		fx.Actions = append(fx.Actions, Cancel{ID: instance.A.ID})
	} else {
		if instance.fromCheckpoint() {
			fx.Actions = append(fx.Actions, Cancel{ID: instance.A.ID}) // it may wait for a checkpoint
		}
		life.stopNext(instance, fx)
	}
	life.ledger.save(instance, fx)
}

// stopNext stops main first, then the rest; when nothing runs, an ending instance is cleaned up and an exited one gives
// its network back.
func (life *lifecycle) stopNext(instance *inst, fx *wire.Effects) {
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
		life.cleanup(instance, fx)
	} else {
		fx.Actions = append(fx.Actions, Release{ID: instance.A.ID})
	}
}

func (life *lifecycle) cleanup(i *inst, fx *wire.Effects) {
	if i.cleaning || !life.ledger.ready {
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

func (life *lifecycle) cleaned(now time.Time, instance *inst, msg Cleaned, fx *wire.Effects) {
	instance.cleaning = false
	if !instance.Ending {
		return
	}
	if msg.Err != "" {
		instance.Reason = "clean-up: " + msg.Err
		instance.retryAt = now.Add(cleanWait)
		life.ledger.save(instance, fx)
		return
	}
	life.ledger.remove(instance, fx)
	life.reports.forget(instance.A.ID)
	if instance.Next != nil {
		life.begin(now, *instance.Next, fx)
		return
	}
	life.ledger.up.Observed.Delete(wire.AssignmentKey(instance.A.ID))
	life.volumes.left(instance, fx)
}
