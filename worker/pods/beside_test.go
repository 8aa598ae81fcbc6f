package pods

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/worker/core"
	"skerry.dev/skerry/worker/pods/podstest"
)

const aCrew = `{"name":"web","image":"x","command":["/web"],"env":{"WHO":"main"},"config":[{"path":"/etc/app.conf","content":"x"}],
"init":[{"name":"one","image":"my/one:1","command":["/one"],"env":{"WHO":"one"}},{"name":"two","image":"y","user":"7"}],
"sidecars":[{"name":"log","image":"z","resources":{"cpu":0.25,"memory":"16Mi"}}],"resources":{"cpu":0.5}}`

// Init containers come first, in their order, then sidecars; each has its own image, environment, user and resources, and the files of all.
func TestPodOfCrew(t *testing.T) {
	assigned := assignment(t, aCrew)
	assigned.Digest = map[string]string{"my/one:1": "docker.io/my/one@sha256:" + strings.Repeat("a", 64)}
	style := Style{Namespace: "skerry", Site: "s"}
	pod, err := style.pod(assigned, 1, nodeOf(t, aNode), "n1", nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range pod.Spec.InitContainers {
		names = append(names, c.Name+c.RestartPolicy)
		if !slices.ContainsFunc(c.VolumeMounts, func(m volumeMount) bool { return m.MountPath == "/etc/app.conf" }) {
			t.Errorf("container %s has the mounts %+v, want the file of the service among them", c.Name, c.VolumeMounts)
		}
	}
	if want := []string{"one", "two", "logAlways"}; !slices.Equal(names, want) || len(pod.Spec.Containers) != 1 {
		t.Fatalf("the pod begins with %q, and has %d containers; want %q, and 1", names, len(pod.Spec.Containers), want)
	}
	one, two, log := pod.Spec.InitContainers[0], pod.Spec.InitContainers[1], pod.Spec.InitContainers[2]
	if !strings.HasSuffix(one.Image, "@sha256:"+strings.Repeat("a", 64)) || !slices.Contains(one.Env, envVar{Name: "WHO", Value: "one"}) ||
		*two.Security.RunAsUser != 7 || log.Resources.Requests["cpu"] != "250m" || pod.Spec.Containers[0].Resources.Requests["cpu"] != "500m" {
		t.Errorf("the containers are %+v, %+v, %+v; want each with what its manifest says", one, two, log)
	}
	data, err := json.Marshal(pod)
	if err != nil || strings.Count(string(data), `"name":"c-0","secret"`) != 1 {
		t.Errorf("the pod is %s (%v), want one volume for the file", data, err)
	}
}

// Sidecars count with the containers, and an init container with the sidecars before it.
func TestNeedOfSidecars(t *testing.T) {
	for text, want := range map[string]skerry.MilliCPU{
		`{"containers":[{"resources":{"requests":{"cpu":"100m"}}}],"initContainers":[
{"restartPolicy":"Always","resources":{"requests":{"cpu":"50m"}}},{"resources":{"requests":{"cpu":"20m"}}}]}`: 150,
		`{"containers":[{"resources":{"requests":{"cpu":"100m"}}}],"initContainers":[
{"restartPolicy":"Always","resources":{"requests":{"cpu":"50m"}}},{"resources":{"requests":{"cpu":"200m"}}}]}`: 250,
		`{"containers":[{"resources":{"requests":{"cpu":"100m"}}}],"initContainers":[
{"resources":{"requests":{"cpu":"200m"}}},{"restartPolicy":"Always","resources":{"requests":{"cpu":"50m"}}}]}`: 200,
	} {
		var pod Pod
		if err := json.Unmarshal([]byte(`{"spec":`+text+`}`), &pod); err != nil {
			t.Fatal(err)
		}
		if got := needOf(&pod).resources.CPU; got != want {
			t.Errorf("a pod of %s needs %d, want %d", text, got, want)
		}
	}
}

// A node offers sidecars only if its Kubernetes has them, and says why it does not.
func TestSidecarsAreOfferedWhereTheyWork(t *testing.T) {
	for version, want := range map[string]bool{"v1.29.0": true, "v1.37.2": true, "v1.30.1-gke.5": true, "v2.0.0": true, "v1.28.9": false,
		"": false, "nonsense": false} {
		node := &Node{}
		node.Status.NodeInfo.KubeletVersion = version
		if why := tooOld(node, sidecarsSince); (why == "") != want {
			t.Errorf("tooOld(%q) = %q, want none: %v", version, why, want)
		}
	}
	node := nodeOf(t, aNode)
	node.Status.NodeInfo.KubeletVersion = "v1.28.9"
	got := facts(node, nil, "v1", tooOld(node, sidecarsSince), "").Runtimes[0]
	offers := func(what string) bool { return slices.Contains(got.Abilities, what) }
	if offers("sidecars") || !offers("init") || !strings.Contains(got.Cause, "Kubernetes 1.29") {
		t.Errorf("an old node says %+v, want init and no sidecars, and why", got)
	}
	worker := alone(t, podstest.NewServer(t).URL)
	done := worker.prepare(t.Context(), core.Prepare{A: *assignment(t, aCrew)})
	if !done.Permanent || !strings.Contains(done.Err, "sidecars") {
		t.Errorf("prepare on a node of no version = %+v, want it refused for good, for the sidecars", done)
	}
}

// An API server that drops what makes a container a sidecar, or a kubelet that refuses them, ends the offer of it; the pod does not stay.
func TestSidecarsThatAreNotKept(t *testing.T) {
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	worker.fleet.known["n1"].Status.NodeInfo.KubeletVersion = "v1.30.0"
	assigned := assignment(t, aCrew)
	kubelet := podstest.Kubelet{Server: server.URL}
	server.Fault(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods") {
			var pod podstest.Object
			_ = json.NewDecoder(r.Body).Decode(&pod)
			delete(podstest.Get(pod, "spec").(podstest.Object), "affinity")
			for _, c := range podstest.Get(pod, "spec", "initContainers").([]any) {
				delete(c.(podstest.Object), "restartPolicy")
			}
			server.Fault(nil)
			var made podstest.Object
			kubelet.Do("POST", r.URL.Path, pod, &made)
			_ = json.NewEncoder(w).Encode(made)
			return true
		}
		return false
	})
	done := make(chan struct{})
	go func() { // in place of the watch
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
				_, _ = worker.fleet.pods.list(t.Context())
			}
		}
	}()
	_, _, err := worker.launch(t.Context(), core.StartContainer{A: *assigned, Name: mainContainer, Attempt: 1},
		worker.teller(assigned.ID, 1))
	close(done)
	if err == nil || !strings.Contains(err.Error(), "unsupported: sidecars: the API server ignores") {
		t.Errorf("launch = %v, want that the API server has no sidecars", err)
	}
	if got := read(server, podName(assigned, "n1", 1)); got.Metadata.Name != "" {
		t.Errorf("the pod is %+v, want it gone", got)
	}
	if why := worker.fleet.noSidecars(worker.fleet.known["n1"]); why == "" {
		t.Error("sidecars are still offered, want them not to be")
	}
}

const crewSpec = `"spec":{"nodeName":"n1","initContainers":[{"name":"one"},{"name":"log","restartPolicy":"Always"}],
"containers":[{"name":"main"}]}`

// What becomes of init containers and sidecars shows in what is made of the pod.
func TestLookAtCrew(t *testing.T) {
	const failed = `"phase":"Failed",`
	const waits = `"containerStatuses":[{"name":"main","state":{"waiting":{"reason":"PodInitializing"}}}]`
	for _, given := range []struct {
		name, status string
		stage        Stage
		reason, init string
		code         int
	}{
		{"runs", `"phase":"Pending","initContainerStatuses":[{"name":"one","state":{"running":{}}}],` + waits, Pending,
			"init container one runs", "", 0},
		{"no image", `"phase":"Pending","initContainerStatuses":[{"name":"log","state":{"waiting":{"reason":"ErrImagePull"}}}],` + waits, Stuck,
			"container log: ErrImagePull", "", 0},
		{"ends again and again", `"phase":"Pending","initContainerStatuses":[{"name":"log","state":{"waiting":{"reason":"CrashLoopBackOff"}}}],` +
			waits, Pending, "PodInitializing", "", 0},
		{"failed", failed + `"initContainerStatuses":[{"name":"one","state":{"terminated":{"exitCode":3}}}],` + waits, Ended, "", "one", 3},
		{"evicted", failed + `"reason":"Evicted","initContainerStatuses":[{"name":"one","state":{"terminated":{"exitCode":137}}}],` +
			waits, Ended, "", "", lostCode},
		{"failed beside", `"phase":"Failed","initContainerStatuses":[{"name":"log","state":{"terminated":{"exitCode":3}}}],
"containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":4}}}]`, Ended, "", "", 4},
	} {
		got := look(t, `{`+crewSpec+`,"status":{`+given.status+`}}`)
		if got.Stage != given.stage || got.Reason != given.reason || got.Init != given.init || got.Exit.Code != given.code {
			t.Errorf("%s: Look = stage %d, %q, init %q, code %d; want %d, %q, %q, %d", given.name, got.Stage, got.Reason, got.Init, got.Exit.Code,
				given.stage, given.reason, given.init, given.code)
		}
	}
}

// The ends of a sidecar are counted in the same way whether it waits, runs again or has just ended.
func TestEndsOfSidecars(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	const last = `"terminated":{"exitCode":3,"startedAt":"2026-05-01T11:00:00Z","finishedAt":"2026-05-01T11:00:20Z"}`
	for state, want := range map[string]int{
		`"restartCount":0,"state":{"running":{}}`:                                              0,
		`"restartCount":0,"state":{` + last + `}`:                                              1,
		`"restartCount":0,"state":{"waiting":{}},"lastState":{` + last + `}`:                   1,
		`"restartCount":1,"state":{"running":{}},"lastState":{` + last + `}`:                   1,
		`"restartCount":1,"state":{` + last + `},"lastState":{` + last + `}`:                   2,
		`"restartCount":-5,"state":{"running":{}},"lastState":{` + last + `}`:                  0,
		`"restartCount":9223372036854775807,"state":{"waiting":{}},"lastState":{` + last + `}`: endsMost + 1,
	} {
		var pod Pod
		text := `{` + crewSpec + `,"status":{"initContainerStatuses":[{"name":"log",` + state + `}]}}`
		if err := json.Unmarshal([]byte(text), &pod); err != nil {
			t.Fatal(err)
		}
		got, ok := sideOf(&pod, "log", now)
		if ok != (want > 0) || ok && (got.Ends != want || got.Exit.Code != 3 || got.Ran != 20*time.Second) {
			t.Errorf("of %s there are %+v, %v; want %d ends with 3 after 20 s", state, got, ok, want)
		}
	}
}

// While sidecars of an attempt still run, the next one is not made; the log of the one before stays.
func TestNextAttemptWaitsForSidecars(t *testing.T) {
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	named := running(t, worker, server, "web-1-x-1", "web-1", 1)
	kubelet := podstest.Kubelet{Server: server.URL}
	set := func(phase, log string) {
		state := podstest.Object{log: podstest.Object{}}
		kubelet.Do("PATCH", podPath("skerry", named.Pod), podstest.Object{
			"spec": podstest.Object{"initContainers": []podstest.Object{{"name": "log", "restartPolicy": "Always"}}},
			"status": podstest.Object{"phase": phase, "initContainerStatuses": []podstest.Object{{"name": "log", "state": state}},
				"containerStatuses": []podstest.Object{{"name": "main", "state": podstest.Object{"terminated": podstest.Object{"exitCode": 1}}}}}}, nil)
		relist(t, worker)
	}
	set("Running", "running")
	done := make(chan error, 1)
	go func() { done <- worker.clear(t.Context(), "web-1", "web-1-x-2", false) }()
	select {
	case err := <-done:
		t.Fatalf("clear = %v while a sidecar runs, want it to wait", err)
	case <-time.After(100 * time.Millisecond):
	}
	set("Failed", "terminated")
	select {
	case err := <-done:
		if got := read(server, named.Pod); err != nil || !got.Metadata.DeletionTimestamp.IsZero() || got.Metadata.Name == "" {
			t.Errorf("clear = %v, and the pod is %+v; want nil, and the pod kept", err, got.Metadata)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the sidecar has ended, and still it is waited for")
	}
}

// Containers that an admission webhook puts before ours do not make an API server one that has no sidecars.
func TestSidecarsAreKeptBehindThoseOfOthers(t *testing.T) {
	worker := alone(t, "http://127.0.0.1:1")
	asked := &Pod{Spec: PodSpec{InitContainers: []PodContainer{{Name: "one"}, {Name: "log", RestartPolicy: always}}}}
	made := &Pod{Spec: PodSpec{InitContainers: []PodContainer{{Name: "proxy", RestartPolicy: always}, {Name: "one"},
		{Name: "log", RestartPolicy: always}}}}
	if err := worker.kept(asked, made); err != nil {
		t.Errorf("kept = %v where another's container comes first, want nil", err)
	}
	if why := worker.fleet.without[""]; why != "" {
		t.Errorf("sidecars are no longer offered: %s; want them to be", why)
	}
	made.Spec.InitContainers = made.Spec.InitContainers[:2]
	if err := worker.kept(asked, made); err == nil {
		t.Error("kept = nil of a pod that lacks the sidecar, want an error")
	}
}

// A status says something of the list that its container is in.
func TestStatusOfTheRightList(t *testing.T) {
	got := look(t, `{`+crewSpec+`,"status":{"phase":"Pending","initContainerStatuses":[
{"name":"main","state":{"terminated":{"exitCode":0}}},{"name":"one","state":{"running":{}}}]}}`)
	if got.Stage != Pending || got.Reason != "init container one runs" {
		t.Errorf("Look = %+v, want pending: an init container called main is not the main one", got)
	}
	got = look(t, `{`+crewSpec+`,"status":{"phase":"Pending","containerStatuses":[{"name":"log","state":{"running":{}}}]}}`)
	if got.Stage != Pending {
		t.Errorf("Look = %+v, want pending", got)
	}
}

// A start that its kubelet does not date, or dates in the future, is told once.
func TestEndsWithoutTimesAreToldOnce(t *testing.T) {
	for _, started := range []string{`{}`, `{"startedAt":"2099-01-01T00:00:00Z"}`} {
		var pod Pod
		text := `{` + crewSpec + `,"status":{"initContainerStatuses":[{"name":"log","restartCount":1,"state":{"running":` + started +
			`},"lastState":{"terminated":{"exitCode":3}}}]}}`
		if err := json.Unmarshal([]byte(text), &pod); err != nil {
			t.Fatal(err)
		}
		worker := alone(t, "http://127.0.0.1:1")
		told, now := worker.teller("web-1", 1), time.Now()
		told.look(t.Context(), &pod, now)
		first := told.told["log"]
		told.look(t.Context(), &pod, now.Add(time.Second))
		if first.Ends != 1 || !told.told["log"].Since.Equal(first.Since) {
			t.Errorf("of a start %s it is told %+v, then %+v; want it told once", started, first, told.told["log"])
		}
		pod.Status.InitContainerStatuses[0].RestartCount, pod.Status.InitContainerStatuses[0].LastState = 0, ContainerState{}
		if told.look(t.Context(), &pod, now); told.told["log"].Ends != 0 || told.told["log"].Since.IsZero() {
			t.Errorf("when the kubelet has forgotten the end, %+v is told, want no end, and that it runs", told.told["log"])
		}
	}
}

// Of init containers and sidecars, too, no resource is left out in silence.
func TestRefuseResourcesOfCrew(t *testing.T) {
	for _, asked := range []string{`{"tpus":1}`, `{"bandwidthOut":1000}`, `{"bandwidthIn":1000}`, `{"exclusiveCPUs":1}`} {
		for _, list := range []string{"init", "sidecars"} {
			service := `{"name":"web","image":"x","` + list + `":[{"name":"side","image":"y","resources":` + asked + `}]}`
			if err := refuse(assignment(t, service)); err == nil || !strings.Contains(err.Error(), "unsupported: resources") {
				t.Errorf("refuse(%s) = %v, want it unsupported: resources", service, err)
			}
		}
	}
}

// Kubernetes counts what Skerry has reserved, and not the bounds of containers that ask for nothing: it takes a limit without a request
// for one.
func TestPodAsksForWhatIsReserved(t *testing.T) {
	for _, service := range []string{aCrew, `{"name":"web","image":"x","sidecars":[{"name":"log","image":"z"}],"init":[{"name":"one",
"image":"y","resources":{"cpu":2,"memory":"64Mi","storage":"1Gi"}}],"resources":{"cpu":0.5,"memory":"32Mi","gpus":1}}`} {
		assigned := assignment(t, service)
		pod, err := (&Style{Namespace: "skerry", Site: "s"}).pod(assigned, 1, nodeOf(t, aNode), "n1", nil)
		if err != nil {
			t.Fatalf("the pod of %s: %v", service, err)
		}
		for _, list := range [][]PodContainer{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				for name := range list[i].Resources.Limits { // as its API server does
					if _, asked := list[i].Resources.Requests[name]; !asked {
						list[i].Resources.Requests[name] = list[i].Resources.Limits[name]
					}
				}
				if limits := list[i].Resources.Limits; limits["memory"] == "" || limits["ephemeral-storage"] == "" {
					t.Errorf("container %s has the limits %v, want those of its level", list[i].Name, limits)
				}
			}
		}
		got, want := needOf(pod).resources, assigned.Spec.Need()
		if got.CPU != want.CPU || got.Memory != want.Memory || got.Storage != want.Storage || got.GPUs != want.GPUs {
			t.Errorf("Kubernetes counts %+v for %s, want %+v, as was reserved", got, service, want)
		}
	}
}
