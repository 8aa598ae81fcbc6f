package podstest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Kubelet is a stand-in for the agent of a node: it registers the node, and runs the containers of each pod that is bound to it as
// processes. It has no images or namespaces: Programs says which program an image stands for, and what it lacks cannot be pulled. Of volumes
// it has the files of secrets, empty directories and those of claims, in a directory of its own: a path that is a word of a command, or a
// variable, leads there if it is there.
type Kubelet struct {
	t        testing.TB
	Name     string
	Server   string // the API server
	Client   *http.Client
	Programs map[string]string // by a part of the image's name
	Labels   map[string]string
	Address  string // of the node; empty: 127.0.0.1

	logs *httptest.Server
	dir  string
	mu   sync.Mutex
	runs map[string]*podRun // by the pod's UID
	off  bool
	stop chan struct{}
	done sync.WaitGroup
}

// Start registers the node and begins to work, until the test ends.
func (k *Kubelet) Start(t testing.TB) {
	t.Helper()
	k.dir = t.TempDir()
	k.t, k.runs, k.stop = t, map[string]*podRun{}, make(chan struct{})
	k.logs = httptest.NewUnstartedServer(http.HandlerFunc(k.serveLogs))
	if k.Address != "" {
		k.logs.Listener.Close()
		listener, err := net.Listen("tcp", net.JoinHostPort(k.Address, "0"))
		if err != nil {
			t.Fatal(err)
		}
		k.logs.Listener = listener
	}
	k.logs.StartTLS()
	labels := Object{"kubernetes.io/hostname": k.Name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
	for key, v := range k.Labels {
		labels[key] = v
	}
	if code, text := k.Do("POST", "/api/v1/nodes", Object{"apiVersion": "v1", "kind": "Node",
		"metadata": Object{"name": k.Name, "labels": labels}}, nil); code != 201 && code != 200 {
		t.Fatalf("register node %s: status %d: %s", k.Name, code, text)
	}
	k.Ready(true)
	k.done.Go(k.work)
	t.Cleanup(func() {
		close(k.stop)
		k.mu.Lock()
		for _, run := range k.runs {
			run.killed = true
			run.signalLocked(syscall.SIGKILL)
		}
		k.mu.Unlock()
		k.done.Wait()
		k.logs.CloseClientConnections()
		k.logs.Close()
	})
}

// Ready says whether the node is in touch. While it is not, nothing is told to the API server, and what runs runs on.
func (k *Kubelet) Ready(is bool) {
	k.t.Helper()
	k.mu.Lock()
	k.off = !is
	k.mu.Unlock()
	ready, reason := "True", "KubeletReady"
	if !is {
		ready, reason = "Unknown", "NodeStatusUnknown"
	}
	at, _ := url.Parse(k.logs.URL)
	port, _ := strconv.Atoi(at.Port())
	amounts := Object{"cpu": "4", "memory": "8Gi", "ephemeral-storage": "20Gi", "pods": "110"}
	code, text := k.Do("PATCH", "/api/v1/nodes/"+k.Name+"/status", Object{"status": Object{
		"capacity": amounts, "allocatable": amounts,
		"conditions": []Object{{"type": "Ready", "status": ready, "reason": reason, "message": "stand-in", "lastHeartbeatTime": now(),
			"lastTransitionTime": now()}},
		"addresses":       []Object{{"type": "InternalIP", "address": cmp.Or(k.Address, "127.0.0.1")}},
		"daemonEndpoints": Object{"kubeletEndpoint": Object{"Port": port}},
		"nodeInfo": Object{"architecture": "amd64", "operatingSystem": "linux", "kernelVersion": "6.1", "containerRuntimeVersion": "stand-in://1",
			"kubeletVersion": "v1.37.2", "machineID": "", "systemUUID": "", "bootID": "", "osImage": "", "kubeProxyVersion": ""}}}, nil)
	if code != 200 {
		k.t.Fatalf("status of node %s: %d: %s", k.Name, code, text)
	}
	// Kubernetes marks new nodes until its controllers, which do not run here, have seen them.
	k.Do("PATCH", "/api/v1/nodes/"+k.Name, Object{"spec": Object{"taints": nil}}, nil)
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// Do asks the API server.
func (k *Kubelet) Do(method, path string, body, out any) (code int, text string) {
	data, _ := json.Marshal(body)
	if body == nil {
		data = nil
	}
	req, err := http.NewRequest(method, k.Server+path, bytes.NewReader(data))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	if method == "PATCH" {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	client := k.Client
	if client == nil {
		client = http.DefaultClient
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	got, _ := io.ReadAll(res.Body)
	if out != nil {
		_ = json.Unmarshal(got, out)
	}
	return res.StatusCode, string(got)
}

// Pods lists the pods of this node.
func (k *Kubelet) Pods() (out []Object) {
	var list struct {
		Items []Object `json:"items"`
	}
	k.Do("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3D"+k.Name, nil, &list)
	return list.Items
}

// Running counts the processes that run here.
func (k *Kubelet) Running() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, run := range k.runs {
		for _, p := range run.all {
			if p.runs {
				n++
			}
		}
	}
	return n
}

// Kill has every process end by a signal.
func (k *Kubelet) Kill(s syscall.Signal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, run := range k.runs {
		run.signalLocked(s)
	}
}

func (k *Kubelet) work() {
	tick, turn := time.NewTicker(50*time.Millisecond), 0
	defer tick.Stop()
	for {
		select {
		case <-k.stop:
			return
		case <-tick.C:
		}
		k.mu.Lock()
		off := k.off
		k.mu.Unlock()
		if off {
			continue
		}
		for _, pod := range k.Pods() {
			k.see(pod)
		}
		if turn++; turn%10 == 0 {
			k.mu.Lock()
			runs := slices.Collect(maps.Values(k.runs))
			k.mu.Unlock()
			for _, run := range runs {
				k.write(run.pod, run.root)
			}
		}
	}
}

// write writes the files of a pod's secrets, as they are now.
func (k *Kubelet) write(pod Object, root string) {
	secrets := map[string]Object{}
	volumes, _ := Get(pod, "spec", "volumes").([]any)
	for _, v := range volumes {
		if from, ok := v.(Object)["secret"].(Object); ok {
			secrets[Text(v.(Object), "name")] = from
		}
	}
	var mounts []any
	for _, c := range containers(pod) {
		list, _ := c["volumeMounts"].([]any)
		mounts = append(mounts, list...)
	}
	for _, m := range mounts {
		mount := m.(Object)
		k.mount(pod, root, volumes, mount)
		from := secrets[Text(mount, "name")]
		if from == nil {
			continue
		}
		var have struct{ Data map[string][]byte }
		k.Do("GET", "/api/v1/namespaces/"+Text(pod, "metadata", "namespace")+"/secrets/"+Text(from, "secretName"), nil, &have)
		items, _ := from["items"].([]any)
		for _, i := range items {
			path, sub := filepath.Join(root, Text(mount, "mountPath")), Text(mount, "subPath")
			if sub == "" {
				path = filepath.Join(path, Text(i.(Object), "path"))
			}
			if data, ok := have.Data[Text(i.(Object), "key")]; ok && os.MkdirAll(filepath.Dir(path), 0o755) == nil {
				_ = os.WriteFile(path, data, 0o600)
			}
		}
	}
}

// within leads a path to the files of a pod, if it is there.
func within(root, path string) string {
	if _, err := os.Stat(filepath.Join(root, path)); err == nil && path != "/" && filepath.IsAbs(path) {
		return filepath.Join(root, path)
	}
	return path
}

// see brings one pod forward.
func (k *Kubelet) see(pod Object) {
	uid := Text(pod, "metadata", "uid")
	k.mu.Lock()
	defer k.mu.Unlock()
	run := k.runs[uid]
	switch deleted := Text(pod, "metadata", "deletionTimestamp") != ""; {
	case deleted && (run == nil || run.over):
		k.mu.Unlock()
		k.Do("DELETE", podPath(pod), Object{"gracePeriodSeconds": 0, "preconditions": Object{"uid": uid}}, nil)
		k.mu.Lock()
	case deleted && !run.killed:
		run.killed = true
		k.endLocked(run)
		grace, _ := Get(pod, "metadata", "deletionGracePeriodSeconds").(float64)
		time.AfterFunc(time.Duration(grace*float64(time.Second)), func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			run.signalLocked(syscall.SIGKILL)
		})
	case run == nil && !deleted && Text(pod, "status", "phase") == "Pending":
		if run := k.newRun(pod, uid); run != nil {
			k.runs[uid] = run
			k.done.Go(func() { k.bring(run) })
		}
	}
}

func podPath(pod Object) string {
	return "/api/v1/namespaces/" + Text(pod, "metadata", "namespace") + "/pods/" + Text(pod, "metadata", "name")
}

func texts(list any) (out []string) {
	items, _ := list.([]any)
	for _, v := range items {
		t, _ := v.(string)
		out = append(out, t)
	}
	return out
}

// stamped writes the log of a process with the time before each line.
type stamped struct {
	k    *Kubelet
	p    *process
	rest []byte
}

func (s *stamped) Write(data []byte) (int, error) {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	s.rest = append(s.rest, data...)
	for {
		i := bytes.IndexByte(s.rest, '\n')
		if i < 0 {
			break
		}
		fmt.Fprintf(&s.p.lines, "%s %s\n", time.Now().UTC().Format(time.RFC3339Nano), s.rest[:i])
		s.rest = s.rest[i+1:]
	}
	close(s.p.changed)
	s.p.changed = make(chan struct{})
	return len(data), nil
}

// serveLogs answers as a kubelet does: /containerLogs/NAMESPACE/POD/CONTAINER.
func (k *Kubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/stats/summary" {
		k.serveFigures(w)
		return
	}
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) != 5 || parts[1] != "containerLogs" {
		http.NotFound(w, r)
		return
	}
	k.mu.Lock()
	var run *process
	for _, x := range k.runs {
		for _, p := range x.all {
			if Text(x.pod, "metadata", "name") == parts[3] && p.name == parts[4] {
				run = p
			}
		}
	}
	k.mu.Unlock()
	if run == nil {
		http.NotFound(w, r)
		return
	}
	sent, follow := 0, r.URL.Query().Get("follow") == "true"
	for {
		k.mu.Lock()
		data, over, changed := bytes.Clone(run.lines.Bytes()[sent:]), !run.runs, run.changed
		k.mu.Unlock()
		sent += len(data)
		_, _ = w.Write(data)
		_ = http.NewResponseController(w).Flush()
		if over || !follow {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-k.stop:
			return
		}
	}
}
