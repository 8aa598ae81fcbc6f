// Package podstest has what tests of package pods need of a Kubernetes cluster where none can run: Server is a small fake of the API server
// that also binds pods to nodes, and Kubelet a stand-in for the agent of a node, which runs the programs of pods as processes of this
// machine.
// A Kubelet serves a real API server as well; one test body is run against both. Only tests import it.
package podstest

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Object is any object.
type Object = map[string]any

// Server is a fake API server: nodes, pods, secrets, volumes, events; lists in pages, watches with bookmarks, deletion with grace and
// finalizers, logs by the kubelets.
type Server struct {
	t   testing.TB
	URL string
	// Fault, if not nil, may answer a request in the server's place; true: it has.
	fault func(w http.ResponseWriter, r *http.Request) bool

	mu      sync.Mutex
	version int
	floor   int                          // changes up to this one are forgotten
	objects map[string]map[string]Object // by collection, such as "pods", and NAMESPACE/NAME
	history []event
	changed chan struct{}
	cut     chan struct{} // closed to end all watches
	counts  map[string]int
}

type event struct {
	version    int
	kind, what string
	object     []byte
}

// NewServer starts one until the test ends.
func NewServer(t testing.TB) *Server {
	s := &Server{t: t, objects: map[string]map[string]Object{}, changed: make(chan struct{}), cut: make(chan struct{}),
		counts: map[string]int{}}
	for _, kind := range kinds() {
		s.objects[kind] = map[string]Object{}
	}
	h := httptest.NewServer(http.HandlerFunc(s.serve))
	s.URL = h.URL
	t.Cleanup(func() {
		s.CutWatches()
		h.CloseClientConnections()
		h.Close()
	})
	return s
}

// Kubeconfig writes a file that leads to the server.
func (s *Server) Kubeconfig(dir string) string { return Kubeconfig(s.t, dir, s.URL, "", "") }

// Kubeconfig writes a file that leads to an API server.
func Kubeconfig(t testing.TB, dir, url, ca, token string) string {
	t.Helper()
	cluster, user := Object{"server": url}, Object{}
	if ca != "" {
		cluster["certificate-authority"] = ca
	}
	if token != "" {
		user["token"] = token
	}
	text, err := json.Marshal(Object{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []Object{{"name": "c", "cluster": cluster}}, "users": []Object{{"name": "u", "user": user}},
		"contexts": []Object{{"name": "c", "context": Object{"cluster": "c", "user": "u", "namespace": "skerry"}}}})
	path := filepath.Join(dir, "kubeconfig")
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Fault has a function answer requests in the server's place; nil ends that.
func (s *Server) Fault(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	s.fault = f
	s.mu.Unlock()
}

// CutWatches ends every watch.
func (s *Server) CutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// Forget forgets all changes so far: a watch from before gets 410.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.floor, s.history = s.version, nil
}

// Count gives how often something was asked for, as "GET pods" or "WATCH nodes".
func (s *Server) Count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[what]
}

// Refuse answers as Kubernetes does.
func Refuse(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(Object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
		"message": message})
}

// place is what a path names.
type place struct{ kind, namespace, name, sub string }

func (p place) key() string {
	if p.namespace == "" {
		return p.name
	}
	return p.namespace + "/" + p.name
}

// kinds are those of the objects that there may be.
func kinds() []string {
	return []string{"events", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods", "secrets", "storageclasses"}
}

func parse(path string) (p place, ok bool) {
	rest, is := strings.CutPrefix(path, "/api/v1/")
	if !is {
		rest, is = strings.CutPrefix(path, "/apis/storage.k8s.io/v1/")
	}
	parts := strings.Split(rest, "/")
	if parts[0] == "namespaces" && len(parts) > 2 {
		p.namespace, parts = parts[1], parts[2:]
	}
	p.kind = parts[0]
	if len(parts) > 1 {
		p.name = parts[1]
	}
	if len(parts) > 2 {
		p.sub = parts[2]
	}
	return p, is && slices.Contains(kinds(), p.kind)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	at, ok := parse(r.URL.Path)
	watch := r.URL.Query().Get("watch") == "true"
	s.mu.Lock()
	fault := s.fault
	if method := r.Method; watch {
		s.counts["WATCH "+at.kind]++
	} else {
		s.counts[method+" "+at.kind]++
	}
	s.mu.Unlock()
	switch {
	case fault != nil && fault(w, r):
	case !ok:
		Refuse(w, 404, "NotFound", "the server could not find the requested resource")
	case watch:
		s.watch(w, r, at)
	case at.name == "" && r.Method == "GET":
		s.list(w, r, at)
	case at.sub == "log":
		s.log(w, r, at)
	case at.kind == "nodes" && at.sub == "proxy":
		s.proxy(w, r, at)
	default:
		s.one(w, r, at)
	}
}

func selected(o Object, r *http.Request) bool {
	for _, f := range strings.Split(r.URL.Query().Get("fieldSelector"), ",") {
		if k, v, ok := strings.Cut(f, "="); ok && Text(o, strings.Split(k, ".")...) != v {
			return false
		}
	}
	return true
}

// Text gives a text within an object.
func Text(o Object, path ...string) string {
	t, _ := Get(o, path...).(string)
	return t
}

// Get gives what is at a path within an object.
func Get(o any, path ...string) any {
	for _, p := range path {
		m, _ := o.(Object)
		o = m[p]
	}
	return o
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, at place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for k, o := range s.objects[at.kind] {
		if (at.namespace == "" || strings.HasPrefix(k, at.namespace+"/")) && selected(o, r) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	from := r.URL.Query().Get("continue")
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	items, next := []Object{}, ""
	for _, k := range keys {
		if k <= from && from != "" {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = Text(items[len(items)-1], "metadata", "name")
			if ns := Text(items[len(items)-1], "metadata", "namespace"); ns != "" {
				next = ns + "/" + next
			}
			break
		}
		items = append(items, s.objects[at.kind][k])
	}
	_ = json.NewEncoder(w).Encode(Object{"kind": "List", "metadata": Object{"resourceVersion": strconv.Itoa(s.version), "continue": next},
		"items": items})
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, at place) {
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	flush := http.NewResponseController(w)
	out := json.NewEncoder(w)
	s.mu.Lock()
	cut := s.cut
	s.mu.Unlock()
	bookmark := time.NewTicker(50 * time.Millisecond)
	defer bookmark.Stop()
	for {
		s.mu.Lock()
		changed, late, version := s.changed, since < s.floor, s.version
		var events []event
		for _, e := range s.history {
			if e.version > since && e.kind == at.kind {
				events = append(events, e)
			}
		}
		s.mu.Unlock()
		if late {
			_ = out.Encode(Object{"type": "ERROR", "object": Object{"kind": "Status", "code": 410, "reason": "Expired",
				"message": "too old resource version"}})
			return
		}
		for _, e := range events {
			if out.Encode(Object{"type": e.what, "object": json.RawMessage(e.object)}) != nil {
				return
			}
		}
		since = version
		_ = flush.Flush()
		select {
		case <-cut:
			return
		case <-r.Context().Done():
			return
		case <-changed:
		case <-bookmark.C:
			_ = out.Encode(Object{"type": "BOOKMARK", "object": Object{"metadata": Object{"resourceVersion": strconv.Itoa(since)}}})
		}
	}
}

func (s *Server) noteLocked(kind, key, what string, o Object) {
	s.version++
	meta := o["metadata"].(Object)
	meta["resourceVersion"] = strconv.Itoa(s.version)
	if what == "DELETED" {
		delete(s.objects[kind], key)
	} else {
		s.objects[kind][key] = o
	}
	data, _ := json.Marshal(o)
	s.history = append(s.history, event{version: s.version, kind: kind, what: what, object: data})
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) one(w http.ResponseWriter, r *http.Request, at place) {
	body := Object{}
	if data, _ := io.ReadAll(r.Body); len(data) > 0 && json.Unmarshal(data, &body) != nil {
		Refuse(w, 400, "BadRequest", "the body is no JSON")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == "POST" {
		at.name = Text(body, "metadata", "name")
		if from := Text(body, "metadata", "generateName"); at.name == "" && from != "" {
			at.name = fmt.Sprintf("%s%d", from, s.version)
			body["metadata"].(Object)["name"] = at.name
		}
	}
	have := s.objects[at.kind][at.key()]
	switch {
	case r.Method == "POST" && have != nil:
		Refuse(w, 409, "AlreadyExists", at.kind+" "+at.name+" already exists")
		return
	case r.Method != "POST" && have == nil:
		Refuse(w, 404, "NotFound", at.kind+" "+at.name+" not found")
		return
	}
	answer := have
	switch r.Method {
	case "GET":
	case "POST":
		meta, _ := body["metadata"].(Object)
		if meta == nil {
			Refuse(w, 422, "Invalid", "no metadata")
			return
		}
		s.makeLocked(at, body, meta)
		answer = body
	case "PUT":
		meta := body["metadata"].(Object)
		for _, kept := range []string{"uid", "creationTimestamp", "resourceVersion"} {
			meta[kept] = Get(have, "metadata", kept)
		}
		if reflect.DeepEqual(body, have) {
			break // what changes nothing makes no version
		}
		s.noteLocked(at.kind, at.key(), "MODIFIED", body)
		answer = body
	case "PATCH":
		answer = merged(have, body).(Object)
		if why := s.invalidLocked(at, have, answer); why != "" {
			Refuse(w, 403, "Forbidden", why)
			return
		}
		s.changeLocked(at, have, answer)
	case "DELETE":
		if uid := Text(body, "preconditions", "uid"); uid != "" && uid != Text(have, "metadata", "uid") {
			Refuse(w, 409, "Conflict", "the UID in the precondition does not match")
			return
		}
		if v := Text(body, "preconditions", "resourceVersion"); v != "" && v != Text(have, "metadata", "resourceVersion") {
			Refuse(w, 409, "Conflict", "the version in the precondition does not match")
			return
		}
		s.deleteLocked(at, have, body)
	default:
		Refuse(w, 405, "MethodNotAllowed", r.Method)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// makeLocked takes a new object.
func (s *Server) makeLocked(at place, made, meta Object) {
	meta["uid"], meta["creationTimestamp"] = fmt.Sprintf("uid-%d", s.version+1), time.Now().UTC().Format(time.RFC3339)
	if at.namespace != "" {
		meta["namespace"] = at.namespace
	}
	switch at.kind {
	case "pods":
		made["status"] = Object{"phase": "Pending"}
		s.bindLocked(made)
	case "persistentvolumeclaims":
		s.claimLocked(made)
	}
	s.noteLocked(at.kind, at.key(), "ADDED", made)
	s.scheduleLocked(at.kind)
}

// changeLocked takes an object that was changed; one that is deleted goes with its last finalizer.
func (s *Server) changeLocked(at place, have, next Object) {
	what := "MODIFIED"
	list, _ := Get(next, "metadata", "finalizers").([]any)
	if _, had := Get(have, "metadata", "finalizers").([]any); had && len(list) == 0 && Text(next, "metadata", "deletionTimestamp") != "" {
		what = "DELETED"
	}
	s.noteLocked(at.kind, at.key(), what, next)
	s.scheduleLocked(at.kind)
}

// deleteLocked removes an object; a pod on a node goes when its kubelet says so, or when it is forced.
func (s *Server) deleteLocked(p place, have, options Object) {
	have = merged(have, Object{}).(Object)
	if list, _ := Get(have, "metadata", "finalizers").([]any); len(list) > 0 {
		have["metadata"].(Object)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		s.noteLocked(p.kind, p.key(), "MODIFIED", have)
		return
	}
	if p.kind != "pods" || Text(have, "spec", "nodeName") == "" || options["gracePeriodSeconds"] == 0.0 {
		s.noteLocked(p.kind, p.key(), "DELETED", have)
		return
	}
	grace := Get(have, "spec", "terminationGracePeriodSeconds")
	if g, ok := options["gracePeriodSeconds"]; ok {
		grace = g
	}
	meta := have["metadata"].(Object)
	meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"] = time.Now().UTC().Format(time.RFC3339), grace
	s.noteLocked(p.kind, p.key(), "MODIFIED", have)
}

// bindLocked is the scheduler: a pod goes to the node that its affinity names.
func (s *Server) bindLocked(pod Object) {
	terms, _ := Get(pod, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").([]any)
	if len(terms) == 0 {
		return
	}
	fields, _ := Get(terms[0], "matchFields").([]any)
	values, _ := Get(fields[0], "values").([]any)
	name, _ := values[0].(string)
	node := s.objects["nodes"][name]
	if node == nil || Get(node, "spec", "unschedulable") == true {
		pod["status"] = Object{"phase": "Pending", "conditions": []any{Object{"type": "PodScheduled", "status": "False",
			"reason": "Unschedulable", "message": "0/1 nodes are available: 1 node(s) were unschedulable."}}}
		return
	}
	if waits, why := s.unboundLocked(pod, name); waits {
		pod["status"] = Object{"phase": "Pending"}
		if why != "" {
			pod["status"].(Object)["conditions"] = []any{Object{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
				"message": why}}
		}
		return
	}
	pod["spec"].(Object)["nodeName"] = name
}

// merged is RFC 7396.
func merged(have, change any) any {
	changes, ok := change.(Object)
	if !ok {
		return change
	}
	out := Object{}
	if h, ok := have.(Object); ok {
		for k, v := range h {
			if m, ok := v.(Object); ok {
				v = merged(m, Object{})
			}
			out[k] = v
		}
	}
	for k, v := range changes {
		if v == nil {
			delete(out, k)
		} else {
			out[k] = merged(out[k], v)
		}
	}
	return out
}

// log asks the kubelet of the pod's node.
func (s *Server) log(w http.ResponseWriter, r *http.Request, at place) {
	s.mu.Lock()
	pod := s.objects[at.kind][at.key()]
	node := s.objects["nodes"][Text(pod, "spec", "nodeName")]
	s.mu.Unlock()
	forward(w, r, node, fmt.Sprintf("/containerLogs/%s/%s/%s", at.namespace, at.name, r.URL.Query().Get("container")))
}

// proxy asks the kubelet of a node for what follows in the path.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request, at place) {
	s.mu.Lock()
	node := s.objects["nodes"][at.name]
	s.mu.Unlock()
	_, path, _ := strings.Cut(r.URL.Path, "/proxy")
	forward(w, r, node, path)
}

// forward passes a request on to the kubelet of a node.
func forward(w http.ResponseWriter, r *http.Request, node Object, path string) {
	port, _ := Get(node, "status", "daemonEndpoints", "kubeletEndpoint", "Port").(float64)
	if port == 0 {
		Refuse(w, 400, "BadRequest", "the pod has no host")
		return
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	addresses, _ := Get(node, "status", "addresses").([]any)
	host := "127.0.0.1"
	if len(addresses) > 0 {
		host = Text(addresses[0].(Object), "address")
	}
	req, _ := http.NewRequestWithContext(r.Context(), "GET", fmt.Sprintf("https://%s:%d%s?%s", host, int(port), path, r.URL.RawQuery), nil)
	res, err := client.Do(req)
	if err != nil {
		Refuse(w, 500, "InternalError", err.Error())
		return
	}
	defer res.Body.Close()
	w.WriteHeader(res.StatusCode)
	flush := http.NewResponseController(w)
	buf := make([]byte, 4096)
	for {
		n, err := res.Body.Read(buf)
		if _, e := w.Write(buf[:n]); e != nil || err != nil {
			return
		}
		_ = flush.Flush()
	}
}
