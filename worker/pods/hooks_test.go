package pods

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skerry.dev/skerry/worker/core"
	"skerry.dev/skerry/worker/pods/podstest"
)

// Hooks become Kubernetes' own, with commands as they are: the kubelet replaces nothing in these, but does in those of probes.
func TestHooksOfPods(t *testing.T) {
	assigned := assignment(t, `{"name":"web","image":"x","terminationGrace":"3s","postStart":{"exec":{"command":["/warm","$HOME","$$"]}},
"preStop":{"sleep":"1500ms"},"probes":{"liveness":{"exec":{"command":["/ok","$$"]}}},
"sidecars":[{"name":"log","image":"x","postStart":{"http":{"path":"/w","port":80,"headers":{"Host":"h"}}}}]}`)
	text := func() string {
		t.Helper()
		pod, err := (&Style{Namespace: "skerry"}).pod(assigned, 1, nodeOf(t, aNode), "n1", nil)
		if err != nil {
			t.Fatalf("pod = %v, want no error", err)
		}
		data, err := json.Marshal(pod.Spec)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	got := text()
	for _, want := range []string{`"postStart":{"exec":{"command":["/warm","$HOME","$$"]}}`, `"preStop":{"sleep":{"seconds":2}}`,
		`"livenessProbe":{"exec":{"command":["/ok","$$$$"]}`,
		`"postStart":{"httpGet":{"httpHeaders":[{"name":"Host","value":"h"}],"path":"/w","port":80}}`} {
		if !strings.Contains(got, want) {
			t.Errorf("the pod has no %s:\n%s", want, got)
		}
	}
	none := assigned.Spec.TerminationGrace
	*none = 0
	if got := text(); strings.Contains(got, "preStop") || !strings.Contains(got, "postStart") {
		t.Errorf("without a grace the pod is %s, want it to have postStart alone", got)
	}
}

// Hooks that sleep need a newer Kubernetes than others.
func TestHooksThatSleep(t *testing.T) {
	worker := alone(t, podstest.NewServer(t).URL)
	worker.fleet.known["n1"].Status.NodeInfo.KubeletVersion = "v1.29.3"
	for hook, want := range map[string]string{`"sleep":"1s"`: "unsupported: hooks that sleep: ", `"exec":{"command":["/x"]}`: ""} {
		done := worker.prepare(t.Context(), core.Prepare{A: *assignment(t, `{"name":"web","image":"x","postStart":{`+hook+`}}`)})
		if want == "" && done.Err != "" || !strings.HasPrefix(done.Err, want) || done.Permanent != (want != "") {
			t.Errorf("on an older node a hook %s leads to %+v, want %q", hook, done, want)
		}
	}
}

// hookedPod is one whose main container ended well at second 10, of which there are events.
func hookedPod(t *testing.T, events string) (*Worker, *heard, *Pod) {
	t.Helper()
	worker, told := alone(t, answering(t, func(to http.ResponseWriter, r *http.Request) {
		if r.FormValue("fieldSelector") != "type=Warning,involvedObject.uid=u1" {
			http.Error(to, r.FormValue("fieldSelector"), http.StatusBadRequest)
			return
		}
		_, _ = to.Write([]byte(`{"items":[` + events + `]}`))
	})), &heard{}
	live(t, worker, told)
	var pod Pod
	if err := json.Unmarshal([]byte(`{"metadata":{"name":"p","uid":"u1"},"spec":{"containers":[{"name":"main","lifecycle":{"postStart":{}}}],
"initContainers":[{"name":"log","restartPolicy":"Always","lifecycle":{"preStop":{}}}]},"status":{"phase":"Succeeded",
"containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":0,"finishedAt":"2026-01-01T00:00:10Z"}}}]}}`), &pod); err != nil {
		t.Fatal(err)
	}
	return worker, told, &pod
}

// A pod that ended well has not if that was for its postStart; one that ended before that failed has. Nonsense is nothing.
func TestEndForAHook(t *testing.T) {
	event := func(second, reason, container, message string) string {
		return `{"metadata":{"name":"e` + second + reason + `"},"reason":"` + reason + `","message":"` + message +
			`","firstTimestamp":"2026-01-01T00:00:` + second + `Z","involvedObject":{"fieldPath":"spec.containers{` + container + `}"}}`
	}
	for name, c := range map[string]struct{ events, want string }{
		"it failed":          {event("09", "FailedPostStartHook", "main", `sh -c secret failed: secret`), "PostStartHook failed"},
		"in the same second": {event("10", "FailedPostStartHook", "main", ""), "PostStartHook failed"},
		"it had ended":       {event("11", "FailedPostStartHook", "main", "x"), ""},
		"another's":          {event("09", "FailedPostStartHook", "other", "x"), ""},
		"another thing":      {event("09", "Unhealthy", "main", "x"), ""},
		"nothing of it":      {`{"reason":"FailedPostStartHook","involvedObject":{"fieldPath":"}{"}},{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			worker, _, pod := hookedPod(t, c.events)
			teller := worker.teller("web-1", 1)
			teller.ran = c.want == "" // else it is asked again
			if got := teller.ended(t.Context(), pod); got != c.want {
				t.Errorf("it ended for its hook because of %q, want %q", got, c.want)
			}
		})
	}
}

// The failures of other hooks are told once.
func TestFailedHooksAreToldOnce(t *testing.T) {
	worker, told, pod := hookedPod(t, `{"metadata":{"name":"e1"},"reason":"FailedPreStopHook","message":"no","count":2,
"involvedObject":{"fieldPath":"spec.initContainers{log}"}}`)
	teller := worker.teller("web-1", 1)
	teller.ran = true
	for range 2 {
		if got := teller.ended(t.Context(), pod); got != "" {
			t.Errorf("it ended for its postStart because of %q, want none", got)
		}
	}
	fits := func(msg any) bool {
		return msg == core.HookFailed{ID: "web-1", Name: "log", Text: "preStop: PreStopHook failed"}
	}
	told.await(t, "the failure of the hook", fits)
	worker.post(core.Quiet{ID: "last"})
	told.await(t, "the last message", func(msg any) bool { return msg == core.Quiet{ID: "last"} })
	n := 0
	for _, msg := range told.told {
		if fits(msg) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the failure of a hook was told %d times, want once", n)
	}
}

// Where the events may not be read, a pod has ended as its status says, and that is not asked for again and again.
func TestHooksWithoutEvents(t *testing.T) {
	worker, _, pod := hookedPod(t, "")
	worker.fleet.opt.Client.base = answering(t, func(to http.ResponseWriter, _ *http.Request) {
		podstest.Refuse(to, 403, "Forbidden", "events is forbidden")
	})
	began := time.Now()
	if got := worker.teller("web-1", 1).ended(t.Context(), pod); got != "" || time.Since(began) > time.Second {
		t.Errorf("without the right to list events it ended because of %q after %s, want none, at once", got, time.Since(began))
	}
}

// A Kubernetes that cannot say now whether a postStart has failed is asked again: a program that ended well may not have.
func TestHooksWhileEventsAreAway(t *testing.T) {
	worker, _, pod := hookedPod(t, "")
	var asked atomic.Int64
	worker.fleet.opt.Client.base = answering(t, func(to http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) <= 2*hookTries {
			podstest.Refuse(to, 429, "TooManyRequests", "later")
			return
		}
		_, _ = to.Write([]byte(`{"items":[{"metadata":{"name":"e"},"reason":"FailedPostStartHook","firstTimestamp":"2026-01-01T00:00:09Z",
"involvedObject":{"fieldPath":"spec.containers{main}"}}]}`))
	})
	if got := worker.teller("web-1", 1).ended(t.Context(), pod); got != startFailed {
		t.Errorf("after %d questions it ended for its hook because of %q, want %q", asked.Load(), got, startFailed)
	}
}

// What ended long ago is not waited for at the next start of the program: meanwhile the site would take the worker for lost.
func TestHooksOfTheLongEnded(t *testing.T) {
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	kubelet := podstest.Kubelet{Server: server.URL}
	for _, id := range []string{"web-1", "web-2", "web-3"} {
		made := running(t, worker, server, id+"-x-1", id, 1)
		kubelet.Do("PATCH", podPath("skerry", made.Pod), podstest.Object{"spec": podstest.Object{"containers": []podstest.Object{
			{"name": mainContainer, "lifecycle": podstest.Object{"postStart": podstest.Object{}}}}},
			"status": podstest.Object{"phase": "Succeeded", "containerStatuses": []podstest.Object{{"name": mainContainer,
				"state": podstest.Object{"terminated": podstest.Object{"exitCode": 0, "finishedAt": "2026-01-01T00:00:10Z"}}}}}}, nil)
	}
	relist(t, worker)
	began := time.Now()
	tasks, err := worker.tasks(t.Context(), nil)
	if asked := server.Count("GET events"); err != nil || len(tasks) != 3 || asked != 3 || time.Since(began) > 2*time.Second {
		t.Errorf("tasks = %+v, %v after %s and %d questions, want three, one question each, at once", tasks, err, time.Since(began), asked)
	}
}

// The failure of a sidecar's hook before main has started is not told again when that is watched.
func TestFailedHookBeforeTheStartIsToldOnce(t *testing.T) {
	server := podstest.NewServer(t)
	worker, told := alone(t, server.URL), &heard{}
	live(t, worker, told)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { worker.fleet.pods.run(ctx) })
	<-worker.fleet.pods.synced // what was listed before is not to hide what comes
	assigned := assignment(t, `{"name":"web","image":"x","sidecars":[{"name":"log","image":"x","postStart":{"exec":{"command":["/x"]}}}]}`)
	made, err := worker.fleet.opt.Style.pod(assigned, 1, nodeOf(t, aNode), "n1", nil)
	if err != nil {
		t.Fatal(err)
	}
	kubelet, pod := podstest.Kubelet{Server: server.URL}, podstest.Object{}
	path := podPath("skerry", made.Metadata.Name)
	changed, end := worker.fleet.subscribe(made.Metadata.Name)
	defer end()
	kubelet.Do("POST", collection(path), made, &pod)
	podstest.Warn(&kubelet, pod, "Pod", "spec.initContainers{log}", "FailedPostStartHook", "no")
	side := podstest.Object{"name": "log", "restartCount": 1, "state": podstest.Object{"running": podstest.Object{}},
		"lastState": podstest.Object{"terminated": podstest.Object{"exitCode": 1}}}
	kubelet.Do("PATCH", path, podstest.Object{"status": podstest.Object{"phase": "Running", "initContainerStatuses": []podstest.Object{side},
		"containerStatuses": []podstest.Object{{"name": mainContainer, "state": podstest.Object{"running": podstest.Object{}}}}}}, nil)
	for seen := worker.fleet.ofWorker("n1"); len(seen) == 0 || Look(seen[0], time.Now()).Stage != Running; seen = worker.fleet.ofWorker("n1") {
		<-changed
	}
	all.Go(func() { worker.start(ctx, core.StartContainer{A: *assigned, Name: mainContainer, Attempt: 1}) })
	fits := func(msg any) bool {
		return msg == core.HookFailed{ID: assigned.ID, Name: "log", Text: startFailed, Start: true}
	}
	told.await(t, "Started", func(msg any) bool {
		m, ok := msg.(core.Started)
		return ok && m.Err == ""
	})
	kubelet.Do("PATCH", path, podstest.Object{"status": podstest.Object{"phase": "Failed"}}, nil)
	kubelet.Do("PATCH", path, podstest.Object{"status": podstest.Object{"containerStatuses": nil}}, nil)
	told.await(t, "Exited", func(msg any) bool { _, ok := msg.(core.Exited); return ok })
	n := 0
	for _, msg := range told.told {
		if fits(msg) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the failure of a hook was told %d times, want once", n)
	}
}

// Kubernetes takes no pod whose hooks sleep longer than its grace.
func TestHookThatSleepsLongerThanTheGrace(t *testing.T) {
	for text, want := range map[string]string{
		`"terminationGrace":"3s","postStart":{"sleep":"3s"}`:                                       "",
		`"terminationGrace":"3s","postStart":{"sleep":"3001ms"}`:                                   "unsupported: postStart that sleeps: ",
		`"postStart":{"sleep":"11s"}`:                                                              "unsupported: postStart that sleeps: ",
		`"terminationGrace":"0s","sidecars":[{"name":"s","image":"x","postStart":{"sleep":"1s"}}]`: "unsupported: postStart that sleeps: ",
	} {
		if err := refuse(assignment(t, `{"name":"web","image":"x",`+text+`}`)); (err == nil) != (want == "") ||
			err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: refused because of %v, want %q", text, err, want)
		}
	}
}

// The postStart of a container that runs is done; of one that has ended nothing is answered.
func TestHookIsDoneWhenItRuns(t *testing.T) {
	server := podstest.NewServer(t)
	worker, told := alone(t, server.URL), &heard{}
	live(t, worker, told)
	runs, over := running(t, worker, server, "web-1-x-1", "web-1", 1), running(t, worker, server, "web-2-x-1", "web-2", 1)
	kubelet := podstest.Kubelet{Server: server.URL}
	kubelet.Do("PATCH", podPath("skerry", over.Pod)+"/status", podstest.Object{"status": podstest.Object{"phase": "Failed",
		"containerStatuses": nil}}, nil)
	relist(t, worker)
	worker.hookDone(t.Context(), core.RunHook{ID: "web-2", Name: mainContainer, Attempt: 1, Handle: over.encode()})
	worker.hookDone(t.Context(), core.RunHook{ID: "web-1", Name: mainContainer, Attempt: 1, Handle: runs.encode()})
	told.await(t, "HookDone", func(msg any) bool { return msg == core.HookDone{ID: "web-1", Name: mainContainer, Attempt: 1} })
	if len(told.told) != 1 {
		t.Errorf("the core was told %+v, want the hook of web-1 alone", told.told)
	}
}

// Whatever an event of Kubernetes says, it is about a container of ours or none, and its time can be compared.
func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"reason":"FailedPostStartHook","involvedObject":{"fieldPath":"spec.containers{main}"},"lastTimestamp":"2026-01-01T00:00:10Z"}`))
	f.Add([]byte(`{"count":-1,"message":"\u001b[31m","involvedObject":{"fieldPath":"}{"},"eventTime":7}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var event Event
		if json.Unmarshal(text, &event) != nil {
			return
		}
		name := event.container()
		if name != "" && !strings.HasSuffix(event.Object.FieldPath, "{"+name+"}") {
			t.Errorf("%q is about container %q, want one that it names last", event.Object.FieldPath, name)
		}
		if got := clean(event.Message, maxReason); len(got) > maxReason || strings.ContainsRune(got, '\x1b') {
			t.Errorf("the message %q is told as %q, want at most %d bytes that can be printed", event.Message, got, maxReason)
		}
		_ = event.last().Compare(time.Time{})
	})
}
