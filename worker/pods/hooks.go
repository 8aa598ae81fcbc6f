package pods

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// Hooks are Kubernetes' own. Its kubelet does postStart at each start of a container, also of a sidecar that it starts again, and has
// probes and the next container wait for it; it does preStop whoever ends the container: this program, a probe, a drain of the node.
// Commands that this program ran in the container could not keep that. The kubelet calls a container running once its postStart is done,
// and tells that a hook has failed by an event alone, without its output: that may hold secrets.

// sleepSince is the first minor version of Kubernetes 1 whose hooks can sleep without being asked to.
const sleepSince = 30

// hooks are those of a container; nil: it has none. Within a grace of 0 seconds nothing is done before the end.
func hooks(container *spec.Container, grace int64) *lifecycle {
	out := &lifecycle{PostStart: hook(container.PostStart)}
	if grace > 0 {
		out.PreStop = hook(container.PreStop)
	}
	if out.PostStart == nil && out.PreStop == nil {
		return nil
	}
	return out
}

// hook is one of the kubelet's. It takes commands as they are.
func hook(asked *spec.Hook) map[string]any {
	switch {
	case asked == nil:
		return nil
	case asked.Exec != nil:
		return map[string]any{"exec": map[string]any{"command": asked.Exec.Command}}
	case asked.HTTP != nil:
		return map[string]any{"httpGet": get(asked.HTTP)}
	}
	return map[string]any{"sleep": map[string]any{"seconds": max(1, wholeSeconds(time.Duration(asked.Sleep)))}}
}

// sleeps reports whether a service has hooks that sleep.
func sleeps(service *spec.ServiceSpec) bool {
	return slices.ContainsFunc(containersOf(service), func(it spec.SideContainer) bool {
		return it.PostStart != nil && it.PostStart.Sleep > 0 || it.PreStop != nil && it.PreStop.Sleep > 0
	})
}

// hasHook reports whether a container of a pod has hooks; empty: whether any has.
func hasHook(pod *Pod, name string) bool {
	return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c PodContainer) bool {
		return (name == "" || c.Name == name) && c.Lifecycle != nil
	})
}

// hookDone answers what the core asks of the postStart of a container that has started: that of one that runs is done. Of one that has
// ended by now the end is told, and whether it was for that.
func (w *Worker) hookDone(ctx context.Context, asked core.RunHook) {
	h := readHandle(asked.Handle)
	_ = insist(ctx, w.log, "the start of "+string(asked.ID), func() error {
		pod, there, err := w.fleet.find(ctx, h)
		if err == nil && there && Look(pod, time.Now()).Stage == Running {
			w.post(core.HookDone{ID: asked.ID, Name: asked.Name, Attempt: asked.Attempt})
		}
		return err
	})
}

// Event is one of Kubernetes: what one of its parts says of an object.
type Event struct {
	Metadata Meta   `json:"metadata"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	Count    int    `json:"count"`
	First    Time   `json:"firstTimestamp"`
	Last     Time   `json:"lastTimestamp"`
	At       Time   `json:"eventTime"`
	Object   struct {
		FieldPath string `json:"fieldPath"`
	} `json:"involvedObject"`
}

// eventsMost bounds how many events of one object are read.
const eventsMost = 200

// warnings reads the warnings of Kubernetes of an object of our namespace, the latest last.
func (c *Client) warnings(ctx context.Context, namespace, uid string) ([]Event, error) {
	var page struct {
		Items []Event `json:"items"`
	}
	query := url.Values{"limit": {strconv.Itoa(eventsMost)}, "fieldSelector": {"type=Warning,involvedObject.uid=" + uid}}
	err := c.do(ctx, http.MethodGet, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/events", query, nil, &page)
	list := page.Items[:min(len(page.Items), eventsMost)]
	slices.SortStableFunc(list, func(a, b Event) int { return a.last().Compare(b.last()) })
	return list, err
}

func (e *Event) last() time.Time {
	if !e.Last.IsZero() {
		return e.Last.Time
	}
	return e.At.Time
}

// container is the one that an event of a pod is about, or empty.
func (e *Event) container() string {
	_, name, ok := strings.Cut(e.Object.FieldPath, "{")
	if name, ends := strings.CutSuffix(name, "}"); ok && ends {
		return name
	}
	return ""
}

// What is told of hooks that failed. It is what kubelets say since Kubernetes 1.25: what older ones say has the command and what it printed,
// which may hold secrets.
const (
	startFailed = "PostStartHook failed"
	stopFailed  = "preStop: PreStopHook failed"
)

// failedHooks tells of the hooks of a pod that failed since it was asked last, and gives the event of main's postStart; nil: there is none.
func (t *teller) failedHooks(ctx context.Context, pod *Pod) (main *Event, err error) {
	list, err := t.w.fleet.opt.Client.warnings(ctx, t.w.fleet.opt.Style.Namespace, pod.Metadata.UID)
	if err != nil {
		t.w.log.Warn("Kubernetes does not say whether hooks have failed", "instance", string(t.id), "err", err)
		return nil, err
	}
	for at := range list {
		event := &list[at]
		failed := core.HookFailed{ID: t.id, Name: event.container(), Text: stopFailed}
		if !hasHook(pod, failed.Name) || failed.Name == "" {
			continue
		}
		switch event.Reason {
		case "FailedPostStartHook":
			if failed.Name == mainContainer {
				main = event
				continue
			}
			failed.Start, failed.Text = true, startFailed
		case "FailedPreStopHook":
		default:
			continue
		}
		count := max(event.Count, 1)
		if t.hooks[event.Metadata.Name] < count {
			t.hooks[event.Metadata.Name] = count
			t.w.post(failed)
		}
	}
	return main, nil
}

// hookTries is how often Kubernetes is asked whether a postStart has failed, a second apart: its events come by another way than its
// status.
const hookTries = 3

// hookPatience is how long is waited for a Kubernetes that cannot say now whether a postStart has failed.
const hookPatience = time.Minute

// ended tells of the hooks of a pod that has ended, and says why it has if that was for the postStart of main; empty: it was not. A program
// that ends well when it is asked to after a hook that failed has not ended well.
func (t *teller) ended(ctx context.Context, pod *Pod) string {
	if pod == nil || !hasHook(pod, "") {
		return ""
	}
	var exit terminated
	if s := statusOf(pod, mainContainer); s != nil && s.State.Terminated != nil {
		exit = *s.State.Terminated
	}
	ctx, cancel := context.WithTimeout(ctx, hookPatience)
	defer cancel()
	var wait time.Duration
	for try := 1; ; try++ {
		event, err := t.failedHooks(ctx, pod)
		if matters := !t.ran && exit.ExitCode == 0 && postStarts(pod); matters && err != nil && passing(err) {
			if try = 0; !pause(ctx, &wait, err) {
				return ""
			}
			continue
		}
		switch {
		case event != nil && exit.FinishedAt.Before(cmp.Or(event.First.Time, event.At.Time).Truncate(time.Second)):
			return "" // it had ended by itself, and the hook with it
		case event != nil:
			return startFailed
		case err != nil, t.ran, exit.ExitCode != 0, !postStarts(pod), try == hookTries:
			return ""
		}
		select {
		case <-ctx.Done():
			return ""
		case <-time.After(time.Second):
		}
	}
}

// hookPatienceFirst is how long a life waits in all, before it meets its site, for what Kubernetes says of pods that ended before.
const hookPatienceFirst = 10 * time.Second

// endedBefore is ended for a pod that may have ended long ago: what there is to say of it has been said then.
func (w *Worker) endedBefore(ctx context.Context, task *core.Task, pod *Pod) string {
	told := w.teller(task.ID, task.Attempt)
	told.ran = time.Since(task.Exit.At) > hookPatience
	return told.ended(ctx, pod)
}

// postStarts reports whether main has a postStart.
func postStarts(pod *Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c PodContainer) bool {
		return c.Name == mainContainer && c.Lifecycle != nil && c.Lifecycle.PostStart != nil
	})
}
