//go:build linux

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/oci"
)

var kills = flag.Int("kills", 200, "how often TestKillAnyRole kills a role")

// role is a role's process, started again over the same directory after each kill.
type role struct {
	name string
	args []string
	cmd  *exec.Cmd
}

func (r *role) start(t *testing.T, program string, log *os.File) {
	t.Helper()
	r.cmd = exec.Command(program, r.args...)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func (r *role) kill() {
	r.cmd.Process.Signal(syscall.SIGKILL)
	r.cmd.Wait()
}

// TestKillAnyRole kills root, cluster and worker at random moments while users write. After each restart the state must
// be the last one acknowledged, and no workload may be restarted.
func TestKillAnyRole(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	program := filepath.Join(dir, "skerry")
	build := exec.Command("go", "build", "-o", program, "skerry.dev/skerry/cmd/skerry")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	data := func(name string) string { return filepath.Join(dir, name) }
	roles := startRoles(t, program, dir, log)
	t.Cleanup(func() {
		for _, r := range roles {
			r.kill()
		}
		out, err := exec.Command(program, "worker", "cleanup", "--yes", "--data", data("worker")).CombinedOutput()
		if err != nil {
			t.Errorf("clean up: %v\n%s", err, out)
		}
		if t.Failed() {
			if text, err := os.ReadFile(log.Name()); err == nil {
				t.Logf("log: %s", text[max(0, len(text)-4000):])
			}
		}
	})
	root := login(t, "https://127.0.0.1:7480", data("root"))
	pushProgram(t, root, dir, "test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	await(t, "the site works", func() bool {
		list, err := root.Clusters(ctx)
		return err == nil && len(list) == 1 && len(list[0].Report.Classes) == 1
	})
	if _, err := root.Apply(ctx, []byte(manifestOf("stable", 3)), api.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "three instances are ready", func() bool { return readyOf(ctx, root, "stable") == 3 })
	before := containerPIDs(t, data("worker"))

	// Writers register applications; what was acknowledged must be there in the end.
	var mu sync.Mutex
	acked := map[string]skerry.Generation{}
	wctx, stopWriting := context.WithCancel(ctx)
	var writers sync.WaitGroup
	for w := range 3 {
		writers.Go(func() {
			for i := 0; wctx.Err() == nil; i++ {
				name := fmt.Sprintf("w%d-%d", w, i%20)
				text := strings.Replace(manifestOf(name, 1), `"env":{}`, fmt.Sprintf(`"env":{"ROUND":"%d"}`, i), 1)
				actx, cancel := context.WithTimeout(wctx, 2*time.Second)
				res, err := root.Apply(actx, []byte(text), api.ApplyOptions{Register: true})
				cancel()
				if err == nil {
					mu.Lock()
					acked[name] = max(acked[name], res.Gen)
					mu.Unlock()
				} else {
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, uint64(*kills)))
	for range *kills {
		r := roles[rng.IntN(len(roles))]
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		r.kill()
		r.start(t, program, log)
	}
	stopWriting()
	writers.Wait()

	await(t, "three instances are ready again", func() bool { return readyOf(ctx, root, "stable") == 3 })
	await(t, "the worker tells no restarts", func() bool {
		list, err := root.Instances(ctx, api.InstanceFilter{App: "stable"})
		for _, i := range list {
			if i.Restarts != 0 || i.Stopping {
				return false
			}
		}
		return err == nil && len(list) == 3
	})
	after := containerPIDs(t, data("worker"))
	for id, pid := range before {
		if after[id] != pid {
			t.Errorf("%s was restarted or moved: process %d, now %d", id, pid, after[id])
		}
	}
	list, err := root.Apps(ctx, "default")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]skerry.Generation{}
	for _, a := range list {
		have[a.Key.Name] = a.Gen
	}
	lost := 0
	for name, gen := range acked {
		if have[name] < gen {
			t.Errorf("%s is at generation %d, %d was acknowledged", name, have[name], gen)
			lost++
		}
	}
	t.Logf("%d kills, %d applications, %d lost", *kills, len(acked), lost)
	if len(acked) < 20 {
		t.Errorf("only %d applications were acknowledged; the writers hardly wrote", len(acked))
	}
}

// startRoles starts a root, a cluster that joins it and a worker that joins that, each a process.
func startRoles(t *testing.T, program, dir string, log *os.File) []*role {
	t.Helper()
	data := func(name string) string { return filepath.Join(dir, name) }
	root := &role{name: "root", args: []string{"root", "--data", data("root"), "--link", "127.0.0.1:7443", "--api", "127.0.0.1:7480"}}
	root.start(t, program, log)
	t1 := joinToken(t, "https://127.0.0.1:7480", data("root"), skerry.TierCluster)
	admission := filepath.Join(dir, "admission.yaml")
	if err := os.WriteFile(admission, []byte("trusted: [default]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cluster := &role{name: "cluster", args: []string{"cluster", "--name", "harbour", "--data", data("cluster"), "--root", "127.0.0.1:7443", "--join", t1, "--link", "127.0.0.1:7444", "--api", "127.0.0.1:7481", "--admission", admission, "--lost-after", "1m"}}
	cluster.start(t, program, log)
	t2 := joinToken(t, "https://127.0.0.1:7481", data("cluster"), skerry.TierWorker)
	worker := &role{name: "worker", args: []string{"worker", "--name", "w1", "--data", data("worker"), "--cluster", "127.0.0.1:7444", "--join", t2, "--run-dir", data("run"),
		"--cgroup-parent", cgroupParent(filepath.Dir(dir)), "--address", "127.0.0.1", "--http", ""}}
	worker.start(t, program, log)
	return []*role{root, cluster, worker}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// login logs in as the first admin, whose password is in the role's data directory.
func login(t *testing.T, server, dir string) *api.Client {
	t.Helper()
	var c *api.Client
	await(t, server+" answers", func() bool {
		password, err := os.ReadFile(filepath.Join(dir, node.AdminPasswordFile))
		if err != nil {
			return false
		}
		pin, err := api.FetchPin(t.Context(), server)
		if err != nil {
			return false
		}
		if c, err = api.NewClient(api.ClientOptions{Server: server, Pin: pin}); err != nil {
			t.Fatal(err)
		}
		_, err = c.Login(t.Context(), "admin", strings.TrimSpace(string(password)))
		return err == nil
	})
	return c
}

func joinToken(t *testing.T, server, dir string, tier skerry.Tier) string {
	t.Helper()
	c := login(t, server, dir)
	defer c.Close()
	tok, err := c.CreateJoinToken(t.Context(), api.JoinTokenRequest{Role: tier})
	if err != nil {
		t.Fatal(err)
	}
	return tok.Text
}

// pushProgram builds a program and pushes it as an image to the built-in registry.
func pushProgram(t *testing.T, c *api.Client, dir, tag, pkg string) {
	t.Helper()
	bin := filepath.Join(dir, "program")
	cmd := exec.Command("go", "build", "-trimpath", "-o", bin, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	st, err := artifact.Open(filepath.Join(dir, "push"), artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Build(t.Context(), artifact.BuildOptions{Source: bin, Tag: "skerry.local/" + tag}); err != nil {
		t.Fatal(err)
	}
	src := &artifact.Source{BaseURL: c.Server(), Transport: c.Transport()}
	if _, err := st.Push(t.Context(), "skerry.local/"+tag, "skerry.local/"+tag, src, nil); err != nil {
		t.Fatal(err)
	}
}

func manifestOf(name string, replicas int) string {
	return fmt.Sprintf(`{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":%q},"spec":{"services":[{"name":"web","image":"test/catalog:1","replicas":%d,"env":{},
"resources":{"cpu":0.05,"memory":"32Mi"}}]}}`, name, replicas)
}

func readyOf(ctx context.Context, c *api.Client, app string) int {
	v, err := c.App(ctx, skerry.AppKey{Namespace: "default", Name: app})
	if err != nil {
		return -1
	}
	return v.Services[0].Ready
}

// containerPIDs reads the first processes of a worker's containers from its driver's state.
func containerPIDs(t *testing.T, dir string) map[skerry.InstanceID]int {
	t.Helper()
	d, err := oci.New(oci.Options{Dir: filepath.Join(dir, "oci")})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	list, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[skerry.InstanceID]int{}
	for _, h := range list {
		if st, err := d.Status(t.Context(), h); err == nil && st.State == runtime.StateRunning {
			out[h.Instance] = h.PID
		}
	}
	return out
}
