package pods

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
	"skerry.dev/skerry/worker/pods/podstest"
)

// heard is a core that only takes down what it is told.
type heard struct {
	mu   sync.Mutex
	told []any
}

func (h *heard) Step(_ time.Time, msg any) wire.Effects {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, msg)
	return wire.Effects{}
}

func (h *heard) Tick(time.Time) wire.Effects { return wire.Effects{} }

func (h *heard) NextWake() time.Time { return time.Time{} }

// await gives the first message that fits.
func (h *heard) await(t *testing.T, what string, fits func(msg any) bool) any {
	t.Helper()
	for late := time.Now().Add(20 * time.Second); time.Now().Before(late); time.Sleep(5 * time.Millisecond) {
		h.mu.Lock()
		for _, m := range h.told {
			if fits(m) {
				h.mu.Unlock()
				return m
			}
		}
		h.mu.Unlock()
	}
	t.Fatalf("the core was told %+v, want %s", h.told, what)
	return nil
}

// live runs the role of a worker with a core until the test ends.
func live(t *testing.T, worker *Worker, core loop.Core) {
	t.Helper()
	kept, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	role := worker.role.Load()
	role.Store = kept
	role.Load = func(context.Context) (loop.Core, wire.Effects, error) { return core, wire.Effects{}, nil }
	role.Serve = func(ctx context.Context, _ *loop.Loop) error {
		<-ctx.Done()
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		_ = role.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		kept.Close()
	})
	<-role.Up()
}

// An action that panics answers like one that fails: its instance does not wait for ever.
func TestPanicOfAnActionIsAnswered(t *testing.T) {
	worker, told := alone(t, "http://127.0.0.1:1"), &heard{}
	live(t, worker, told)
	worker.fleet.opt.Client = nil // whatever asks for something panics
	assigned := *assignment(t, `{"name":"web","image":"x"}`)
	worker.act(core.Prepare{A: assigned})
	worker.act(core.StartContainer{A: assigned, Name: mainContainer, Attempt: 2})
	worker.act(core.Cleanup{ID: assigned.ID})
	for what, of := range map[string]func(msg any) string{
		"Prepared": func(msg any) string { m, _ := msg.(core.Prepared); return m.Err },
		"Started":  func(msg any) string { m, _ := msg.(core.Started); return m.Err },
		"Cleaned":  func(msg any) string { m, _ := msg.(core.Cleaned); return m.Err },
	} {
		told.await(t, what+" with the panic", func(msg any) bool { return strings.Contains(of(msg), "panic") })
	}
}

// What has no answer is done again after a panic: else nobody would hear of the end of a pod, or ask for it.
func TestPanicOfAWatchIsRepeated(t *testing.T) {
	server := podstest.NewServer(t)
	worker, told := alone(t, server.URL), &heard{}
	live(t, worker, told)
	named := running(t, worker, server, "web-1-x-1", "web-1", 1)
	tries := 0
	worker.repeat(worker.work.Load(), func() {
		if tries++; tries < 3 {
			panic("ouch")
		}
		worker.watch(t.Context(), worker.teller("web-1", 1), named)
	})
	kubelet := podstest.Kubelet{Server: server.URL}
	kubelet.Do("PATCH", podPath("skerry", named.Pod)+"/status", podstest.Object{"status": podstest.Object{"phase": "Failed"}}, nil)
	relist(t, worker)
	told.await(t, "Exited", func(msg any) bool { _, ok := msg.(core.Exited); return ok })
}

// The files that are prepared for an instance which has gone in the meantime go as soon as they are written, and nothing of it is known.
func TestPreparedForNobody(t *testing.T) {
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	live(t, worker, core.New(core.Options{Name: "n1"}))
	assigned := *assignment(t, `{"name":"web","image":"x","ports":[{"port":80,"hostPort":-1}]}`)
	worker.fleet.opt.FirstPort, worker.fleet.opt.LastPort = 20000, 20001
	if done := worker.prepared(t.Context(), t.Context(), core.Prepare{A: assigned}); done.Err != "" {
		t.Fatalf("prepared = %+v, want no error", done)
	}
	kubelet := podstest.Kubelet{Server: server.URL}
	if code, _ := kubelet.Do("GET", secretPath("skerry", filesName(assigned.ID, "n1")), nil, nil); code != http.StatusNotFound {
		t.Errorf("the secret of an instance that has gone has status %d, want 404", code)
	}
	if len(worker.apps)+len(worker.ports) != 0 {
		t.Errorf("of an instance that has gone are known: %v, %v; want nothing", worker.apps, worker.ports)
	}
}

// Whoever asks a worker that begins anew is answered by one of its lives, without a race.
func TestAskedWhileItBeginsAnew(t *testing.T) {
	worker := alone(t, "http://127.0.0.1:1")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			_, _ = worker.holds(t.Context(), "web-1")
			worker.post(core.Quiet{ID: "web-1"})
		}
	}()
	for range 1000 {
		worker.open(&Place{})
	}
	<-done
}

// What was prepared in a life that did not live to write it down is not known in the next.
func TestNextLifeKnowsItsRecords(t *testing.T) {
	worker := alone(t, "http://127.0.0.1:1")
	kept, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	worker.place = &Place{Store: kept}
	worker.apps["web-1"], worker.ports["web-1"] = assignment(t, `{"name":"web"}`).Service.App, []wire.PortBinding{{HostPort: 20000}}
	if _, _, err := worker.load(t.Context()); err != nil {
		t.Fatalf("load = %v, want nil", err)
	}
	if len(worker.apps)+len(worker.ports) != 0 {
		t.Errorf("a new life knows %v and %v, want nothing: no record has them", worker.apps, worker.ports)
	}
	worker.work.Store(tier.NewWork(t.Context()))
}
