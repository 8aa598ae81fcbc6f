package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cilium/ebpf"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/cluster"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/root"
	"skerry.dev/skerry/wire"
)

// Addresses in the benchmark's own namespaces.
const (
	rootAPI    = "127.0.0.1:7480"
	clusterAPI = "127.0.0.1:7481"
	workerLink = ":7444"
)

// controlReady is what the control process tells when its roles work.
type controlReady struct {
	RootPassword, ClusterPassword string
	Tokens                        []string // for workers
}

// control runs a root and a cluster in one process, as `skerry up` does without its worker, until ctx ends. It tells out
// when they work.
func control(ctx context.Context, dir string, workers int, profile clustercore.Profile, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	errs := make(chan error, 8)
	run := func(fn func(context.Context) error) {
		wg.Go(func() { errs <- fn(ctx) })
	}
	rootDir, clusterDir := filepath.Join(dir, "root"), filepath.Join(dir, "cluster")
	r, err := parents.OpenRoot(ctx, parents.RootConfig{Common: node.Common{Dir: rootDir}, Server: root.ServerOptions{Link: "127.0.0.1:7443"}})
	if err != nil {
		return err
	}
	defer r.Close()
	defer wg.Wait()
	defer cancel()
	run(r.Run)
	serving := make(chan struct{}, 2)
	run(func(ctx context.Context) error {
		return parents.ServeAPI(ctx, r, r.Store, parents.APIConfig{Dir: rootDir, Listen: api.Listen{Addr: rootAPI}},
			func(*parents.API) { serving <- struct{}{} })
	})
	for r.LinkAddr() == nil {
		select {
		case err := <-errs:
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
	token, _, err := r.Authority().CreateToken(ctx, auth.TokenOptions{Tier: wire.TierCluster})
	if err != nil {
		return err
	}
	k, err := parents.OpenCluster(ctx, parents.ClusterConfig{Common: node.Common{Dir: clusterDir},
		Server: cluster.ServerOptions{Link: workerLink, Profile: profile,
			Options: clustercore.Options{Admission: clustercore.Admission{Trusted: []string{parents.DefaultOrg}}}},
		Join: node.Join{Name: "bench", Token: token, Parent: []string{r.LinkAddr().String()}}})
	if err != nil {
		return err
	}
	defer k.Close()
	defer wg.Wait()
	defer cancel()
	run(k.Run)
	run(func(ctx context.Context) error {
		return parents.ServeAPI(ctx, k, k.Store, parents.APIConfig{Dir: clusterDir, Listen: api.Listen{Addr: clusterAPI}},
			func(*parents.API) { serving <- struct{}{} })
	})
	for range 2 {
		select {
		case <-serving:
		case err := <-errs:
			return err
		}
	}
	var ready controlReady
	for _, x := range []struct {
		dir string
		to  *string
	}{{rootDir, &ready.RootPassword}, {clusterDir, &ready.ClusterPassword}} {
		data, err := os.ReadFile(filepath.Join(x.dir, parents.AdminPasswordFile))
		if err != nil {
			return err
		}
		*x.to = strings.TrimSpace(string(data))
	}
	for range workers {
		token, _, err := k.Authority().CreateToken(ctx, auth.TokenOptions{Tier: wire.TierWorker})
		if err != nil {
			return err
		}
		ready.Tokens = append(ready.Tokens, token)
	}
	if err := json.NewEncoder(out).Encode(ready); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-errs:
		return err
	}
}

// benchWorker is a worker's agent in a namespace of its own.
type benchWorker struct {
	name, dir, token, link string
	cable                  string // the control process's end of it
	ns                     *namespace
	cmd                    *exec.Cmd
}

// processes are the worker's but for the shims of instances: the agent and, if it takes part in the overlay, the datapath.
func (w *benchWorker) processes() []int {
	out := []int{w.cmd.Process.Pid}
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range list {
		args, err := os.ReadFile(p)
		if err != nil || !bytes.Contains(args, []byte("\x00"+node.DatapathCommand+"\x00")) || !bytes.Contains(args, []byte("\x00"+w.dir+"/")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p))); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// tables is the kernel memory of the worker's pinned BPF maps, in bytes.
func (w *benchWorker) tables() (sum int64) {
	list, _ := filepath.Glob("/sys/fs/bpf/skerry/" + w.name + "-sk*/v*/*")
	for _, p := range list {
		m, err := ebpf.LoadPinnedMap(p, &ebpf.LoadPinOptions{ReadOnly: true})
		if err != nil {
			continue // a directory, or a link
		}
		if info, err := m.Info(); err == nil {
			if n, ok := info.Memlock(); ok {
				sum += int64(n)
			}
		}
		m.Close()
	}
	return sum
}

// site is a running control process with workers.
type site struct {
	workspace
	program string
	ns      *namespace
	control *exec.Cmd
	workers []*benchWorker
	root    *api.Client
	cluster *api.Client
}

// newSite starts a root and cluster in one process, and workers, each in a network namespace of its own.
func newSite(ctx context.Context, program string, workers int, profile string) (s *site, err error) {
	s = &site{program: program}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.tail(), s.close())
		}
	}()
	if err = s.workspace.open(); err != nil {
		return s, err
	}
	if s.ns, err = newNamespace("control"); err != nil {
		return s, err
	}
	s.control = exec.Command(program, "bench", "control", "--data", s.dir, "--workers", fmt.Sprint(workers), "--profile", profile)
	s.control.Stderr = s.log
	s.control.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := s.control.StdoutPipe()
	if err != nil {
		return s, err
	}
	if err = s.ns.start(s.control); err != nil {
		return s, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return s, fmt.Errorf("control process: %w", err)
	}
	var ready controlReady
	if err = json.Unmarshal(line, &ready); err != nil {
		return s, err
	}
	if s.root, err = s.login(ctx, rootAPI, ready.RootPassword); err != nil {
		return s, err
	}
	if s.cluster, err = s.login(ctx, clusterAPI, ready.ClusterPassword); err != nil {
		return s, err
	}
	for i := range workers {
		// Pins of BPF are the machine's, so the name must be one that no other worker has.
		w := &benchWorker{name: fmt.Sprintf("%s-w%d", filepath.Base(s.dir), i+1), cable: fmt.Sprintf("sk%d", i+1),
			dir: filepath.Join(s.dir, fmt.Sprintf("w%d", i+1)), token: ready.Tokens[i], link: fmt.Sprintf("10.200.%d.1%s", i+1, workerLink)}
		if w.ns, err = newNamespace(w.name); err != nil {
			return s, err
		}
		s.workers = append(s.workers, w)
		if err = s.ns.join(w.ns, w.cable, fmt.Sprintf("10.200.%d.1/30", i+1), fmt.Sprintf("10.200.%d.2/30", i+1)); err != nil {
			return s, err
		}
		if err = s.startWorker(w); err != nil {
			return s, err
		}
	}
	return s, s.await(ctx, "the workers are connected", func() (bool, error) {
		list, err := s.cluster.Workers(ctx)
		n := 0
		for _, w := range list {
			if w.Connected && w.Refusing == "" {
				n++
			}
		}
		return n == workers, err
	})
}

func (s *site) login(ctx context.Context, addr, password string) (*api.Client, error) {
	opt := api.ClientOptions{Server: "https://" + addr, Dial: s.ns.dial}
	err := s.ns.do(func() (err error) {
		opt.Pin, err = api.FetchPin(ctx, opt.Server)
		return err
	})
	if err != nil {
		return nil, err
	}
	c, err := api.NewClient(opt)
	if err != nil {
		return nil, err
	}
	_, err = c.Login(ctx, "admin", password)
	return c, err
}

// startWorker starts a worker's agent, for the first time or again.
func (s *site) startWorker(w *benchWorker) error {
	w.cmd = exec.Command(s.program, "worker", "--name", w.name, "--data", w.dir, "--join", w.token, "--cluster", w.link, "--run-dir",
		filepath.Join(w.dir, "run"), "--cgroup-parent", s.cgroup(w), "--cpu", "64", "--memory", "64Gi", "--log-level", "warn")
	w.cmd.Stderr = s.log
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return w.ns.start(w.cmd)
}

func (s *site) cgroup(w *benchWorker) string { return w.name }

// await polls every 20 ms, for at most a minute.
func (s *site) await(ctx context.Context, what string, ok func() (bool, error)) error {
	return await(ctx, time.Minute, func(time.Duration) time.Duration { return 20 * time.Millisecond }, what, ok)
}

// image puts a static program into the built-in registry.
func (s *site) image(ctx context.Context, program, tag string) error {
	return s.pushed(ctx, artifact.BuildOptions{Source: program}, tag, rootAPI, s.root)
}

// close ends everything and leaves nothing behind.
func (s *site) close() error {
	var errs []error
	for _, w := range s.workers {
		stop(w.cmd, syscall.SIGTERM)
		if w.cmd != nil {
			cmd := exec.Command(s.program, "worker", "cleanup", "--yes", "--name", w.name, "--data", w.dir, "--run-dir",
				filepath.Join(w.dir, "run"), "--cgroup-parent", s.cgroup(w))
			cmd.Stdout, cmd.Stderr = s.log, s.log
			if err := w.ns.start(cmd); err == nil {
				err = cmd.Wait()
				if err != nil {
					errs = append(errs, fmt.Errorf("clean up worker %s: %w", w.name, err))
				}
			}
		}
		w.ns.close()
	}
	stop(s.control, syscall.SIGTERM)
	if s.ns != nil {
		s.ns.close()
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	if s.dir != "" && errors.Join(errs...) == nil {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// stop ends a process and waits for it; one that does not end within ten seconds is killed.
func stop(cmd *exec.Cmd, sig syscall.Signal) {
	if cmd == nil || cmd.Process == nil || cmd.ProcessState != nil {
		return
	}
	cmd.Process.Signal(sig)
	t := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
	defer t.Stop()
	cmd.Wait()
}
