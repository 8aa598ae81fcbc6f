package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
	"skerry.dev/skerry/worker/pods/podstest"
)

// alone is a worker whose fleet does not run: what is in Kubernetes it has to ask for, and what it posts goes nowhere.
func alone(t *testing.T, url string) *Worker {
	t.Helper()
	client, _, err := Connect(Connection{Kubeconfig: podstest.Kubeconfig(t, t.TempDir(), url, "", "")})
	if err != nil {
		t.Fatal(err)
	}
	f := NewFleet(Options{Client: client, Style: Style{Namespace: "skerry", Site: "s"}, Patience: time.Minute,
		Log: slog.New(slog.DiscardHandler)})
	f.known["n1"] = nodeOf(t, aNode)
	worker := newWorker(f, "n1", "n1")
	worker.open(&Place{})
	worker.work.Store(tier.NewWork(t.Context()))
	return worker
}

// answering serves what a function answers.
func answering(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	h := httptest.NewServer(f)
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return h.URL
}

// An answer that is no list, as of something in front of the API server, does not stand for a cluster that is empty.
func TestListThatIsNone(t *testing.T) {
	worker := alone(t, answering(t, func(to http.ResponseWriter, _ *http.Request) { fmt.Fprint(to, `{}`) }))
	if _, err := worker.fleet.nodes.list(t.Context()); err == nil || worker.fleet.known["n1"] == nil {
		t.Errorf("list of {} = %v, and the node is known: %v; want an error, and true", err, worker.fleet.known["n1"] != nil)
	}
}

// Large pods of somebody else do not keep the pods from being listed: pages are smaller then.
func TestLargePods(t *testing.T) {
	const pods = 300
	note := strings.Repeat("x", 250<<10)
	worker := alone(t, answering(t, func(to http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.FormValue("continue"))
		limit, _ := strconv.Atoi(r.FormValue("limit"))
		until, next := min(from+limit, pods), ""
		if until < pods {
			next = strconv.Itoa(until)
		}
		fmt.Fprintf(to, `{"metadata":{"resourceVersion":"1","continue":%q},"items":[`, next)
		for i := from; i < until; i++ {
			fmt.Fprintf(to, `{"metadata":{"name":"p%d","namespace":"other","annotations":{"a":"%s"}},`, i, note)
			fmt.Fprint(to, `"spec":{"nodeName":"n1","containers":[{"resources":{"requests":{"cpu":"1m"}}}]}}`)
			if i+1 < until {
				fmt.Fprint(to, ",")
			}
		}
		fmt.Fprint(to, "]}")
	}))
	if _, err := worker.fleet.pods.list(t.Context()); err != nil || len(worker.fleet.needs["n1"]) != pods {
		t.Errorf("list = %v, and %d pods need something; want nil and %d", err, len(worker.fleet.needs["n1"]), pods)
	}
}

// Of the pods of others nothing is kept but what they take.
func TestOthersPodsAreThin(t *testing.T) {
	worker := alone(t, "http://127.0.0.1:1")
	read := func(namespace string) *Pod {
		return worker.fleet.pods.read([]byte(`{"metadata":{"name":"p","namespace":"` + namespace + `","annotations":{"a":"long"}},
"spec":{"nodeName":"n1","hostNetwork":true,"overhead":{"cpu":"1m"},"containers":[{"name":"main","command":["long"],
"ports":[{"containerPort":80}],"resources":{"requests":{"cpu":"2m","example.com/x":"1"}}}]}}`))
	}
	theirs, ours := read("other"), read("skerry")
	if c := theirs.Spec.Containers[0]; theirs.Metadata.Annotations != nil || c.Command != nil || len(c.Resources.Requests) != 1 {
		t.Errorf("of another's pod there is %+v, want no annotations and commands, and one request", theirs)
	}
	if ours.Metadata.Annotations == nil {
		t.Errorf("of a pod in our namespace there is %+v, want its annotations", ours)
	}
	got, want := fmt.Sprint(needOf(theirs)), fmt.Sprint(needOf(ours))
	if got != want {
		t.Errorf("another's pod needs %s, want %s", got, want)
	}
}

// A pod that lost its labels is still the one that runs the instance: it has neither ended, nor does its end go unseen.
func TestPodThatLostItsLabels(t *testing.T) {
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	named := running(t, worker, server, "web-1-x-1", "web-1", 1)
	kubelet := podstest.Kubelet{Server: server.URL}
	kubelet.Do("PATCH", podPath("skerry", named.Pod), podstest.Object{"metadata": podstest.Object{"labels": nil}}, nil)
	if _, there, err := worker.fleet.find(t.Context(), named); err != nil || !there {
		t.Errorf("a pod without labels is there: %v, %v; want true, nil", there, err)
	}
	relist(t, worker)
	worker.fleet.mu.Lock()
	kept := worker.fleet.own[worker.fleet.key(named.Pod)]
	worker.fleet.mu.Unlock()
	if kept == nil || kept.Metadata.Labels != nil {
		t.Errorf("after a list the pod is %+v, want it without its labels", kept)
	}
	kubelet.Do("DELETE", podPath("skerry", named.Pod), podstest.Object{"gracePeriodSeconds": 0}, nil)
	relist(t, worker)
	if _, there, err := worker.fleet.find(t.Context(), named); err != nil || there {
		t.Errorf("a pod that is deleted is there: %v, %v; want false, nil", there, err)
	}
}

// running makes a pod of an attempt that runs on the node.
func running(t *testing.T, worker *Worker, server *podstest.Server, name, id string, attempt int) handle {
	t.Helper()
	assigned := assignment(t, `{"name":"web","image":"x"}`)
	assigned.ID = skerry.InstanceID(id)
	meta := worker.fleet.opt.Style.metadata(name, worker.name, assigned)
	meta.Annotations[attemptNote] = strconv.Itoa(attempt)
	kubelet, made := podstest.Kubelet{Server: server.URL}, Pod{}
	pod := Pod{Metadata: meta, Spec: PodSpec{NodeName: "n1"}}
	if code, text := kubelet.Do("POST", "/api/v1/namespaces/skerry/pods", pod, &made); code != 200 {
		t.Fatalf("make pod %s: %d %s", name, code, text)
	}
	status := podstest.Object{"phase": "Running", "containerStatuses": []podstest.Object{
		{"name": mainContainer, "state": podstest.Object{"running": podstest.Object{}}}}}
	kubelet.Do("PATCH", podPath("skerry", name), podstest.Object{"status": status}, nil)
	return handle{name, made.Metadata.UID}
}

func relist(t *testing.T, worker *Worker) {
	t.Helper()
	if _, err := worker.fleet.pods.list(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// What is removed of an instance are also the pods that its record names, whatever labels they have.
func TestCleanupTakesNamedPods(t *testing.T) {
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	named := running(t, worker, server, "web-1-x-1", "web-1", 1)
	kubelet := podstest.Kubelet{Server: server.URL}
	kubelet.Do("PATCH", podPath("skerry", named.Pod), podstest.Object{"metadata": podstest.Object{"labels": nil}}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	worker.cleanup(ctx, core.Cleanup{ID: "web-1", Handles: []json.RawMessage{named.encode()}})
	if got := read(server, named.Pod); got.Metadata.DeletionTimestamp.IsZero() {
		t.Errorf("the pod that the record names is %+v, want it asked to end", got)
	}
}

// read gives a pod as it is at the server; an empty one: it is not there.
func read(server *podstest.Server, name string) (pod Pod) {
	kubelet := podstest.Kubelet{Server: server.URL}
	if code, _ := kubelet.Do("GET", podPath("skerry", name), nil, &pod); code != 200 {
		return Pod{}
	}
	return pod
}

// A pod that its node refuses has never run: its start has failed, and it does not stay.
func TestPodThatNeverRan(t *testing.T) {
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	assigned := assignment(t, `{"name":"web","image":"x"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	name := podName(assigned, "n1", 1)
	kubelet := podstest.Kubelet{Server: server.URL}
	go func() {
		for ctx.Err() == nil && read(server, name).Metadata.Name == "" {
			time.Sleep(10 * time.Millisecond)
		}
		status := podstest.Object{"phase": "Failed", "reason": "OutOfcpu"}
		kubelet.Do("PATCH", podPath("skerry", name), podstest.Object{"status": status}, nil)
		_, _ = worker.fleet.pods.list(ctx)
	}()
	_, sight, err := worker.launch(ctx, core.StartContainer{A: *assigned, Name: mainContainer, Attempt: 1},
		worker.teller(assigned.ID, 1))
	if err == nil || err.Error() != "OutOfcpu" {
		t.Errorf("launch = stage %d, %v; want the error OutOfcpu", sight.Stage, err)
	}
	if got := read(server, name); got.Metadata.Name != "" {
		t.Errorf("the pod is %+v, want it gone", got)
	}
}

// A pod of the attempt before whose making was never answered ends before another one is made.
func TestUnansweredAttemptEndsFirst(t *testing.T) {
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	assigned := assignment(t, `{"name":"web","image":"x"}`)
	before := running(t, worker, server, podName(assigned, "n1", 1), string(assigned.ID), 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, _, err := worker.launch(ctx, core.StartContainer{A: *assigned, Name: mainContainer, Attempt: 2},
		worker.teller(assigned.ID, 2))
	first, second := read(server, before.Pod), read(server, podName(assigned, "n1", 2))
	if err == nil || first.Metadata.DeletionTimestamp.IsZero() || second.Metadata.Name != "" {
		t.Errorf("launch = %v, the first pod is %+v, the second %+v; want an error, one that is to end, and none", err, first.Metadata,
			second.Metadata)
	}
}

// A stop or a discard that is refused once, as by a webhook that is away, is asked for again.
func TestRefusedEndIsAskedForAgain(t *testing.T) {
	for name, end := range map[string]func(h handle) any{
		"stop":    func(h handle) any { return core.StopContainer{ID: "web-1", Handle: h.encode()} },
		"discard": func(h handle) any { return core.Discard{Handle: h.encode()} },
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			worker := alone(t, answering(t, func(to http.ResponseWriter, _ *http.Request) {
				if asked.Add(1) == 1 {
					podstest.Refuse(to, 403, "Forbidden", "the webhook denied the request")
					return
				}
				fmt.Fprint(to, "{}")
			}))
			worker.act(end(handle{"web-1-x-1", "uid"}))
			late := time.Now().Add(20 * time.Second)
			for asked.Load() < 2 && time.Now().Before(late) {
				time.Sleep(10 * time.Millisecond)
			}
			if got := asked.Load(); got < 2 {
				t.Errorf("the end of the pod was asked for %d times, want it asked for until it is taken", got)
			}
		})
	}
}

// However often endpoints change while they cannot be written, one write is under way, and the last one wins.
func TestEndpointsAreWrittenInOrder(t *testing.T) {
	var writing, most atomic.Int64
	var last atomic.Value
	hold := make(chan struct{})
	worker := alone(t, answering(t, func(to http.ResponseWriter, r *http.Request) {
		if now := writing.Add(1); now > most.Load() {
			most.Store(now)
		}
		defer writing.Add(-1)
		var sent secretObject
		_ = json.NewDecoder(r.Body).Decode(&sent)
		<-hold
		last.Store(string(sent.Data[endpoints]))
		fmt.Fprint(to, "{}")
	}))
	app := skerry.AppKey{Namespace: "default", Name: "shop"}
	worker.apps["web-1"] = app
	for i := range 50 {
		worker.act(core.Endpoints{Service: skerry.ServiceKey{App: app, Service: "db"}, List: []wire.Endpoint{{Port: fmt.Sprint("p", i)}}})
		time.Sleep(time.Millisecond)
	}
	close(hold)
	late := time.Now().Add(20 * time.Second)
	written := func() bool {
		text, _ := last.Load().(string)
		return strings.Contains(text, `"p49"`)
	}
	for !written() && time.Now().Before(late) {
		time.Sleep(10 * time.Millisecond)
	}
	if !written() || most.Load() != 1 {
		t.Errorf("the last endpoints are %v, with %d writes at a time; want p49, and 1", last.Load(), most.Load())
	}
}

// When nothing of an instance is to run any more, a pod that an earlier life had asked for does not start to.
func TestReleaseTakesPodsThatHaveNotStarted(t *testing.T) {
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	named, other := running(t, worker, server, "web-1-x-1", "web-1", 1), running(t, worker, server, "web-2-x-1", "web-2", 1)
	kubelet := podstest.Kubelet{Server: server.URL}
	status := podstest.Object{"phase": "Pending", "containerStatuses": nil}
	kubelet.Do("PATCH", podPath("skerry", named.Pod), podstest.Object{"status": status}, nil)
	relist(t, worker)
	worker.act(core.Release{ID: "web-1"})
	late := time.Now().Add(20 * time.Second)
	for read(server, named.Pod).Metadata.DeletionTimestamp.IsZero() && time.Now().Before(late) {
		time.Sleep(10 * time.Millisecond)
	}
	if got := read(server, named.Pod); got.Metadata.DeletionTimestamp.IsZero() {
		t.Errorf("the pod is %+v, want it asked to end", got)
	}
	if got := read(server, other.Pod); !got.Metadata.DeletionTimestamp.IsZero() {
		t.Errorf("the pod of another instance is %+v, want it left alone", got)
	}
}

// What is missing says the API server; a 404 of something in front of it says nothing.
func TestForeign404(t *testing.T) {
	worker := alone(t, answering(t, func(to http.ResponseWriter, _ *http.Request) { http.Error(to, "404 page not found", 404) }))
	if _, _, err := worker.fleet.find(t.Context(), handle{"web-1-x-1", "uid"}); err == nil {
		t.Error("find = nil, want an error: nobody knows whether the pod is there")
	}
	c := worker.fleet.opt.Client
	if err := c.deletePod(t.Context(), "skerry", "x", "uid", nil); !passing(err) {
		t.Errorf("deletePod = %v, want an error that passes", err)
	}
	if err := c.deleteSecret(t.Context(), "skerry", "x"); !passing(err) {
		t.Errorf("deleteSecret = %v, want an error that passes", err)
	}
}

// A node that is cordoned when the program starts is a worker if pods of ours are on it: what runs there runs on.
func TestCordonedNodeWithPods(t *testing.T) {
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	fleet := worker.fleet
	fleet.opt.Open = func(context.Context, string, string) (*Place, error) { return nil, errors.New("not now") }
	fleet.known["n1"].Spec.Unschedulable = true
	ctx, cancel := context.WithCancel(t.Context())
	defer fleet.active.Wait()
	defer cancel()
	fleet.start(ctx)
	if got := fleet.Workers(); len(got) != 0 {
		t.Errorf("workers = %v, want none: the node is cordoned, and empty", got)
	}
	running(t, worker, server, "web-1-x-1", "web-1", 1)
	relist(t, worker)
	fleet.start(ctx)
	if got := fleet.Workers(); len(got) != 1 {
		t.Errorf("workers = %v, want n1, where a pod runs", got)
	}
}

// A worker ends when its node is removed from Kubernetes and nothing of it is left there; when the node is back, so is the worker.
func TestWorkerOfRemovedNodeEnds(t *testing.T) {
	fleet := alone(t, "http://127.0.0.1:1").fleet
	begun, ended := make(chan string, 10), make(chan string, 10)
	fleet.opt.Open = func(ctx context.Context, worker, _ string) (*Place, error) {
		begun <- worker
		<-ctx.Done()
		ended <- worker
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer fleet.active.Wait()
	defer cancel()
	node := fleet.known["n1"]
	fleet.own["skerry/web-1-x-1"] = &Pod{Metadata: Meta{Name: "web-1-x-1", Namespace: "skerry", Labels: map[string]string{workerLabel: "n1"}}}
	fleet.start(ctx)
	<-begun
	fleet.setNode("n1", node, true)
	fleet.start(ctx)
	select {
	case <-ended:
		t.Fatal("the worker has ended, want it to live: a pod of it is left")
	case <-time.After(50 * time.Millisecond):
	}
	fleet.resetPods(map[string]*Pod{})
	fleet.start(ctx)
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the worker of a node that is removed lives on")
	}
	late := time.Now().Add(20 * time.Second)
	for len(fleet.Workers()) > 0 && time.Now().Before(late) {
		time.Sleep(10 * time.Millisecond)
	}
	fleet.setNode("n1", node, false)
	fleet.start(ctx)
	select {
	case <-begun:
	case <-time.After(20 * time.Second):
		t.Fatal("the node is back, and has no worker")
	}
}

// After a restart the pods that the records name are found, whatever labels they have.
func TestRecordsNamePods(t *testing.T) {
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	named := running(t, worker, server, "web-1-x-2", "web-1", 2)
	kubelet := podstest.Kubelet{Server: server.URL}
	kubelet.Do("PATCH", podPath("skerry", named.Pod), podstest.Object{"metadata": podstest.Object{"labels": nil}}, nil)
	relist(t, worker)
	records := []core.Task{{ID: "web-1", Name: mainContainer, Attempt: 2, Handle: named.encode()},
		{ID: "web-2", Name: mainContainer, Attempt: 1, Handle: handle{"web-2-x-1", "uid"}.encode()}}
	got, err := worker.tasks(t.Context(), records)
	if err != nil || len(got) != 1 || got[0].ID != "web-1" || got[0].Attempt != 2 || !got[0].Running {
		t.Errorf("tasks = %+v, %v; want attempt 2 of web-1, which runs", got, err)
	}
}

// A pod that is being deleted gets no more requests, whatever its node says of it.
func TestPodBeingDeletedIsNotReady(t *testing.T) {
	const status = `"status":{"containerStatuses":[{"name":"main","ready":true,"state":{"running":{}}}]}}`
	if got := look(t, `{"metadata":{"name":"p"},`+status); !got.Ready {
		t.Errorf("Look = %+v, want it ready", got)
	}
	if got := look(t, `{"metadata":{"name":"p","deletionTimestamp":"2026-05-01T11:00:00Z"},`+status); got.Ready || got.Stage != Running {
		t.Errorf("Look of a pod that is being deleted = %+v, want it to run, and not to be ready", got)
	}
}

// A task says which image it runs, so that what is found again is not restarted for want of knowing.
func TestTaskHasDigest(t *testing.T) {
	assigned := assignment(t, `{"name":"web","image":"my/app:1"}`)
	digest := "sha256:" + strings.Repeat("a", 64)
	assigned.Digest = map[string]string{"my/app:1": "docker.io/my/app@" + digest}
	style := Style{Namespace: "skerry", Site: "s"}
	pod, err := style.pod(assigned, 1, nodeOf(t, aNode), "n1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := taskOf(pod, Sight{Stage: Running}); !ok || got.Digest != digest {
		t.Errorf("taskOf = %+v, %v; want digest %s", got, ok, digest)
	}
}

// However fast pods of others come and go, the site is told of what is left of a node at a measured pace.
func TestFactsArePaced(t *testing.T) {
	worker := alone(t, "http://127.0.0.1:1")
	ctx, cancel := context.WithCancel(t.Context())
	running, done := loop.New(nil, nil, nil, nil), make(chan struct{}) // it never runs: what is posted waits
	go func() {
		worker.follow(ctx, running)
		close(done)
	}()
	for i := range 100 {
		pod := &Pod{Metadata: Meta{Name: "p", Namespace: "other"}, Spec: PodSpec{NodeName: "n1", Containers: []PodContainer{
			{Resources: podResources{Requests: map[string]text{"cpu": text(fmt.Sprintf("%dm", i+1))}}}}}}
		worker.fleet.mu.Lock()
		worker.fleet.workers["n1"] = worker
		worker.fleet.mu.Unlock()
		worker.fleet.setPod("other/p", pod, false)
		time.Sleep(2 * time.Millisecond)
	}
	if got := running.Stats().Queue; got < 1 || got > 10 {
		t.Errorf("of 100 changes in a moment %d were told, want at least 1 and at most 10", got)
	}
	cancel()
	<-done
}

// What a kubelet says of its addresses does not lead to the machine that this program runs on, or to what only that one reaches.
func TestForwardGoesToPods(t *testing.T) {
	worker := alone(t, "http://127.0.0.1:1")
	for ip, want := range map[string]int{"10.1.2.3": 1, "fd00::1": 1, "127.0.0.1": 0, "::1": 0, "::ffff:127.0.0.1": 0, "0.0.0.0": 0,
		"169.254.169.254": 0, "fe80::1": 0, "localhost": 0, "": 0} {
		if got := worker.routes(&Pod{Status: PodStatus{PodIP: ip}}, "web-1", 80); len(got) != want {
			t.Errorf("routes to a pod at %q = %v, want %d", ip, got, want)
		}
	}
}

// A forwarded connection ends with the life of the worker, even if neither side does.
func TestForwardEndsWithItsWorker(t *testing.T) {
	worker := alone(t, "http://127.0.0.1:1")
	near, client := net.Pipe()
	there, pod := net.Pipe()
	defer client.Close()
	defer pod.Close()
	done := make(chan struct{})
	go func() {
		worker.join(near, near, there)
		close(done)
	}()
	worker.work.Load().Cancel()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("the connection outlives its worker")
	}
}

// brittle is a store that panics when it is read, or when it is written.
type brittle struct {
	store.Store
	empty  bool // nothing is found in it
	closed *atomic.Int64
}

func (b brittle) Get(ctx context.Context, key string) (store.Record, error) {
	if b.empty {
		return store.Record{}, store.ErrNotFound
	}
	return b.Store.Get(ctx, key)
}

func (b brittle) List(ctx context.Context, prefix string) ([]store.Record, int64, error) {
	if b.empty {
		return nil, 1, nil
	}
	return b.Store.List(ctx, prefix)
}

func (b brittle) Close() error {
	b.closed.Add(1)
	return nil
}

// A worker that panics, on its records or in the middle of its work, is begun again, with its store closed in between; others do not
// notice.
func TestWorkerThatPanicsIsTriedAgain(t *testing.T) {
	for _, empty := range []bool{false, true} {
		worker := alone(t, podstest.NewServer(t).URL)
		var opened, closed atomic.Int64
		worker.fleet.opt.Open = func(context.Context, string, string) (*Place, error) {
			opened.Add(1)
			return &Place{Store: brittle{empty: empty, closed: &closed}}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			worker.live(ctx)
			close(done)
		}()
		late := time.Now().Add(20 * time.Second)
		for opened.Load() < 2 && time.Now().Before(late) {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
		<-done
		if opened.Load() < 2 || closed.Load() != opened.Load() {
			t.Errorf("with an empty store: %v: it was opened %d times and closed %d times, want at least 2, and as often", empty,
				opened.Load(), closed.Load())
		}
	}
}

// A handle that names no pod deletes nothing: its path would be that of all pods.
func TestNoNameDeletesNothing(t *testing.T) {
	var asked atomic.Int64
	worker := alone(t, answering(t, func(to http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprint(to, "{}")
	}))
	err := worker.discard(t.Context(), readHandle(nil))
	if got := asked.Load(); err != nil || got != 0 {
		t.Errorf("discard of no handle = %v, with %d requests; want nil, and none", err, got)
	}
}

// Where lists are granted and watches refused, lists do not follow each other without end.
func TestRefusedWatchIsNoLoop(t *testing.T) {
	server := podstest.NewServer(t)
	server.Fault(func(to http.ResponseWriter, r *http.Request) bool {
		if r.FormValue("watch") != "true" {
			return false
		}
		podstest.Refuse(to, 403, "Forbidden", "watch is forbidden")
		return true
	})
	worker := alone(t, server.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	worker.fleet.claims.run(ctx)
	if lists := server.Count("GET persistentvolumeclaims"); lists < 2 || lists > 5 {
		t.Errorf("in 2.5s the claims were listed %d times, want 2 to 5, ever more seldom", lists)
	}
}

// A log that Kubernetes does not give to its end does not look like one that it did.
func TestCutLogIsNoWholeOne(t *testing.T) {
	ends := map[string]error{"its end": io.EOF, "a node is away": io.ErrUnexpectedEOF, "the program ends": context.Canceled}
	for name, end := range ends {
		url := answering(t, func(to http.ResponseWriter, _ *http.Request) {
			sendLines(to, io.MultiReader(strings.NewReader("2026-11-29T10:00:00Z hello\n"), iotest.ErrReader(end)))
		})
		res, err := http.Get(url)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if (err == nil) != (end == io.EOF) || !strings.Contains(string(got), "hello") {
			t.Errorf("%s: the answer %q ends with %v, want the line, and a whole answer: %v", name, got, err, end == io.EOF)
		}
	}
}
