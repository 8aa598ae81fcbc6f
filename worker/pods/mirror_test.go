package pods_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/worker/pods"
	"skerry.dev/skerry/worker/pods/podstest"
)

// watched is a fleet without a site: its workers never open, and what it sees of nodes shows in which of them are asked for.
type watched struct {
	t     *testing.T
	s     *podstest.Server
	asked chan string
	seen  map[string]bool
}

func watch(t *testing.T, before func(s *podstest.Server)) *watched {
	t.Helper()
	w := &watched{t: t, s: podstest.NewServer(t), asked: make(chan string, 4096), seen: map[string]bool{}}
	before(w.s)
	client, _, err := pods.Connect(pods.Connection{Kubeconfig: w.s.Kubeconfig(t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	f := pods.NewFleet(pods.Options{Client: client, Style: pods.Style{Namespace: "skerry", Site: "s"}, Log: slog.New(slog.DiscardHandler),
		Open: func(ctx context.Context, _, node string) (*pods.Place, error) {
			w.asked <- node
			<-ctx.Done()
			return nil, ctx.Err()
		}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("fleet: %v", err)
		}
	})
	return w
}

// add makes a node.
func (w *watched) add(name string) {
	w.t.Helper()
	k := podstest.Kubelet{Server: w.s.URL}
	if code, text := k.Do("POST", "/api/v1/nodes", podstest.Object{"metadata": podstest.Object{"name": name}}, nil); code != 200 {
		w.t.Fatalf("add node %s: %d %s", name, code, text)
	}
}

// until waits until a node is seen.
func (w *watched) until(name string) {
	w.t.Helper()
	late := time.After(time.Minute)
	for !w.seen[name] {
		select {
		case n := <-w.asked:
			w.seen[n] = true
		case <-late:
			w.t.Fatalf("node %s is not seen", name)
		}
	}
}

// The fleet goes on seeing what happens, whatever an API server does.
func TestMirrorOutlivesItsServer(t *testing.T) {
	for name, trouble := range map[string]func(w *watched){
		"watches are cut":       func(w *watched) { w.s.CutWatches() },
		"the past is forgotten": func(w *watched) { w.s.Forget(); w.s.CutWatches() },
		"it answers 500 for a while": func(w *watched) {
			w.s.Fault(few(3, func(rw http.ResponseWriter) {
				podstest.Refuse(rw, 500, "InternalError", "etcdserver: request timed out")
			}))
			w.s.CutWatches()
		},
		"it answers 403 for a while": func(w *watched) {
			w.s.Fault(few(3, func(rw http.ResponseWriter) { podstest.Refuse(rw, 403, "Forbidden", "nodes is forbidden") }))
			w.s.CutWatches()
		},
		"it answers 429 for a while": func(w *watched) {
			w.s.Fault(few(2, func(rw http.ResponseWriter) { podstest.Refuse(rw, 429, "TooManyRequests", "slow down") }))
			w.s.CutWatches()
		},
		"it answers nonsense for a while": func(w *watched) {
			w.s.Fault(few(3, func(rw http.ResponseWriter) { fmt.Fprint(rw, `{"items": 3, "type": []}`) }))
			w.s.CutWatches()
		},
		"it says 410 in a watch for a while": func(w *watched) {
			w.s.Fault(few(2, func(rw http.ResponseWriter) {
				fmt.Fprint(rw, `{"type":"ERROR","object":{"code":410,"message":"too old"}}`)
			}))
			w.s.CutWatches()
		},
		"it refuses a version for good": func(w *watched) {
			var mu sync.Mutex
			refused := map[string]string{}
			w.s.Fault(func(rw http.ResponseWriter, r *http.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				if r.FormValue("watch") == "" {
					return false
				}
				if refused[r.URL.Path] == "" {
					refused[r.URL.Path] = r.FormValue("resourceVersion")
				}
				if refused[r.URL.Path] != r.FormValue("resourceVersion") {
					return false
				}
				podstest.Refuse(rw, 400, "BadRequest", "invalid resource version")
				return true
			})
			w.s.CutWatches()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := watch(t, func(*podstest.Server) {})
			w.add("first")
			w.until("first")
			trouble(w)
			w.add("second")
			w.until("second")
		})
	}
}

// few answers so many requests that only read; the test's own write.
func few(n int, answer func(w http.ResponseWriter)) func(w http.ResponseWriter, r *http.Request) bool {
	left := make(chan struct{}, n)
	for range n {
		left <- struct{}{}
	}
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != "GET" {
			return false
		}
		select {
		case <-left:
			answer(w)
			return true
		default:
			return false
		}
	}
}

// A long list comes in pages; one object that cannot be read does not hide the others.
func TestMirrorReadsPages(t *testing.T) {
	w := watch(t, func(s *podstest.Server) {
		k := podstest.Kubelet{Server: s.URL}
		for i := range 1203 {
			k.Do("POST", "/api/v1/nodes", podstest.Object{"metadata": podstest.Object{"name": fmt.Sprintf("n%04d", i)}}, nil)
		}
		k.Do("POST", "/api/v1/nodes", podstest.Object{"metadata": podstest.Object{"name": "odd"}, "status": podstest.Object{"allocatable": 7}},
			nil)
	})
	w.until("odd")
	w.until("n0000")
	w.until("n1202")
	if got := w.s.Count("GET nodes"); got < 3 {
		t.Errorf("the nodes were read in %d requests, want at least 3 pages", got)
	}
}

// A name of a node becomes a name of a worker, and no two become one.
func TestWorkerName(t *testing.T) {
	names := map[string]string{}
	for _, node := range []string{"n1", "a.b", "a-b", "1st", "ip-10-0-0-1.eu-central-1.compute.internal", strings.Repeat("x", 200),
		strings.Repeat("x", 199) + "y"} {
		name := pods.WorkerName(node)
		if other, is := names[name]; is || len(name) > 63 {
			t.Errorf("WorkerName(%q) = %q, which is that of %q or longer than 63", node, name, other)
		}
		names[name] = node
	}
	if first, second := pods.WorkerName("a.b"), pods.WorkerName(pods.WorkerName("a.b")); first == second {
		t.Errorf("WorkerName(%q) = %q, which is that of a.b", first, second)
	}
	if got := pods.WorkerName("n1"); got != "n1" {
		t.Errorf("WorkerName(n1) = %q, want n1", got)
	}
}

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{})) }
