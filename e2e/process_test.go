//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/wire"
)

// role is a role's process, started again over the same directory after each kill.
type role struct {
	name string
	// before is a command that executes the program, with the arguments that follow.
	before, args []string
	cmd          *exec.Cmd

	mu   sync.Mutex
	over bool           // it was killed, and is not kept any more
	kept sync.WaitGroup // what keeps it
}

func (r *role) start(t *testing.T, program string, log *os.File) {
	t.Helper()
	if err := r.begin(program, log); err != nil {
		t.Fatal(err)
	}
}

func (r *role) begin(program string, log *os.File) error {
	argv := slices.Concat(r.before, []string{program}, r.args)
	r.cmd = exec.Command(argv[0], argv[1:]...)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return r.cmd.Start()
}

// keep starts the role, and again whenever it ends by itself, as its unit does, until it is killed.
func (r *role) keep(t *testing.T, program string, log *os.File) {
	t.Helper()
	r.over = false
	r.start(t, program, log)
	r.kept.Go(func() {
		for {
			r.cmd.Wait()
			r.mu.Lock()
			if r.over {
				r.mu.Unlock()
				return
			}
			fmt.Fprintf(log, "%s ended by itself and is started again\n", r.name)
			err := r.begin(program, log)
			r.mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// kill ends a role that was started or is kept.
func (r *role) kill() {
	r.mu.Lock()
	r.over = true
	r.cmd.Process.Signal(syscall.SIGKILL)
	r.mu.Unlock()
	r.kept.Wait()
	r.cmd.Wait()
}

// processes are roles of one test, each a process of the same program with its data in a folder of its own.
type processes struct {
	t            *testing.T
	dir, program string
	log          *os.File
	all          []*role
	// small is the program of the worker of threeRoles, if it is another one: the agent alone.
	small string
	// before and more are of the root and the cluster of threeRoles: see role, and more arguments.
	before, more []string
}

// newProcesses has Skerry's own program; see processesOf.
func newProcesses(t *testing.T, workers ...string) *processes {
	t.Helper()
	dir := t.TempDir()
	return processesOf(t, dir, testenv.Program(t), workers...)
}

// processesOf ends what was started when the test ends, and removes what the workers have left, whose folders it names.
func processesOf(t *testing.T, dir, program string, workers ...string) *processes {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	p := &processes{t: t, dir: dir, program: program, log: log}
	t.Cleanup(func() {
		for _, r := range p.all {
			r.kill()
		}
		for _, w := range workers {
			cleanUp(t, program, p.data(w), log)
		}
		log.Close()
	})
	return p
}

func (p *processes) data(name string) string { return filepath.Join(p.dir, name) }

// commands gives functions that run a command at a role, by its name as a context: one that may fail, and one that must not.
func (p *processes) commands() (try func(context string, args ...string) (string, error), run func(context string, args ...string) string) {
	try = func(context string, args ...string) (string, error) {
		cmd := exec.CommandContext(p.t.Context(), p.program, append(args, "--context", context)...)
		cmd.Env = append(os.Environ(), "SKERRY_CONFIG="+p.data("config"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	return try, func(context string, args ...string) string {
		p.t.Helper()
		out, err := try(context, args...)
		if err != nil {
			p.t.Fatalf("skerry %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
}

// cgroup is the parent of what a worker of this test runs.
func (p *processes) cgroup() string { return cgroupParent(filepath.Dir(p.dir)) }

// start starts a role once, keep again whenever it ends by itself.
func (p *processes) start(r *role) *role {
	p.t.Helper()
	r.start(p.t, p.program, p.log)
	p.all = append(p.all, r)
	return r
}

func (p *processes) keep(r *role) *role {
	p.t.Helper()
	r.keep(p.t, p.program, p.log)
	p.all = append(p.all, r)
	return r
}

// admission writes the policy of a site that lets the organisation of the tests do everything.
func (p *processes) admission() (path string) {
	p.t.Helper()
	path = p.data("admission.yaml")
	if err := os.WriteFile(path, []byte("trusted: [default]\n"), 0o644); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// threeRoles starts a root, a cluster that joins it and a worker that joins that.
func (p *processes) threeRoles() (root, cluster, worker *role) {
	t := p.t
	t.Helper()
	args := []string{"root", "--data", p.data("root"), "--link", "127.0.0.1:7443", "--api", "127.0.0.1:7480"}
	root = p.start(&role{name: "root", before: p.before, args: append(args, p.more...)})
	token := joinToken(t, "https://127.0.0.1:7480", p.data("root"), wire.TierCluster)
	args = []string{"cluster", "--name", "harbour", "--data", p.data("cluster"), "--root", "127.0.0.1:7443", "--join", token,
		"--link", "127.0.0.1:7444", "--api", "127.0.0.1:7481", "--admission", p.admission(), "--lost-after", "1m"}
	cluster = p.start(&role{name: "cluster", before: p.before, args: append(args, p.more...)})
	token = joinToken(t, "https://127.0.0.1:7481", p.data("cluster"), wire.TierWorker)
	worker = &role{name: "worker", args: []string{"worker", "--name", "w1", "--data", p.data("worker"),
		"--cluster", "127.0.0.1:7444", "--join", token, "--run-dir", p.data("run"),
		"--cgroup-parent", p.cgroup(), "--address", "127.0.0.1", "--http", ""}}
	p.all = append(p.all, worker)
	if p.small == "" {
		worker.start(t, p.program, p.log)
		return root, cluster, worker
	}
	worker.args = worker.args[1:] // the agent alone has that command by itself
	worker.start(t, p.small, p.log)
	return root, cluster, worker
}

// stable has the three roles run so many instances of the application of this name, as the root's first admin, whose client it gives.
func (p *processes) stable(instances int) *api.Client {
	t, ctx := p.t, p.t.Context()
	t.Helper()
	root := login(t, "https://127.0.0.1:7480", p.data("root"))
	pushProgram(t, root, p.dir, "test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	await(t, "the site works", func() bool {
		list, err := root.Clusters(ctx)
		return err == nil && len(list) == 1 && len(list[0].Report.Classes) == 1
	})
	applied(t, root, "stable", []byte(manifestOf("stable", instances)), instances)
	return root
}

// applied waits until an application is taken and has so many ready instances.
func applied(t *testing.T, c *api.Client, name string, manifest []byte, instances int) {
	t.Helper()
	await(t, name+" is taken", func() bool {
		_, err := c.Apply(t.Context(), manifest, api.ApplyOptions{})
		return err == nil
	})
	await(t, fmt.Sprintf("%s has %d ready instances", name, instances), func() bool { return readyOf(t.Context(), c, name) == instances })
}

// cleanUp removes what a worker has left, and shows the end of the roles' log if the test failed.
func cleanUp(t *testing.T, program, worker string, log *os.File) {
	t.Helper()
	if out, err := exec.Command(program, "worker", "cleanup", "--yes", "--data", worker).CombinedOutput(); err != nil {
		t.Errorf("clean up: %v\n%s", err, out)
	}
	if t.Failed() {
		if text, err := os.ReadFile(log.Name()); err == nil {
			var lines []string // without what users write again and again
			for l := range strings.Lines(string(text)) {
				if !strings.Contains(l, " msg=Updated ") && !strings.Contains(l, " msg=Created ") {
					lines = append(lines, l)
				}
			}
			t.Logf("log: %s", strings.Join(lines[max(0, len(lines)-60):], ""))
		}
	}
}

// pidsOf gives the first processes of the instances that a driver runs.
func pidsOf(t *testing.T, d runtime.Driver) map[skerry.InstanceID]int {
	t.Helper()
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
