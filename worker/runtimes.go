//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// runtimes are the drivers of a worker with what their self-tests said last, and which of their tasks are to end.
type runtimes struct {
	list    []runtime.Driver
	named   map[string]runtime.Driver
	dir     string // the worker's, with the profile
	noUsers bool   // the operator wants no user namespaces
	log     *slog.Logger
	ending  endings

	pending sync.WaitGroup // self-tests that a start did not wait for

	mu      sync.Mutex
	reports []wire.RuntimeReport
	round   int // counts the checks whose verdicts were kept
}

func newRuntimes(list []runtime.Driver, dir string, noUsers bool, log *slog.Logger) *runtimes {
	rt := &runtimes{list: list, named: map[string]runtime.Driver{}, dir: dir, noUsers: noUsers, log: log}
	for _, d := range list {
		rt.named[d.Name()] = d
	}
	return rt
}

// machineWait is how long a starting worker waits for the self-tests of runtimes that boot a machine, which takes minutes where its
// processor is emulated. Nothing about how other runtimes run depends on them. Where machines run already it waits for the verdict: a
// cluster that hears of a worker without their runtime ends them in an update, as on a worker that the next version is not for.
const machineWait = 15 * time.Second

// check runs every runtime's self-test, and keeps and returns the verdicts. It waits for machines until patience ends: a verdict that
// comes after that is kept, and late is called. What is said after ctx has ended is no verdict, and is not kept: without its abilities,
// containers would start with the host's users.
func (rt *runtimes) check(ctx, patience context.Context, late func()) []wire.RuntimeReport {
	profile, err := ReadProfile(rt.dir)
	if err != nil {
		rt.log.Warn("the profile of runtimes is not used", "err", err)
	}
	out, verdicts := make([]wire.RuntimeReport, len(rt.list)), make([]chan wire.RuntimeReport, len(rt.list))
	for n, d := range rt.list {
		verdicts[n] = make(chan wire.RuntimeReport, 1)
		go func() { verdicts[n] <- rt.test(ctx, d, profile) }()
	}
	var pending []int
	for n, d := range rt.list {
		wait := patience.Done()
		if k := spec.RuntimeNamed(d.Name()); k == nil || k.Isolation != spec.IsolationHardware || rt.busy(ctx, d) {
			wait = nil
		}
		select {
		case out[n] = <-verdicts[n]:
		case <-wait:
			pending = append(pending, n)
			out[n] = wire.RuntimeReport{Name: d.Name(), Cause: "its self-test still boots a machine",
				Cure: "wait: the runtime is used once it has passed"}
			rt.log.Info("a self-test takes long; the worker begins without that runtime", "runtime", d.Name())
		}
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if ctx.Err() == nil {
		rt.round++
		rt.reports = out
	}
	round := rt.round
	for _, n := range pending {
		rt.pending.Go(func() {
			if verdict := <-verdicts[n]; ctx.Err() == nil && rt.amend(round, n, verdict) {
				late()
			}
		})
	}
	return slices.Clone(out)
}

// amend keeps a verdict that came late, unless a later check has brought another one.
func (rt *runtimes) amend(round, n int, verdict wire.RuntimeReport) bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.round != round {
		return false
	}
	rt.reports = slices.Clone(rt.reports)
	rt.reports[n] = verdict
	return true
}

// busy reports whether something runs in a runtime, or whether that is not known.
func (rt *runtimes) busy(ctx context.Context, d runtime.Driver) bool {
	list, err := d.List(ctx)
	return err != nil || slices.ContainsFunc(list, func(h runtime.Handle) bool {
		st, err := d.Status(ctx, h)
		return err != nil || st.State != runtime.StateExited && st.State != runtime.StateBroken
	})
}

// tell tells of the machine. Whoever looked before a verdict came may speak after those who looked later, so each looks again whether it
// told of the last ones.
func (rt *runtimes) tell(look func() core.Facts, post func(msg any)) {
	for again := true; again; {
		facts := look()
		post(facts)
		again = !reflect.DeepEqual(facts.Facts.Runtimes, rt.last())
	}
}

// test runs one runtime's self-test.
func (rt *runtimes) test(ctx context.Context, d runtime.Driver, profile map[string]wire.RuntimeProfile) wire.RuntimeReport {
	r := d.Check(ctx)
	out := wire.RuntimeReport{Name: d.Name(), Passed: r.Passed, Cause: r.Cause, Cure: r.Cure, Version: r.Version, Absent: r.Absent,
		Emulated: r.Emulated}
	for _, a := range r.Abilities {
		out.Abilities = append(out.Abilities, string(a))
	}
	rt.checkUsers(&out)
	if !r.Passed && !r.Absent {
		rt.log.Warn("runtime does not work", "runtime", d.Name(), "err", r.Cause, "hint", r.Cure)
	}
	if r.Passed && r.Cause != "" && !out.NoUserNamespaces() && !out.SharedUsers() {
		rt.log.Info("runtime works with restrictions", "runtime", d.Name(), "why", r.Cause)
	}
	if p, ok := profile[out.Name]; ok {
		out.Profile = &p
	}
	return out
}

// checkUsers takes user namespaces out of a verdict where the operator wants none, and says loudly where containers have none.
func (rt *runtimes) checkUsers(r *wire.RuntimeReport) {
	if r.Name != spec.RuntimeOCI || !r.Passed {
		return
	}
	if rt.noUsers {
		r.Abilities = slices.DeleteFunc(r.Abilities, func(a string) bool { return a == spec.AbilityUserNS || a == spec.AbilityUserNSCopies })
		r.Cause, r.Cure = "no user namespaces: the worker was started with --user-namespaces=off", "start it without"
	}
	if r.SharedUsers() {
		rt.log.Info("owners of files cannot be mapped: all containers of an organisation have the same users", "why", r.Cause)
	}
	if r.NoUserNamespaces() {
		rt.log.Warn("containers have no user namespaces: root in them is root outside", "err", r.Cause, "hint", r.Cure)
	}
}

// ability reports whether the last self-test of a runtime lists an ability.
func (rt *runtimes) ability(driver string, a runtime.Ability) bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return slices.ContainsFunc(rt.reports, func(r wire.RuntimeReport) bool {
		return r.Name == driver &&
			slices.Contains(r.Abilities, string(a))
	})
}

// usersKnown gives an error where nobody knows which users containers of a runtime would have: a self-test that failed lists no abilities,
// and without them a container would have the host's.
func (rt *runtimes) usersKnown(driver string) error {
	for _, r := range rt.last() {
		if r.Name == driver && driver == spec.RuntimeOCI && !r.Passed {
			return fmt.Errorf("runtime %s did not pass its last self-test, which says whether containers have users of their own: %s",
				driver, r.Cause)
		}
	}
	return nil
}

// last gives the last verdicts of check.
func (rt *runtimes) last() []wire.RuntimeReport {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return slices.Clone(rt.reports)
}

// tasks lists what the drivers find on the machine.
func (rt *runtimes) tasks(ctx context.Context) []core.Task {
	var out []core.Task
	for _, driver := range rt.list {
		list, err := driver.List(ctx)
		if err != nil {
			rt.log.Error("list tasks", "runtime", driver.Name(), "err", err)
			continue
		}
		for _, h := range list {
			st, err := driver.Status(ctx, h)
			attempt, ok := attemptOf(h)
			if err != nil || !ok || st.State == runtime.StateBroken {
				if err := driver.Remove(ctx, h); err != nil {
					rt.log.Warn("remove a half-made task", "task", string(h.ID), "err", err)
				}
				continue
			}
			t := core.Task{ID: h.Instance, Name: h.Container, Attempt: attempt, Handle: encode(h), Running: st.State != runtime.StateExited,
				Digest: h.Labels[digestLabel], Monitor: h.Monitor}
			t.Restart, _ = strconv.ParseUint(h.Labels[restartLabel], 10, 64)
			if st.Exit != nil {
				t.Exit = exitOf(*st.Exit)
			}
			out = append(out, t)
		}
	}
	return out
}

func attemptOf(h runtime.Handle) (int, bool) {
	id := string(h.ID)
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, '.')+1:])
	return n, err == nil
}

func encode(h runtime.Handle) json.RawMessage {
	data, err := json.Marshal(h)
	if err != nil {
		panic("handles always marshal: " + err.Error())
	}
	return data
}

// of gives the driver of a stored handle.
func (rt *runtimes) of(data json.RawMessage) (runtime.Driver, runtime.Handle, error) {
	var h runtime.Handle
	if err := json.Unmarshal(data, &h); err != nil {
		return nil, h, fmt.Errorf("task handle: %w", err)
	}
	d := rt.named[h.Driver]
	if d == nil {
		return nil, h, fmt.Errorf("runtime %q is not part of this build", h.Driver)
	}
	return d, h, nil
}

func exitOf(e runtime.Exit) wire.Exit {
	out := wire.Exit{Code: e.Code, OOMKilled: e.OOMKilled, At: e.At}
	if e.Signal != 0 {
		out.Signal = signalName(e.Signal)
	}
	if e.Lost {
		out.Code, out.Message = 255, "nobody saw how it ended"
	}
	return out
}
