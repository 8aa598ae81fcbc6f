package pods

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// cleanTime bounds one try to remove an instance.
const cleanTime = time.Minute

func (w *Worker) act(action any) {
	work := w.work.Load()
	ctx := work.Ctx
	switch todo := action.(type) {
	case core.Prepare:
		pctx, cancel := context.WithCancel(ctx)
		w.activity(todo.A.ID, func(x *activity) { x.prepare = cancel })
		work.Go(func() {
			defer cancel()
			w.post(w.prepared(ctx, pctx, todo))
		})
	case core.Cancel:
		w.activity(todo.ID, func(x *activity) {
			if x.prepare != nil {
				x.prepare()
			}
		})
	case core.StartContainer:
		work.Go(func() {
			if err := w.caught(func() { w.start(ctx, todo) }); err != nil {
				w.post(core.Started{ID: todo.A.ID, Name: todo.Name, Attempt: todo.Attempt, Err: err.Error()})
			}
		})
	case core.StopContainer:
		w.repeat(work, func() { w.stop(ctx, todo) })
	case core.Watch:
		w.repeat(work, func() { w.watch(ctx, w.teller(todo.ID, todo.Attempt), readHandle(todo.Handle)) })
	case core.Discard:
		w.repeat(work, func() { _ = w.discard(ctx, readHandle(todo.Handle)) })
	case core.Cleanup:
		work.Go(func() {
			if err := w.caught(func() { w.cleanup(ctx, todo) }); err != nil {
				w.post(core.Cleaned{ID: todo.ID, Err: err.Error()})
			}
		})
	case core.Release:
		w.release(work, todo.ID)
	case core.ProbeOn:
		pctx, cancel := context.WithCancel(ctx)
		w.activity(todo.A.ID, func(x *activity) {
			if x.probes != nil {
				x.probes()
			}
			x.probes = cancel
		})
		w.repeat(work, func() { w.probe(pctx, todo) })
	case core.ProbeOff:
		w.activity(todo.ID, func(x *activity) {
			if x.probes != nil {
				x.probes()
				x.probes = nil
			}
		})
	case core.AwaitQuiet: // connections to a pod cannot be seen from here
		time.AfterFunc(todo.Least, func() { w.post(core.Quiet{ID: todo.ID}) })
	case core.Endpoints:
		w.direct(todo)
	case core.RunHook:
		w.repeat(work, func() { w.hookDone(ctx, todo) })
	case core.SetLimits:
		w.post(core.Resized{SetLimits: todo, Err: "unsupported: the limits of a pod stay as they are while it runs"})
	case core.RemoveVolumes:
		over := claims{w}.removal(todo.Claim) // before anything is prepared that the core asks for next
		work.Go(func() {
			defer over()
			if err := w.caught(func() { claims{w}.removeVolumes(ctx, todo.Claim) }); err != nil {
				w.post(core.VolumesRemoved{Claim: todo.Claim, Err: err.Error()})
			}
		})
	case core.RemoveSnapshot:
		w.post(core.SnapshotRemoved{ID: todo.ID})
	case core.MeasureEvery:
		w.measureEvery(todo.Every)
	case core.KeepContact, core.MeasurePeers, core.OverlayItem, core.SetEgress, core.UpgradeAgent:
		// A pod is on no lease, takes no part in the overlay and has no policy of ours; this program is upgraded where it runs.
	default:
		panic(fmt.Sprintf("pods have no action %T", action))
	}
}

// caught gives a panic of one action as an error: what an API server answers must not end this program, and the instance is to hear of it.
func (w *Worker) caught(do func()) (err error) {
	defer func() {
		if err != nil {
			w.log.Error("panic of an action; please report it", "err", err)
		}
	}()
	defer panics.Error(&err)
	do()
	return nil
}

// repeat does what nobody asks for again, until it has not panicked or this life ends.
func (w *Worker) repeat(work *tier.Work, do func()) {
	work.Go(func() {
		var wait time.Duration
		for err := w.caught(do); err != nil && pause(work.Ctx, &wait, err); {
			err = w.caught(do)
		}
	})
}

// release gives back the ports of an instance that has ended. A pod that an earlier life made, and that has not started yet, goes too.
func (w *Worker) release(work *tier.Work, id skerry.InstanceID) {
	w.mu.Lock()
	delete(w.ports, id)
	delete(w.orgs, id)
	w.mu.Unlock()
	for _, p := range w.fleet.ofWorker(w.name) {
		if p.Metadata.Annotations[instanceNote] == string(id) && Look(p, time.Now()).Stage != Ended {
			w.repeat(work, func() { _ = w.discard(work.Ctx, handle{p.Metadata.Name, p.Metadata.UID}) })
		}
	}
}

func (w *Worker) activity(id skerry.InstanceID, fn func(*activity)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.active[id]
	if x == nil {
		x = &activity{}
		w.active[id] = x
	}
	fn(x)
}

// start makes the pod of an attempt and waits until it runs. Every other pod of the instance here ends first: no two run at a time.
func (w *Worker) start(ctx context.Context, a core.StartContainer) {
	m := core.Started{ID: a.A.ID, Name: a.Name, Attempt: a.Attempt}
	told := w.teller(a.A.ID, a.Attempt)
	h, sight, err := w.launch(ctx, a, told)
	if err != nil {
		if ctx.Err() != nil {
			return // this program is going away; the next life takes up what is there
		}
		m.Err = err.Error()
		w.post(m)
		return
	}
	if sight.Init != "" {
		w.post(core.Exited{ID: a.A.ID, Name: a.Name, Attempt: a.Attempt, Exit: sight.Exit, Init: sight.Init, Handle: h.encode()})
		return
	}
	m.Handle, m.At = h.encode(), sane(sight.Since, time.Now())
	w.post(m)
	w.watch(ctx, told, h)
}

// launch gives the pod once it runs or has ended, else why it does not, and then it is gone.
func (w *Worker) launch(ctx context.Context, start core.StartContainer, told *teller) (named handle, sight Sight, err error) {
	node, _, _ := w.fleet.node(w.node)
	if node == nil {
		return named, sight, errors.New("its node is not in Kubernetes")
	}
	if err := refuse(&start.A); err != nil {
		return named, sight, err
	}
	if start.Attempt > 1 { // somebody may have deleted them since it was prepared
		err := claims{w}.makeClaims(ctx, &start.A)
		if claim, is := errors.AsType[*claimError](err); is && !claim.lasting { // Kubernetes keeps it while there is any pod of ours that has it
			err = errors.Join(err, w.clear(ctx, start.A.ID, "", true))
		}
		if err != nil {
			return named, sight, err
		}
	}
	w.mu.Lock()
	ports := w.ports[start.A.ID]
	w.mu.Unlock()
	pod, err := w.fleet.opt.Style.pod(&start.A, start.Attempt, node, w.name, ports)
	if err != nil {
		return named, sight, err
	}
	if len(start.A.Spec.Secrets) > 0 {
		var have secretObject
		err := persist(ctx, w.log, "the start of "+string(start.A.ID), func() error {
			return w.fleet.opt.Client.do(ctx, http.MethodGet, secretPath(w.fleet.opt.Style.Namespace, filesName(start.A.ID, w.name)), nil, nil,
				&have)
		})
		if err != nil {
			return named, sight, err
		}
		keys := []string{}
		for k := range have.Data {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		fillSecrets(pod, &start.A, keys)
	}
	if err := w.makeRoom(ctx, start, pod.Metadata.Name); err != nil {
		return named, sight, err
	}
	var made *Pod
	err = persist(ctx, w.log, "the start of "+string(start.A.ID), func() (err error) {
		made, err = w.fleet.opt.Client.createPod(ctx, pod)
		return err
	})
	if err != nil {
		return named, sight, err
	}
	if made.Metadata.Annotations[attemptNote] != strconv.Itoa(start.Attempt) || made.Metadata.Annotations[instanceNote] != string(start.A.ID) {
		return named, sight, fmt.Errorf("a pod %s that is not ours is in the way", clean(made.Metadata.Name, 100))
	}
	w.fleet.note(made)
	named = handle{made.Metadata.Name, made.Metadata.UID}
	cannot, why := w.kept(pod, made), ""
	if cannot != nil {
		why = cannot.Error()
	} else {
		sight, why, err = w.awaitRun(ctx, start, named, told)
	}
	if err == nil && why != "" {
		if err = w.discard(ctx, named); sight.Stage != Ended || sight.Ran { // nothing of the other is to be awaited
			err = errors.Join(err, w.awaitEnd(ctx, named))
		}
		if err == nil {
			err = errors.New(why)
		}
	}
	return named, sight, err
}

// makeRoom ends every other pod of an instance here. That of the attempt before is asked for by its name: an earlier life of this program
// may have had no answer when it made it, and then the watch may not have told of it yet.
func (w *Worker) makeRoom(ctx context.Context, start core.StartContainer, but string) error {
	if start.Attempt > 1 {
		before := handle{Pod: podName(&start.A, w.name, start.Attempt-1)}
		err := persist(ctx, w.log, "the start of "+string(start.A.ID), func() error {
			_, _, err := w.fleet.find(ctx, before)
			return err
		})
		if err != nil {
			return err
		}
	}
	return w.clear(ctx, start.A.ID, but, false)
}

// unwanted reports whether an instance that is being started is to end.
func (w *Worker) unwanted(ctx context.Context, id skerry.InstanceID) bool {
	ending, err := tier.View(ctx, w.role.Load(), func(c *core.Core) (bool, error) {
		v, ok := core.ViewOf(c, id)
		return ok && (v.Ending() || v.Halted()), nil
	})
	return err == nil && ending
}

// clear ends the pods of an instance on this worker, but for the one that is named, and waits until they have ended; if all are to be gone,
// until they are.
func (w *Worker) clear(ctx context.Context, id skerry.InstanceID, but string, gone bool) error {
	for _, p := range w.fleet.ofWorker(w.name) {
		if p.Metadata.Annotations[instanceNote] != string(id) || p.Metadata.Name == but {
			continue
		}
		h := handle{p.Metadata.Name, p.Metadata.UID}
		over := func(p *Pod) bool { return Look(p, time.Now()).Stage == Ended && !lingers(p) }
		if over(p) && !gone {
			continue // its log is kept
		}
		if gone || Look(p, time.Now()).Stage != Ended { // one whose sidecars are ending keeps its log, too
			if err := w.remove(ctx, h); err != nil {
				return err
			}
		}
		err := w.fleet.await(ctx, h, false, func(p *Pod, there bool) bool { return !there || !gone && over(p) })
		if err != nil {
			return fmt.Errorf("pod %s has not ended: %w", h.Pod, err)
		}
	}
	return nil
}

// remove asks for the end of a pod, with its own grace.
func (w *Worker) remove(ctx context.Context, h handle) error {
	return persist(ctx, w.log, "the end of pod "+h.Pod, func() error {
		return w.fleet.opt.Client.deletePod(ctx, w.fleet.opt.Style.Namespace, h.Pod, h.UID, nil)
	})
}

// discard is remove for what nobody asks to be removed again.
func (w *Worker) discard(ctx context.Context, h handle) error {
	return insist(ctx, w.log, "the end of pod "+h.Pod, func() error {
		return w.fleet.opt.Client.deletePod(ctx, w.fleet.opt.Style.Namespace, h.Pod, h.UID, nil)
	})
}

func (w *Worker) awaitEnd(ctx context.Context, h handle) error {
	return w.fleet.await(ctx, h, false, func(_ *Pod, there bool) bool { return !there })
}

// finish removes a pod that is there, and waits until it is gone.
func (w *Worker) finish(ctx context.Context, h handle) error {
	if _, there, err := w.fleet.find(ctx, h); err != nil || !there {
		return err
	}
	if err := w.remove(ctx, h); err != nil {
		return err
	}
	return w.awaitEnd(ctx, h)
}

func (w *Worker) stop(ctx context.Context, a core.StopContainer) {
	h, grace := readHandle(a.Handle), int64((a.Grace+time.Second-1)/time.Second)
	_ = insist(ctx, w.log, "the end of pod "+h.Pod, func() error {
		return w.fleet.opt.Client.deletePod(ctx, w.fleet.opt.Style.Namespace, h.Pod, h.UID, &grace)
	})
}

// watch tells the core when a pod has ended.
func (w *Worker) watch(ctx context.Context, told *teller, h handle) {
	ended := core.Exited{ID: told.id, Name: mainContainer, Attempt: told.attempt}
	var last *Pod
	err := w.fleet.await(ctx, h, false, func(p *Pod, there bool) bool {
		if p != nil {
			last = p
			told.look(ctx, p, time.Now())
			if s := Look(p, time.Now()); s.Stage == Ended {
				ended.Exit, ended.Init = s.Exit, s.Init
				return true
			}
		}
		ended.Exit = wire.Exit{Code: lostCode, At: time.Now(), Message: "its pod was removed from Kubernetes, and nobody saw its end"}
		return !there
	})
	if err == nil {
		ended.PostStart = told.ended(ctx, last)
		w.post(ended)
	}
}

// cleanup removes all there is of an instance here.
func (w *Worker) cleanup(ctx context.Context, asked core.Cleanup) {
	done := core.Cleaned{ID: asked.ID}
	tctx, cancel := context.WithTimeout(ctx, cleanTime)
	defer cancel()
	err := w.clear(tctx, asked.ID, "", true)
	for _, data := range asked.Handles { // one may have lost its labels
		if h := readHandle(data); h.Pod != "" && err == nil {
			err = w.finish(tctx, h)
		}
	}
	if err == nil {
		err = w.fleet.opt.Client.deleteSecret(tctx, w.fleet.opt.Style.Namespace, filesName(asked.ID, w.name))
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		done.Err = err.Error()
	} else {
		w.forget(asked.ID)
	}
	w.post(done)
}

// probe tells the core what Kubernetes' own probes found. They have counted already, so each verdict stands for as many tries as the core
// counts. Of liveness nothing is told: the kubelet ends the container, and its end is seen.
func (w *Worker) probe(ctx context.Context, asked core.ProbeOn) {
	var last [2]bool
	first := true
	_ = w.fleet.await(ctx, readHandle(asked.Handle), false, func(pod *Pod, there bool) bool {
		if !there {
			return true
		}
		sight := Look(pod, time.Now())
		if sight.Stage != Running {
			return sight.Stage == Ended
		}
		now := [2]bool{sight.Started, sight.Ready}
		for i, kind := range []core.ProbeKind{core.Startup, core.Readiness} {
			spec := core.ProbeOf(&asked.A.Spec, kind)
			if !slices.Contains(asked.Kinds, kind) || spec == nil || !first && now[i] == last[i] {
				continue
			}
			tries := max(spec.Successes, 1)
			if !now[i] {
				if kind == core.Startup {
					continue // if it fails for good, the kubelet ends the container
				}
				tries = max(spec.Failures, 1)
			}
			for range tries {
				w.post(core.Probed{ID: asked.A.ID, Attempt: asked.Attempt, Kind: kind, OK: now[i], Text: sight.Reason})
			}
		}
		first, last = false, now
		return false
	})
}
