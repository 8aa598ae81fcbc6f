//go:build linux

package worker

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/overlay/hostnet"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// halves is a worker with a real network and a real registry. Each lets a test hold it up.
type halves struct {
	*Server
	namespaces string // directory of those that there are
	pinned     string // the image, as a site pins it

	mu     sync.Mutex                                        // of fetch
	fetch  func(w http.ResponseWriter, r *http.Request) bool // before a request for the image; false: it has been answered
	attach func(hostnet.Config) error                        // before the network changes
}

type slowNet struct {
	Network
	of *halves
}

func (n slowNet) Set(ctx context.Context, c hostnet.Config) (map[string]wire.Attachment, error) {
	if n.of.attach != nil && len(c.Attachments) > 0 {
		if err := n.of.attach(c); err != nil {
			return nil, err
		}
	}
	return n.Network.Set(ctx, c)
}

func newHalves(t *testing.T) *halves {
	t.Helper()
	images := func() *artifact.Store {
		st, err := artifact.Open(filepath.Join(t.TempDir(), "images"), artifact.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		return st
	}
	const registry = "registry.example"
	h := &halves{}
	served := &artifact.Handler{Store: images(), Registry: registry, Authorize: func(*http.Request, string, string) error { return nil }}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		fetch := h.fetch
		h.mu.Unlock()
		if fetch == nil || fetch(w, r) {
			served.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	src := &artifact.Source{BaseURL: srv.URL}
	user, dir := images(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("some"), 0o600); err != nil {
		t.Fatal(err)
	}
	const ref = registry + "/team/app:1"
	if _, err := user.Build(t.Context(), artifact.BuildOptions{Source: dir, Tag: ref, Platform: artifact.HostPlatform(),
		Entrypoint: []string{"/x"}}); err != nil {
		t.Fatal(err)
	}
	pushed, err := user.Push(t.Context(), ref, ref, src, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.pinned = registry + "/team/app@" + string(pushed)

	h.namespaces = t.TempDir()
	network, err := hostnet.New(hostnet.Options{Name: "halves", StateDir: t.TempDir(), RunDir: h.namespaces})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(network.CleanUp(context.WithoutCancel(t.Context())), network.Close()); err != nil {
			t.Error(err)
		}
	})
	h.Server, err = NewServer(ServerOptions{Name: "halves", Dir: t.TempDir(), RunDir: t.TempDir(), Images: images(),
		Network: slowNet{network, h}, Drivers: []runtime.Driver{&books{}}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	h.source.Store(src)
	return h
}

func (h *halves) prepareApp(ctx context.Context) core.Prepared {
	const ref = "registry.example/team/app:1"
	a := spec.Assignment{ID: "app-1", Digest: map[string]string{ref: h.pinned}, Runtime: "native",
		Spec: spec.ServiceSpec{Name: "app", Container: spec.Container{Image: ref},
			Ports: []spec.Port{{Port: 8080, HostPort: -1}, {Port: 8081, HostPort: -1}}}}
	return h.prepared(ctx, core.Prepare{A: a})
}

// none checks that nothing of the network is left.
func (h *halves) none(t *testing.T) {
	t.Helper()
	list, err := os.ReadDir(h.namespaces)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || len(list) > 0 {
		t.Errorf("namespaces are left: %v, %v", list, err)
	}
	if h.net.wanted("app-1") || h.net.get("app-1") != nil || len(h.net.hostPorts()) > 0 {
		t.Errorf("it has a network: %v, ports %v", h.net.get("app-1"), h.net.hostPorts())
	}
}

// The image is fetched while the network is made: here each waits for the other to have begun.
func TestImageBesideNetwork(t *testing.T) {
	h := newHalves(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fetching, attaching := make(chan struct{}, 100), make(chan struct{})
	h.fetch = func(http.ResponseWriter, *http.Request) bool {
		fetching <- struct{}{}
		select {
		case <-attaching:
		case <-ctx.Done():
		}
		return true
	}
	h.attach = func(hostnet.Config) error {
		close(attaching)
		select {
		case <-fetching:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m := h.prepareApp(ctx)
	if m.Err != "" || m.Digest == "" || m.Address == "" || len(m.Ports) != 2 || h.net.get("app-1") == nil {
		t.Errorf("prepared: %+v", m)
	}
}

// Whatever fails, and whoever cancels, there is one reason, it is the first, and nothing of the network is left; the next try works.
func TestHalfAPreparation(t *testing.T) {
	h := newHalves(t)
	for _, c := range []struct {
		name      string
		set       func(cancel func())
		err       string
		permanent bool
	}{
		{"no such image", func(func()) {
			h.fetch = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusNotFound); return false }
		}, "image registry.example/team/app:1: ", true},
		{"the registry is away", func(func()) {
			h.fetch = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusBadGateway); return false }
		}, "image registry.example/team/app:1: ", false},
		{"no network, beside an image that does not come", func(func()) {
			fetching := make(chan struct{}, 1)
			h.fetch = func(_ http.ResponseWriter, r *http.Request) bool {
				select {
				case fetching <- struct{}{}:
				default:
				}
				<-r.Context().Done() // of the connection, which the worker ends
				return false
			}
			h.attach = func(hostnet.Config) error {
				<-fetching
				return errors.New("no address is free")
			}
		}, "network: no address is free", false},
		{"a network that cannot be", func(func()) {
			h.attach = func(hostnet.Config) error { return &runtime.Unsupported{Driver: "native", Reason: "no namespaces"} }
		}, "network: ", true},
		{"a panic in the network", func(func()) {
			h.attach = func(hostnet.Config) error { panic("of a test") }
		}, "panic, which is a bug", true},
		{"cancelled while the image does not come", func(cancel func()) {
			h.fetch = func(_ http.ResponseWriter, r *http.Request) bool {
				cancel()
				<-r.Context().Done()
				return false
			}
		}, "context canceled", false},
		{"cancelled while the network is made", func(cancel func()) {
			h.attach = func(hostnet.Config) error {
				cancel()
				return nil
			}
		}, "context canceled", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h.mu.Lock()
			c.set(cancel)
			h.mu.Unlock()
			m := h.prepareApp(ctx)
			h.mu.Lock() // a request that was cut off may still be answered
			h.fetch, h.attach = nil, nil
			h.mu.Unlock()
			if !strings.Contains(m.Err, c.err) || m.Permanent != c.permanent || len(m.Ports) > 0 || m.Address != "" {
				t.Errorf("prepared: %+v", m)
			}
			h.none(t)
		})
	}
	if m := h.prepareApp(t.Context()); m.Err != "" || m.Address == "" {
		t.Fatalf("the next try: %+v", m)
	}
	// What runs already keeps its network when it is prepared anew and that fails.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if m := h.prepareApp(ctx); m.Err == "" || h.net.get("app-1") == nil {
		t.Errorf("prepared anew: %+v, network %v", m, h.net.get("app-1"))
	}
	if err := h.net.remove(t.Context(), "app-1"); err != nil {
		t.Error(err)
	}
	h.none(t)
}
