package pods

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/worker/core"
)

// Init containers and sidecars. Each attempt is a pod with all containers of the instance: Kubernetes runs init containers one after the
// other, starts sidecars (init containers whose restartPolicy is Always) before the main container, starts those that end again, and ends
// them after it.

// sidecarsSince is the first minor version of Kubernetes 1 that has sidecars without being asked to.
const sidecarsSince = 29

// noSidecars says why a node has no sidecars; empty: it has. Its kubelet may not be newer than the API server.
func (f *Fleet) noSidecars(node *Node) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return cmp.Or(f.without[""], f.without[node.Metadata.Name], tooOld(node, sidecarsSince))
}

// tooOld says that the kubelet of a node is older than a minor version of Kubernetes 1; empty: it is not.
func tooOld(node *Node, since int) string {
	kubelet, major, minor := node.Status.NodeInfo.KubeletVersion, 0, 0
	if _, err := fmt.Sscanf(kubelet, "v%d.%d", &major, &minor); err == nil && (major > 1 || minor >= since) {
		return ""
	}
	kubelet = cmp.Or(clean(kubelet, 40), "of a version that it does not say")
	return fmt.Sprintf("they need Kubernetes 1.%d, and its kubelet is %s", since, kubelet)
}

// lacksSidecars notes that there are none on a node, or on any (""), which only using them has shown.
func (f *Fleet) lacksSidecars(node, why string) error {
	f.mu.Lock()
	if f.without[node] == "" {
		f.without[node] = why
		f.opt.Log.Warn("sidecars are no longer offered", "node", node, "why", why)
	}
	f.mu.Unlock()
	f.all()
	return &Unsupported{"sidecars", why}
}

// sidecarsRefused is the reason of a pod that the kubelet does not run because it has sidecars.
const sidecarsRefused = "InitContainerRestartPolicyForbidden"

// kept reports an API server that made a pod without what makes its sidecars such: they would be init containers that never end.
func (w *Worker) kept(asked, made *Pod) error {
	there := sidecars(made) // maybe with those that somebody's admission webhook has put before ours
	for _, name := range sidecars(asked) {
		if !slices.Contains(there, name) {
			return w.fleet.lacksSidecars("", "the API server ignores the restartPolicy of init containers (feature SidecarContainers)")
		}
	}
	return nil
}

// statusOf finds the status of a container of ours; nil: there is none. All but main are init containers to Kubernetes.
func statusOf(pod *Pod, name string) *ContainerStatus {
	list := pod.Status.InitContainerStatuses
	if name == mainContainer {
		list = pod.Status.ContainerStatuses
	}
	if i := slices.IndexFunc(list, func(s ContainerStatus) bool { return s.Name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

// sidecars are the names of those of a pod.
func sidecars(pod *Pod) (out []string) {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy == always {
			out = append(out, c.Name)
		}
	}
	return out
}

// failedInit finds the init container that ended badly; nil: there is none.
func failedInit(pod *Pod) *ContainerStatus {
	beside := sidecars(pod)
	for i := range pod.Status.InitContainerStatuses {
		s := &pod.Status.InitContainerStatuses[i]
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 && !slices.Contains(beside, s.Name) {
			return s
		}
	}
	return nil
}

// before says what keeps a pod from its main container; its Reason is empty if nothing does that is known. A sidecar that ends again and
// again does not: what follows starts as soon as it has run.
func before(pod *Pod) Sight {
	for i := range pod.Status.InitContainerStatuses {
		s := &pod.Status.InitContainerStatuses[i]
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason != "CrashLoopBackOff" && slices.Contains(stuck, s.State.Waiting.Reason):
			return Sight{Stage: Stuck, Reason: clean("container "+s.Name+": "+why(s.State.Waiting.Reason, s.State.Waiting.Message), maxReason)}
		case s.State.Running != nil && !slices.Contains(sidecars(pod), s.Name):
			return Sight{Stage: Pending, Reason: clean("init container "+s.Name+" runs", maxReason)}
		}
	}
	return Sight{}
}

// lingers reports whether sidecars of a pod run whose main container has ended. The kubelet ends them.
func lingers(pod *Pod) bool {
	if pod.Status.Phase == "Failed" || pod.Status.Phase == "Succeeded" {
		return false
	}
	return slices.ContainsFunc(sidecars(pod), func(name string) bool {
		s := statusOf(pod, name)
		return s != nil && s.State.Running != nil
	})
}

// teller tells the core of the ends of sidecars in one attempt.
type teller struct {
	w       *Worker
	id      skerry.InstanceID
	attempt int
	told    map[string]core.SideEnded
	ran     bool           // main was seen running: its postStart is done
	hooks   map[string]int // failures of hooks, by the name of Kubernetes' event: how often each was told of
}

func (w *Worker) teller(id skerry.InstanceID, attempt int) *teller {
	return &teller{w: w, id: id, attempt: attempt, told: map[string]core.SideEnded{}, hooks: map[string]int{}}
}

// look tells what is new. That sidecars end with the pod is no news.
func (t *teller) look(ctx context.Context, pod *Pod, now time.Time) {
	if pod != nil && Look(pod, now).Stage == Running {
		t.ran = true
	}
	if pod == nil || !pod.Metadata.DeletionTimestamp.IsZero() || Look(pod, now).Stage == Ended {
		return
	}
	for _, name := range sidecars(pod) {
		m, ok := sideOf(pod, name, now)
		last := t.told[name]
		forgotten := last.Ends > 0 && m.Ends == 0 && !m.Since.IsZero() // it runs, and its kubelet knows of no end
		// Each start but the first is one more end. Their times are no help: those that are nonsense are always now.
		if !ok && !forgotten || m.Ends == last.Ends && m.Since.IsZero() == last.Since.IsZero() {
			continue
		}
		t.told[name] = m
		m.ID, m.Attempt = t.id, t.attempt
		if t.w.post(m); hasHook(pod, name) {
			_, _ = t.failedHooks(ctx, pod)
		}
	}
}

// endsMost bounds how often a sidecar may have ended.
const endsMost = 1 << 20

// sideOf reads from the status of a sidecar how often it has ended, and how the last time; ok is false if it has not.
func sideOf(pod *Pod, name string, now time.Time) (side core.SideEnded, ok bool) {
	status := statusOf(pod, name)
	if status == nil {
		return side, false
	}
	side.Name, side.Ends = name, min(max(status.RestartCount, 0), endsMost)
	last := status.LastState.Terminated
	switch {
	case status.State.Terminated != nil:
		last = status.State.Terminated
		side.Ends++
	case status.State.Running != nil:
		side.Since = sane(status.State.Running.StartedAt.Time, now)
	case last != nil: // it waits for its next start, which is not counted yet
		side.Ends++
	}
	if last == nil || side.Ends == 0 {
		return side, false
	}
	side.Exit = exitOf(&Pod{}, last, now)
	side.Ran = max(0, sane(last.FinishedAt.Time, now).Sub(sane(last.StartedAt.Time, now)))
	return side, true
}

// awaitRun waits until a pod runs or has ended; why says what keeps it from that.
func (w *Worker) awaitRun(ctx context.Context, start core.StartContainer, named handle, told *teller) (sight Sight, why string, err error) {
	since, waits := time.Now(), waiter{w: w, start: &start}
	err = w.fleet.await(ctx, named, true, func(pod *Pod, there bool) bool {
		if pod == nil || !there && Look(pod, time.Now()).Stage != Ended {
			why = "its pod was deleted in Kubernetes before it ran"
			return true
		}
		sight = Look(pod, time.Now())
		told.look(ctx, pod, time.Now())
		if sight.Stage < Stuck {
			why = waits.look(ctx, pod)
		}
		if waits.unbound { // that it is not scheduled is no fault of the node's
			since = time.Now()
		}
		switch {
		case why != "":
		case sight.Stage == Stuck, sight.Stage == Unplaced && time.Since(since) > w.fleet.opt.Patience:
			why = sight.Reason
		case sight.Stage < Stuck && w.unwanted(ctx, start.A.ID):
			why = "it is not wanted any more"
		case sight.Stage == Ended && pod.Status.Reason == sidecarsRefused:
			why = w.fleet.lacksSidecars(w.node, "its kubelet refuses them ("+sidecarsRefused+")").Error()
		}
		return why != "" || sight.Stage >= Running
	})
	if sight.Stage == Ended && !sight.Ran && sight.Init == "" {
		why = cmp.Or(why, sight.Exit.Message, "its container was never started")
	}
	return sight, why, err
}
