package api_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/cluster"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/root"
	"skerry.dev/skerry/wire"
)

// site is a root or a standalone cluster with its API.
type site struct {
	t    *testing.T
	API  *parents.API
	URL  string
	Dir  string
	Root *parents.Root // nil at a cluster
	// Cluster is nil at a root, and at a cluster of its own
	Cluster *parents.Cluster
}

// quick makes hashes of passwords that take no time: nearly every test makes an admin.
var quick = auth.Argon2{Memory: 64, Time: 1}

func logger(t *testing.T) *slog.Logger {
	level := slog.LevelWarn
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: level}))
}

// background runs something until the end of the test.
func background(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// newRoot starts a root whose limits do not get into the way.
func newRoot(t *testing.T) *site {
	t.Helper()
	return newRootWith(t, api.Limits{UserRate: -1, AddressRate: -1})
}

func contextWithCancel(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

func newRootWith(t *testing.T, l api.Limits) *site {
	t.Helper()
	return newRootServing(t, parents.APIConfig{Limits: l, Listen: api.Listen{Addr: "127.0.0.1:0"}})
}

func newRootServing(t *testing.T, c parents.APIConfig) *site {
	t.Helper()
	c.Argon2 = quick
	s := &site{t: t, Dir: t.TempDir()}
	var err error
	s.Root, err = parents.OpenRoot(t.Context(), parents.RootConfig{Common: node.Common{Dir: s.Dir, StoreURL: "memory:", Log: logger(t)},
		Server: root.ServerOptions{Link: "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Root.Close() })
	background(t, s.Root.Run)
	ready := make(chan *parents.API, 1)
	background(t, func(ctx context.Context) error {
		c.Dir, c.Log = s.Dir, logger(t)
		return parents.ServeAPI(ctx, s.Root, s.Root.Store, c, func(a *parents.API) { ready <- a })
	})
	s.API = <-ready
	s.URL = s.API.URL()
	t.Cleanup(s.answersAreDescribed)
	return s
}

// newCluster starts a cluster of its own.
func newCluster(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, Dir: t.TempDir()}
	c, err := parents.OpenCluster(t.Context(), parents.ClusterConfig{Common: node.Common{Dir: s.Dir, StoreURL: "memory:", Log: logger(t)},
		Server: cluster.ServerOptions{Link: "127.0.0.1:0", Options: clustercore.Options{Standalone: true}}, Join: node.Join{Name: "harbour"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	background(t, c.Run)
	ready := make(chan *parents.API, 1)
	background(t, func(ctx context.Context) error {
		return parents.ServeAPI(ctx, c, c.Store, parents.APIConfig{Dir: s.Dir, Argon2: quick, Limits: api.Limits{UserRate: -1, AddressRate: -1},
			Listen: api.Listen{Addr: "127.0.0.1:0"}, Log: logger(t)}, func(a *parents.API) { ready <- a })
	})
	s.API = <-ready
	s.URL = s.API.URL()
	t.Cleanup(s.answersAreDescribed)
	return s
}

// answersAreDescribed holds all answers that a test got against the statuses that the OpenAPI document lists for their operations.
func (s *site) answersAreDescribed() {
	if got := s.API.Handler().Undescribed(); len(got) > 0 {
		s.t.Errorf("answers that the OpenAPI document does not list: got %q, want none", got)
	}
}

func (s *site) client(user, password string) *api.Client {
	s.t.Helper()
	pin, err := api.FetchPin(s.t.Context(), s.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := api.NewClient(api.ClientOptions{Server: s.URL, Pin: pin})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	if user == "" {
		return c
	}
	if _, err := c.Login(s.t.Context(), user, password); err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *site) password() string {
	s.t.Helper()
	pw, err := os.ReadFile(filepath.Join(s.Dir, parents.AdminPasswordFile))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(pw))
}

func (s *site) admin() *api.Client {
	s.t.Helper()
	return s.client(auth.AdminUser, s.password())
}

const shop = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: web
    runtime: native
    command: [/bin/true]
`

func TestApplyGetDelete(t *testing.T) {
	s := newRoot(t)
	c := s.admin()
	ctx := t.Context()
	who, err := c.Whoami(ctx)
	if err != nil || who.User != "admin" || who.Tier != wire.TierRoot {
		t.Fatalf("%+v %v", who, err)
	}
	res, err := c.Apply(ctx, []byte(shop), api.ApplyOptions{Register: true})
	if err != nil || !res.Created {
		t.Fatalf("%+v %v", res, err)
	}
	list, err := c.Apps(ctx, "")
	if err != nil || len(list) != 1 || list[0].Status != "Registered" {
		t.Fatalf("%+v %v", list, err)
	}
	if _, err := c.Deploy(ctx, res.Key); err != nil {
		t.Fatal(err)
	}
	inst, err := c.Instances(ctx, api.InstanceFilter{App: "shop"})
	if err != nil || len(inst) != 1 {
		t.Fatalf("%+v %v", inst, err)
	}
	if e, err := c.Explain(ctx, inst[0].ID); err != nil || e.Instance.ID != inst[0].ID {
		t.Fatalf("%+v %v", e, err)
	}
	if err := c.DeleteApp(ctx, res.Key); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Workers(ctx); skerry.AsError(err).Code != skerry.CodeWrongTier || skerry.AsError(err).Hint == "" {
		t.Errorf("workers at the root: %v", err)
	}
	if _, err := c.WorkerOverlay(ctx, "w"); skerry.AsError(err).Code != skerry.CodeWrongTier {
		t.Errorf("a worker's paths at the root: %v", err)
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
