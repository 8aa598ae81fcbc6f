//go:build linux

// Package e2e runs all roles for real: real stores, links, containers and networks, in one process and in several.
package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/cluster"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/overlay/tunnel"
	"skerry.dev/skerry/plugin"
	"skerry.dev/skerry/root"
	"skerry.dev/skerry/runtime/containerd"
	"skerry.dev/skerry/runtime/lease"
	"skerry.dev/skerry/runtime/native"
	"skerry.dev/skerry/runtime/oci"
	"skerry.dev/skerry/runtime/vm"
	"skerry.dev/skerry/runtime/wasm"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == node.ShimCommand {
		os.Exit(native.ShimMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == node.WasmCommand {
		os.Exit(wasm.RunMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == node.VMCommand {
		os.Exit(vm.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == node.KeepCommand {
		os.Exit(containerd.KeepMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == node.LeaseCommand {
		os.Exit(lease.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == node.DatapathCommand {
		os.Exit(tunnel.Main("test", os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == parents.PluginShimCommand {
		os.Exit(plugin.ShimMain(os.Args[2:]))
	}
	os.Exit(testenv.Main(m, testenv.Options{NetNS: true, Cgroup: cgroupParent("*")}))
}

// cgroupParent names the cgroup of a worker in this run of the tests.
func cgroupParent(dir string) string {
	return fmt.Sprintf("skerry-e2e-%d-%s", os.Getpid(), filepath.Base(dir))
}

// site is a root, a cluster and a worker in this process.
type site struct {
	t       *testing.T
	dir     string
	dirs    map[string]string // of roles that are elsewhere
	attach  worker.AttachOptions
	Root    *parents.Root
	Cluster *parents.Cluster
	Worker  *node.Worker
	log     *slog.Logger

	address   string                 // where the cluster and the worker are; empty: this machine alone reaches them
	time      string                 // host:port of what tells guests the time by SNTP; empty: they have that of when they were made
	patience  time.Duration          // how long await waits; a minute when 0
	machines  node.Machines          // of the worker
	users     worker.UserPool        // of the worker
	owners    oci.Owners             // of the files of its containers
	foreign   node.Containerd        // that the worker is told of
	admission *clustercore.Admission // nil: the organisation is trusted
	noNetwork bool                   // the worker gives instances none of their own
	stops     map[string]func()      // end a role before the test does
	stopAgent func()
}

func logger(t *testing.T) *slog.Logger {
	level := slog.LevelWarn
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: level}))
}

// run starts something and stops it, with its Close, at the end of the test.
func (s *site) run(name string, run func(context.Context) error, close func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
		if err := close(); err != nil {
			s.t.Errorf("close %s: %v", name, err)
		}
	})
	if s.stops == nil {
		s.stops = map[string]func(){}
	}
	s.stops[name] = stop
	s.t.Cleanup(stop)
}

func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteAt(t, nil)
}

// newSiteAt puts the data of some roles elsewhere.
func newSiteAt(t *testing.T, dirs map[string]string) *site {
	t.Helper()
	return (&site{t: t, dirs: dirs}).open()
}

// open makes the roles of a site that was described.
func (s *site) open() *site {
	t := s.t
	t.Helper()
	ctx := t.Context()
	s.dir, s.address, s.patience = t.TempDir(), cmp.Or(s.address, "127.0.0.1"), cmp.Or(s.patience, time.Minute)
	if s.log == nil {
		s.log = logger(t)
	}
	common := s.common
	var err error
	if s.Root, err = parents.OpenRoot(ctx, parents.RootConfig{Common: common("root"),
		Server: root.ServerOptions{Link: "127.0.0.1:0"}}); err != nil {
		t.Fatal(err)
	}
	s.run("root", s.Root.Run, s.Root.Close)
	if err := parents.Seed(ctx, s.Root); err != nil {
		t.Fatal(err)
	}
	s.await("the root listens", func() bool { return s.Root.LinkAddr() != nil })
	token, _, err := s.Root.Authority().CreateToken(ctx, auth.TokenOptions{Tier: wire.TierCluster})
	if err != nil {
		t.Fatal(err)
	}
	s.Cluster, err = parents.OpenCluster(ctx, parents.ClusterConfig{Common: common("cluster"),
		Server: cluster.ServerOptions{Link: s.address + ":0",
			Options: clustercore.Options{Admission: *cmp.Or(s.admission, &clustercore.Admission{Trusted: []string{parents.DefaultOrg}})}},
		Join: node.Join{Name: "harbour", Token: token, Parent: []string{s.Root.LinkAddr().String()}}})
	if err != nil {
		t.Fatal(err)
	}
	s.run("cluster", s.Cluster.Run, s.Cluster.Close)
	s.await("the cluster listens", func() bool { return s.Cluster.LinkAddr() != nil })
	token, _, err = s.Cluster.Authority().CreateToken(ctx, auth.TokenOptions{Tier: wire.TierWorker})
	if err != nil {
		t.Fatal(err)
	}
	s.startWorker(token)
	t.Cleanup(s.stopWorker)
	return s
}

// common sets up a role.
func (s *site) common(role string) node.Common {
	dir := s.dirs[role]
	if dir == "" {
		dir = filepath.Join(s.dir, role)
	}
	return node.Common{Dir: dir, Log: s.log.With("role", role)}
}

// startWorker starts the worker's agent; it may be stopped and started again over the same directory.
func (s *site) startWorker(token string) {
	s.t.Helper()
	for d := s.dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) { // as /run/skerry: users of user namespaces enter the run directory
		if err := os.Chmod(d, 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	w, err := node.OpenWorker(s.t.Context(), node.WorkerConfig{Common: s.common("worker"),
		RunDir: filepath.Join(s.dir, "run"), CgroupParent: cgroupParent(filepath.Dir(s.dir)),
		NoNetwork: s.noNetwork, Join: node.Join{Name: "w1", Token: token, Parent: []string{s.Cluster.LinkAddr().String()}},
		Facts: worker.FactOptions{Address: s.address}, Attach: s.attach, Machines: s.machines, Containerd: s.foreign, Users: s.users, Owners: s.owners})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	s.Worker = w
	s.stopAgent = func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error("worker:", err)
		}
	}
}

// stopWorker ends the agent and everything that it has on the machine.
func (s *site) stopWorker() {
	s.stopAgent()
	if err := s.Worker.CleanUp(context.Background()); err != nil {
		s.t.Error("clean up:", err)
	}
	if err := s.Worker.Close(); err != nil {
		s.t.Error("close worker:", err)
	}
}

func (s *site) await(what string, ok func() bool) {
	s.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > cmp.Or(s.patience, time.Minute) {
			s.dump()
			s.t.Fatalf("waited in vain: %s", what)
		}
		testenv.Pause(began)
	}
}

func (s *site) dump() {
	ctx := context.Background()
	if s.Root != nil {
		list, _ := s.Root.Instances(ctx)
		for _, i := range list {
			s.t.Logf("root: %s %s %s %q %v %v", i.ID, i.State, i.Phase, i.Reason, i.Why, i.Conditions)
		}
	}
	if s.Cluster != nil {
		list, _ := s.Cluster.Instances(ctx)
		for _, i := range list {
			s.t.Logf("cluster: %s %s %s %q %v", i.ID, i.State, i.Phase, i.Reason, i.Why)
		}
		ws, _ := s.Cluster.Workers(ctx)
		for _, w := range ws {
			s.t.Logf("worker: %s connected=%v refusing=%q %+v", w.Name, w.Connected, w.Refusing, w.Facts)
		}
	}
}

// program builds a small static program once and puts it into the root's store as an image.
func (s *site) image(tag, pkg string) {
	s.t.Helper()
	bin := filepath.Join(s.t.TempDir(), "program")
	testenv.Build(s.t, bin, pkg)
	if _, err := s.Root.Images.Store.Build(s.t.Context(), artifact.BuildOptions{Source: bin, Tag: "skerry.local/" + tag}); err != nil {
		s.t.Fatal(err)
	}
}

func app(name string, services ...spec.ServiceSpec) apps.Apply {
	return apps.Apply{Actor: "test", App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Name: name}, Spec: spec.ApplicationSpec{Services: services}}}
}

func (s *site) ready(n int) func() bool {
	return func() bool {
		list, err := s.Root.Instances(context.Background())
		if err != nil {
			return false
		}
		ready := 0
		for _, i := range list {
			if i.State == skerry.Running && skerry.HasCondition(i.Conditions, skerry.Ready) && !i.Stopping {
				ready++
			}
		}
		return ready == n && len(list) == n
	}
}

func TestContainerThroughAllTiers(t *testing.T) {
	s := newSite(t)
	s.image("test/web:1", "skerry.dev/skerry/examples/shop/catalog")
	web := spec.ServiceSpec{Name: "web", Ports: []spec.Port{{Name: "http", Port: 8080, HostPort: -1}},
		Resources: spec.Resources{CPU: 200, Memory: 64 * skerry.MiB},
		Probes:    spec.Probes{Readiness: &spec.Probe{HTTP: &spec.HTTPProbe{Port: 8080, Path: "/healthz"}}}}
	web.Image = "test/web:1"
	begin := time.Now()
	if _, err := s.Root.Do(t.Context(), app("shop", web)); err != nil {
		t.Fatal(err)
	}
	s.await("one instance is ready at the root", s.ready(1))
	t.Log("ready after", time.Since(begin))

	if _, err := s.Root.Do(t.Context(), apps.Scale{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	s.await("three instances are ready", s.ready(3))
	list, err := s.Cluster.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		out, err := exec.Command("curl", "-sS", "-m", "5", "http://"+i.Ports[0].Address+"/healthz").CombinedOutput()
		if err != nil {
			t.Errorf("%s at %s: %v %s", i.ID, i.Ports[0].Address, err, out)
		}
	}
	if _, err := s.Root.Do(t.Context(), apps.Delete{Key: skerry.AppKey{Namespace: "default", Name: "shop"}}); err != nil {
		t.Fatal(err)
	}
	s.await("nothing is left", s.ready(0))
	fmt.Fprintln(t.Output(), "done")
}

// commandLine logs a user in at the root and, in the context "site", at the cluster, and gives what runs commands of theirs: each has to
// work, and those of look, only if it can.
func (s *site) commandLine() (sk, look func(args ...string) string) {
	t := s.t
	t.Helper()
	program, dir := testenv.Program(t), t.TempDir()
	run := func(must bool, args ...string) string {
		t.Helper()
		if args[0] != "login" && args[0] != "--context" {
			args = append([]string{"--context", "root"}, args...)
		}
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "SKERRY_CONFIG="+filepath.Join(dir, "config.yaml"), "SKERRY_IMAGES="+filepath.Join(dir, "images"))
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil && must {
			s.dump()
			t.Fatalf("skerry %s: %v\n%s%s", strings.Join(args, " "), err, out, said.String())
		}
		return string(out)
	}
	site, _ := s.serve("cluster", s.Cluster, s.Cluster.Store)
	root, _ := s.serve("root", s.Root, s.Root.Store)
	for _, x := range []struct{ name, role, url string }{{"site", "cluster", site.URL()}, {"root", "root", root.URL()}} {
		run(true, "login", "--context", x.name, "--trust", "-u", "admin", "--password-file",
			filepath.Join(s.dir, x.role, parents.AdminPasswordFile), x.url)
	}
	return func(args ...string) string { t.Helper(); return run(true, args...) }, func(args ...string) string { return run(false, args...) }
}
