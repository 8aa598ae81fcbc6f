package device

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/cable"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// place is where programs run.
type place interface {
	told() report.Place
	// run runs a program of the root file system to its end.
	run(ctx context.Context, j job) (outcome, error)
	// hold starts one that goes on until it is released.
	hold(ctx context.Context, j job) (release func() error, err error)
}

// job is one run of a program.
type job struct {
	tool   *tool
	name   string   // of the tool, below /bin of the root file system
	args   []string // dirHere stands for the directory of files
	memory int64    // limit in bytes; 0: none
	mount  bool     // the directory of files is the host's
	room   int64    // memory where a task has some of its own, in bytes; 0: as others
	copies int      // how many run at once; 0: one
	// wired and plain: see Case. station is where the cable leads.
	wired, plain bool
	station      *station
}

// dirHere is replaced by the directory of files in arguments.
const dirHere = "@dir@"

func (j *job) argsFor(root, dir string) []string {
	out, here := make([]string, len(j.args)), strings.NewReplacer(rootHere, root, dirHere, dir)
	for i, a := range j.args {
		out[i] = here.Replace(a)
	}
	return out
}

// outcome is how a run went.
type outcome struct {
	out    []byte
	code   int
	killed bool          // for its memory
	first  time.Duration // from the call to the first line
}

// errCannot marks what a place cannot do: it is not tried again.
var errCannot = errors.New("it cannot do that")

// process is a place of plain processes: on the machine itself, or in namespaces and cgroups made by hand.
type process struct {
	name, text string
	root       string // of the tools
	dir        string // for files
	flags      uintptr
	groups     func(memory int64) (*group, error) // nil: none
}

func (p *process) told() report.Place { return report.Place{Name: p.name, Text: p.text} }

func (p *process) run(ctx context.Context, j job) (o outcome, err error) {
	space := &cable.Space{}
	if j.wired {
		var w *lead
		if w, err = j.station.lay(p.flags == 0, j.plain); err != nil {
			return o, err
		}
		defer func() { err = errors.Join(err, w.cut()) }()
		j.args, space = w.argsFor(j.args), w.space
	}
	args := append([]string{j.tool.path}, j.argsFor(p.root, p.dir)...)
	var g *group
	if p.groups != nil {
		if g, err = p.groups(j.memory); err != nil {
			return o, err
		}
		defer func() { err = errors.Join(err, g.remove()) }()
		args = append([]string{"/bin/sh", "-c", g.enter()}, args...)
	} else if j.memory > 0 {
		return o, fmt.Errorf("%w: nothing limits its memory", errCannot)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = p.dir
	cmd.Env = environment
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: p.flags, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var errs bytes.Buffer
	cmd.Stderr = &errs
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return o, err
	}
	began := time.Now()
	if err := space.Do(cmd.Start); err != nil {
		return o, err
	}
	in := bufio.NewReader(stdout)
	line, err := in.ReadBytes('\n')
	o.first = time.Since(began)
	rest, rerr := io.ReadAll(io.LimitReader(in, maxOutput))
	werr := cmd.Wait()
	if err != io.EOF && err != nil {
		return o, err
	}
	if rerr != nil {
		return o, rerr
	}
	o.out = append(append(line, rest...), errs.Bytes()...)
	var exit *exec.ExitError
	if errors.As(werr, &exit) {
		status := exit.Sys().(syscall.WaitStatus)
		o.code = status.ExitStatus()
		if status.Signaled() {
			o.code = 128 + int(status.Signal())
		}
		o.killed = g != nil && o.code == 128+int(syscall.SIGKILL)
		werr = nil
	}
	return o, errors.Join(werr, ctx.Err())
}

const maxOutput = 4 << 20

// environment is that of every program.
var environment = []string{"PATH=/bin:/usr/bin:/sbin:/usr/sbin", "HOME=/tmp", "LC_ALL=C", "TMPDIR=/tmp"}

// group is a cgroup made by hand, of version 2 or one for each controller of version 1.
type group struct{ dirs []string }

const cgroups = "/sys/fs/cgroup"

// newGroup makes a cgroup with limits: of memory, and of processes.
func newGroup(name string, memory int64) (*group, error) {
	g := &group{}
	limits := map[string]string{"memory.max": "", "pids.max": "4096"}
	if memory > 0 {
		limits["memory.max"] = strconv.FormatInt(memory, 10)
	}
	if _, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
		if err := os.WriteFile(filepath.Join(cgroups, "cgroup.subtree_control"), []byte("+memory +pids"), 0o644); err != nil {
			return nil, fmt.Errorf("%w: controllers cannot be handed down: %w", errCannot, err)
		}
		g.dirs = []string{filepath.Join(cgroups, name)}
	} else {
		limits["memory.limit_in_bytes"] = limits["memory.max"]
		delete(limits, "memory.max")
		for _, c := range []string{"memory", "pids", "cpu"} {
			g.dirs = append(g.dirs, filepath.Join(cgroups, c, name))
		}
	}
	for _, d := range g.dirs {
		if err := os.Mkdir(d, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, errors.Join(fmt.Errorf("%w: no cgroup: %w", errCannot, err), g.remove())
		}
		for file, value := range limits {
			if _, err := os.Stat(filepath.Join(d, file)); err != nil || value == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(d, file), []byte(value), 0o644); err != nil {
				return nil, errors.Join(fmt.Errorf("%w: no limit: %w", errCannot, err), g.remove())
			}
		}
	}
	return g, nil
}

// enter is a script that joins the cgroup and becomes the program.
func (g *group) enter() string {
	var b strings.Builder
	for _, d := range g.dirs {
		fmt.Fprintf(&b, "echo 0 > %s/cgroup.procs && ", d)
	}
	return b.String() + `exec "$0" "$@"`
}

func (g *group) remove() (err error) {
	for _, d := range g.dirs {
		var e error
		for range 100 { // what was killed takes a moment
			if e = os.Remove(d); e == nil || errors.Is(e, os.ErrNotExist) {
				e = nil
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		err = errors.Join(err, e)
	}
	return err
}

// driven is a place of a runtime's tasks.
type driven struct {
	d       runtime.Driver
	text    string
	root    string // of the tools
	host    string // directory of files on the host
	memory  skerry.Bytes
	cores   int
	hosts   bool // its tasks see the host's files
	seccomp runtime.Seccomp
	modules bool // it runs WebAssembly
	name    string
	n       atomic.Uint64
	held    *runtime.Handle // what was held last; nil: nothing yet
}

func (p *driven) told() report.Place { return report.Place{Name: p.name, Text: p.text} }

// spec is the task of a job.
func (p *driven) spec(j job) runtime.Spec {
	id := p.next()
	spec := runtime.Spec{ID: runtime.TaskID(id + ".main.1"), Instance: skerry.InstanceID(id), Container: spec.MainContainer,
		Env: environment, Dir: "/tmp", Seccomp: p.seccomp,
		Resources: runtime.Resources{Memory: p.memory, CPU: skerry.MilliCPU(1000 * p.cores), Pids: 4096}}
	if j.memory > 0 {
		spec.Resources.Memory = skerry.Bytes(j.memory)
	}
	dir := "/tmp"
	if j.room > 0 {
		spec.Resources.Memory = skerry.Bytes(j.room)
	}
	root := ""
	if p.hosts {
		root = p.root
		spec.RootFS = []runtime.Mount{{Type: "bind", Source: p.root}}
		spec.Args, dir, spec.Dir = []string{filepath.Join(p.root, "bin", j.name)}, p.host, p.host
	} else {
		spec.RootFS = []runtime.Mount{runtime.Overlay(p.root)}
		spec.Args = []string{"/bin/" + j.name}
		if p.modules {
			spec.Args[0] += ".wasm"
		}
		if j.mount {
			spec.Mounts, dir = []runtime.Mount{{Type: "bind", Source: p.host, Target: "/data"}}, "/data"
		}
	}
	spec.Args = append(spec.Args, j.argsFor(root, dir)...)
	return spec
}

// can says why a place does not run a program.
func (p *driven) can(j job) error {
	switch {
	case !p.modules:
		return nil
	case !modular(j.name, j.args):
		return fmt.Errorf("%w: WebAssembly has no processes, threads or connections to others, and Debian's programs are no modules", errCannot)
	case j.tool.noModule != nil:
		return fmt.Errorf("%w: %w", errCannot, j.tool.noModule)
	}
	return nil
}

func (p *driven) run(ctx context.Context, j job) (o outcome, err error) {
	if err := p.can(j); err != nil {
		return o, err
	}
	var w *lead
	if j.wired {
		if w, err = j.station.lay(false, j.plain); err != nil {
			return o, err
		}
		defer func() { err = errors.Join(err, w.cut()) }()
		j.args = w.argsFor(j.args)
	}
	spec := p.spec(j)
	if w != nil {
		spec.Network = w.attachment()
	}
	began := time.Now()
	handle, err := p.d.Start(ctx, spec)
	if err != nil {
		if _, ok := errors.AsType[*runtime.Unsupported](err); ok {
			err = fmt.Errorf("%w: %w", errCannot, err)
		}
		return o, err
	}
	defer func() { err = errors.Join(err, p.d.Remove(context.WithoutCancel(ctx), handle)) }()
	exit, err := p.d.Wait(ctx, handle)
	if err != nil {
		return o, err
	}
	o.code, o.killed = exit.Code, exit.OOMKilled
	log, ok := p.d.(runtime.Logger)
	if !ok {
		return o, fmt.Errorf("%w: it keeps no output", errCannot)
	}
	lines, err := log.OpenLog(ctx, handle, runtime.LogOptions{})
	if err != nil {
		return o, err
	}
	defer lines.Close()
	for len(o.out) < maxOutput {
		l, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return o, err
		}
		if o.first == 0 {
			o.first = l.Time.Sub(began)
		}
		o.out = append(append(o.out, l.Line...), '\n')
	}
	return o, nil
}
