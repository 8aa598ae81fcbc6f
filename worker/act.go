//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/internal/nfsmount"
	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// cleanupTimeout bounds one try to remove an instance.
const cleanupTimeout = time.Minute

func (s *Server) act(action any) {
	work := s.work.Load()
	ctx := work.Ctx
	switch a := action.(type) {
	case core.Prepare:
		pctx, cancel := context.WithCancel(ctx)
		s.activity(a.A.ID, func(x *activity) { x.prepare = cancel })
		work.Go(func() {
			defer cancel()
			s.Post(s.prepared(pctx, a))
		})
	case core.Cancel:
		s.activity(a.ID, func(x *activity) {
			if x.prepare != nil {
				x.prepare()
			}
		})
	case core.StartContainer:
		work.Go(func() {
			if err := s.caught(func() { s.startContainer(ctx, a) }); err != nil {
				s.Post(core.Started{ID: a.A.ID, Name: a.Name, Attempt: a.Attempt, Err: err.Error()})
			}
		})
	case core.StopContainer:
		done := s.runtimes.ending.begin(a.Handle)
		work.Go(func() {
			defer done()
			_ = s.caught(func() { s.stopContainer(ctx, a) })
		})
	case core.RunHook:
		work.Go(func() {
			done, told := core.HookDone{ID: a.ID, Name: a.Name, Attempt: a.Attempt}, false
			if err := s.caught(func() { done, told = postStart(ctx, s, a) }); err != nil {
				done.Err, told = err.Error(), true
			}
			if told {
				s.Post(done)
			}
		})
	case core.Watch:
		work.Go(func() { s.watch(ctx, a.ID, a.Name, a.Attempt, a.Handle) })
	case core.KeepContact:
		s.leases.want(a.Leases)
	case core.MeasureEvery:
		select { // the last word counts
		case <-s.meter.pace:
		default:
		}
		s.meter.pace <- a.Every
	case core.SetLimits:
		work.Go(func() {
			if err := s.caught(func() { s.setLimits(ctx, a) }); err != nil {
				s.Post(core.Resized{SetLimits: a, Err: err.Error()})
			}
		})
	case core.SetEgress:
		work.Go(func() {
			defer panics.Catch(s.opt.Log, "an action")
			if err := s.net.setEgress(ctx, a.ID, a.Egress); err != nil && ctx.Err() == nil {
				s.opt.Log.Error("hold to egress", "instance", string(a.ID), "err", err)
			}
		})
	case core.RemoveVolumes:
		s.removeVolumes(a.Claim) // what is asked for after this must find nothing
	case core.RemoveSnapshot:
		work.Go(func() { _ = s.caught(func() { removeSnapshot(s, a.ID) }) })
	case core.Discard:
		done := s.runtimes.ending.begin(a.Handle)
		work.Go(func() {
			defer done()
			_ = s.caught(func() { s.discard(ctx, a.Handle) })
		})
	case core.Release:
		work.Go(func() {
			defer panics.Catch(s.opt.Log, "an action")
			if err := s.net.remove(ctx, a.ID); err != nil && ctx.Err() == nil {
				s.opt.Log.Warn("release the network", "instance", string(a.ID), "err", err)
			}
		})
	case core.Cleanup:
		s.activity(a.ID, func(x *activity) {
			if x.probes != nil {
				x.probes()
			}
		})
		work.Go(func() {
			c := core.Cleaned{ID: a.ID}
			var err error
			if bug := s.caught(func() { err = s.cleanup(ctx, a) }); bug != nil {
				err = bug
			}
			if err != nil {
				c.Err = err.Error()
			} else {
				s.mu.Lock()
				delete(s.active, a.ID)
				s.mu.Unlock()
				s.endpoints.forget(a.ID)
			}
			s.Post(c)
		})
	case core.ProbeOn:
		pctx, cancel := context.WithCancel(ctx)
		s.activity(a.A.ID, func(x *activity) {
			if x.probes != nil {
				x.probes()
			}
			x.probes = cancel
		})
		for _, k := range a.Kinds {
			work.Go(func() { _ = s.caught(func() { s.prober.probe(pctx, a, k) }) })
		}
	case core.ProbeOff:
		s.activity(a.ID, func(x *activity) {
			if x.probes != nil {
				x.probes()
				x.probes = nil
			}
		})
	case core.AwaitQuiet:
		work.Go(func() {
			s.awaitQuiet(ctx, a)
			s.Post(core.Quiet{ID: a.ID})
		})
	case core.MeasurePeers:
		s.mu.Lock()
		r := s.rtt
		s.mu.Unlock()
		if r != nil {
			r.SetPeers(a.Peers)
		}
	case core.OverlayItem:
		if s.overlayNet != nil {
			s.overlayNet.take(a)
			s.direct(a)
		}
	case core.UpgradeAgent:
		work.Go(func() { s.program.upgrade(ctx, a.Order) })
	case core.Endpoints:
		for _, err := range s.endpoints.set(a, s.instanceDir) {
			s.opt.Log.Warn("write endpoints", "err", err)
		}
	default:
		panic(fmt.Sprintf("the worker has no action %T", action))
	}
}

// caught gives a panic of one action as an error: an image or a runtime that brings one about must not end the agent.
func (s *Server) caught(do func()) (err error) {
	defer func() {
		if err != nil {
			s.opt.Log.Error("panic of an action; please report it", "err", err)
		}
	}()
	defer panics.Error(&err)
	do()
	return nil
}

func (s *Server) prepared(ctx context.Context, a core.Prepare) (m core.Prepared) {
	if err := s.caught(func() { m = s.prepare(ctx, a) }); err != nil {
		m = core.Prepared{ID: a.A.ID, Fence: a.A.Fence, Runtime: runtimeOf(&a.A), Err: err.Error(), Permanent: true}
	}
	return m
}

// direct has instances told the service addresses of an application's network.
func (s *Server) direct(a core.OverlayItem) {
	rest, ok := strings.CutPrefix(a.Key, "net/")
	app, err := skerry.ParseAppKey(rest, "")
	if !ok || err != nil {
		return
	}
	n, _ := a.Item.(*wire.AppNetwork)
	for _, err := range s.endpoints.network(app, n, s.instanceDir) {
		s.opt.Log.Warn("write endpoints", "err", err)
	}
}

func (s *Server) activity(id skerry.InstanceID, fn func(*activity)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.active[id]
	if x == nil {
		x = &activity{}
		s.active[id] = x
	}
	fn(x)
}

func (s *Server) startContainer(ctx context.Context, start core.StartContainer) {
	m := core.Started{ID: start.A.ID, Name: start.Name, Attempt: start.Attempt}
	if s.runtimes.ending.await(ctx, taskOf(&start, start.Attempt)) != nil {
		return // the agent is going away
	}
	task, driver, err := s.spec(ctx, start)
	if err == nil {
		err = s.leases.await(ctx, &start.A)
	}
	if err == nil {
		err = s.cpus.take(ctx, &task, exclusive(&start))
	}
	if err == nil {
		var handle runtime.Handle
		fromCheckpoint := start.Resume || start.A.From != nil && start.Attempt == 1 && start.Name == spec.MainContainer
		if fromCheckpoint {
			handle, err = checkpoints{s}.goOn(ctx, start, task, driver)
		} else {
			handle, err = driver.Start(ctx, task)
		}
		if errors.Is(err, runtime.ErrExists) && !fromCheckpoint {
			// An earlier life of the agent started it and did not live to write that down.
			err = driver.Remove(ctx, runtime.Handle{ID: task.ID, Driver: driver.Name(), Instance: task.Instance, Container: task.Container})
			if err == nil {
				handle, err = driver.Start(ctx, task)
			}
		}
		if err != nil && !fromCheckpoint && doubtful(err) && mend(ctx, s, &start.A, start.Name) {
			handle, err = driver.Start(ctx, task)
		}
		if err == nil && s.leases.over(&start.A) != nil { // the agent hung on the way
			_ = driver.Stop(ctx, handle, 0)
		}
		if err == nil {
			m.Handle, m.At, m.Monitor = encode(handle), handle.Started, handle.Monitor
			if e := s.cpus.started(ctx, driver, handle, task.Resources.CPUSet); e != nil {
				s.opt.Log.Warn("processors", "task", string(handle.ID), "err", e)
			}
		} else if e := s.cpus.give(context.WithoutCancel(ctx), task.ID); e != nil {
			s.opt.Log.Warn("processors", "task", string(task.ID), "err", e)
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return // the agent is going away; the next life looks what is there
		}
		s.leases.tellOver(start.A.ID)
		m.Err = err.Error()
		s.Post(m)
		return
	}
	s.leases.tellOver(start.A.ID)
	s.Post(m)
	s.disk.wake() // after the core knows
	if e, handle, ok := s.watch(ctx, start.A.ID, start.Name, start.Attempt, m.Handle); ok {
		doubt(ctx, s, &start.A, start.Name, handle, e)
	}
}

// watch waits for the end of a container. ok is false for one that it lost sight of.
func (s *Server) watch(ctx context.Context, id skerry.InstanceID, name string, attempt int, handle json.RawMessage) (e runtime.Exit,
	h runtime.Handle, ok bool) {
	defer panics.Catch(s.opt.Log, "watching a task")
	d, h, err := s.runtimes.of(handle)
	if err == nil {
		if e, err = d.Wait(ctx, h); err == nil {
			if err := s.cpus.give(ctx, h.ID); err != nil {
				s.opt.Log.Warn("processors", "task", string(h.ID), "err", err)
			}
			s.leases.tellOver(id)
			s.Post(core.Exited{ID: id, Name: name, Attempt: attempt, Exit: s.endOf(ctx, d, h, e)})
			return e, h, true
		}
	}
	if ctx.Err() == nil {
		s.Post(core.Exited{ID: id, Name: name, Attempt: attempt,
			Exit: wire.Exit{Code: 255, At: time.Now(), Message: "lost sight of it: " + err.Error()}})
	}
	return e, h, false
}

func (s *Server) stopContainer(ctx context.Context, a core.StopContainer) {
	driver, handle, err := s.runtimes.of(a.Handle)
	if err == nil {
		s.mu.Lock()
		s.doubts.ending(handle.ID)
		s.mu.Unlock()
		left, hook := preStop(ctx, s, driver, handle, a)
		if ctx.Err() != nil {
			return // the agent ends: the next life begins anew, and until then the program is not asked to end without its hook
		}
		if hook != nil {
			s.Post(core.HookFailed{ID: a.ID, Name: a.Name, Text: hook.Error()})
		}
		err = driver.Stop(ctx, handle, left)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, runtime.ErrNotFound) {
		s.opt.Log.Warn("stop", "instance", string(a.ID), "container", a.Name, "err", err)
		// What cannot be stopped is removed by force; its end is then told by watch.
		if driver != nil {
			driver.Remove(ctx, handle)
		}
	}
}

func (s *Server) discard(ctx context.Context, handle json.RawMessage) {
	d, h, err := s.runtimes.of(handle)
	if err == nil {
		err = d.Remove(ctx, h)
	}
	if err != nil && ctx.Err() == nil {
		s.opt.Log.Warn("remove a task", "task", string(h.ID), "err", err)
	}
}

// cleanup removes all there is of an instance: tasks, network, volumes, files.
func (s *Server) cleanup(ctx context.Context, asked core.Cleanup) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	var errs []error
	for _, data := range asked.Handles {
		d, h, err := s.runtimes.of(data)
		if err == nil {
			err = d.Remove(ctx, h)
		}
		errs = append(errs, err)
	}
	for _, d := range s.opt.Drivers {
		list, err := d.ListOf(ctx, asked.ID)
		errs = append(errs, err)
		for _, h := range list {
			errs = append(errs, d.Remove(ctx, h))
		}
	}
	errs = append(errs, s.net.remove(ctx, asked.ID), s.removeFiles(asked.ID))
	s.disk.wake() // others may take the room at once
	return errors.Join(errs...)
}

// removeUnknown removes what was prepared for instances that no record has: an earlier life of the agent, or of the core, did not live to
// write it down, and what their cluster wants of them it sends again.
func removeUnknown(s *Server, c *core.Core) {
	entries, err := os.ReadDir(filepath.Dir(s.instanceDir("any")))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.opt.Log.Warn("look for files of unknown instances", "err", err)
	}
	for _, e := range entries {
		id := skerry.InstanceID(e.Name())
		if _, known := core.ViewOf(c, id); known {
			continue
		}
		if err := s.removeFiles(id); err != nil {
			s.opt.Log.Warn("remove the files of an unknown instance", "instance", string(id), "err", err)
		}
	}
}

// permanent reports whether an error of a preparation will be the same at the next try here.
func permanent(err error) bool {
	if _, is := errors.AsType[impossible](err); is {
		return true
	}
	if _, is := errors.AsType[*nfsmount.Missing](err); is {
		return true
	}
	if _, is := errors.AsType[*runtime.Unsupported](err); is {
		return true
	}
	for _, e := range []error{artifact.ErrNotFound, artifact.ErrPlatform, artifact.ErrDenied, artifact.ErrInvalid, artifact.ErrTooLarge} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
