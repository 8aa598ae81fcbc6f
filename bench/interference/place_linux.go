package interference

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// Programs, below /bin of the root file system.
const (
	servicesProgram = "services"
	neighbour       = "neighbour"
	module          = ".wasm" // ends the name of a program that is one
)

// place is where services and neighbours run.
type place interface {
	told() report.Place
	machine() bool               // it has a processor of its own, or one that is emulated
	lacks(service string) string // why it cannot run a service, or ""
	// start starts a program. A service gets an address; $ADDR in args stands for where it is to listen.
	start(ctx context.Context, l limits, service bool, args ...string) (task, error)
}

// task is a program that runs.
type task interface {
	addr() string
	stats(context.Context) (runtime.Stats, error)
	// alive gives why it has ended, or nil.
	alive(context.Context) error
	stop(context.Context) error
}

const listenHere = "$ADDR"

// port is where services listen whose network is their own.
const port = 8080

func fill(args []string, addr string) []string {
	out := append([]string(nil), args...)
	for i, a := range out {
		if a == listenHere {
			out[i] = addr
		}
	}
	return out
}

// freeAddr gives an address of the machine's own that nobody listens at.
func freeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

func environment(tmp string) []string { return []string{"PATH=/bin", "HOME=/tmp", "TMPDIR=" + tmp} }

// process is the place of bare processes.
type process struct {
	root, files string
	n           atomic.Uint64
}

func (p *process) told() report.Place  { return report.Place{Name: Bare, Text: "a process in a cgroup"} }
func (p *process) machine() bool       { return false }
func (p *process) lacks(string) string { return "" }

func (p *process) start(_ context.Context, l limits, service bool, args ...string) (_ task, err error) {
	r := &running{}
	if service {
		if r.at, err = freeAddr(); err != nil {
			return nil, err
		}
	}
	if r.group, err = newCgroup(fmt.Sprintf("skerry-bench-%d-i%d", os.Getpid(), p.n.Add(1)), l); err != nil {
		return nil, err
	}
	args = fill(args, r.at)
	r.cmd = exec.Command("/bin/sh", append([]string{"-c", r.group.enter(), filepath.Join(p.root, "bin", args[0])}, args[1:]...)...)
	r.cmd.Env, r.cmd.Dir, r.cmd.Stderr = environment(p.files), p.files, &r.errs
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		return nil, errors.Join(err, r.group.remove())
	}
	r.ended = make(chan struct{})
	go func() {
		_ = r.cmd.Wait() // alive tells what it left
		close(r.ended)
	}()
	return r, nil
}

type running struct {
	cmd   *exec.Cmd
	group *cgroup
	at    string
	errs  bytes.Buffer // complete once ended is closed
	ended chan struct{}
}

func (r *running) addr() string                                 { return r.at }
func (r *running) stats(context.Context) (runtime.Stats, error) { return r.group.stats() }
func (r *running) alive(context.Context) error {
	select {
	case <-r.ended:
		return fmt.Errorf("it ended (%v): %s", r.cmd.ProcessState, r.errs.String())
	default:
		return nil
	}
}

func (r *running) stop(context.Context) error {
	err := r.group.remove()
	<-r.ended
	return err
}

// driven is a place of a runtime's tasks.
type driven struct {
	d     runtime.Driver
	text  string
	root  string // of the programs
	files string // on the host
	dir   string // for network namespaces
	n     atomic.Uint64
}

func (p *driven) told() report.Place { return report.Place{Name: p.d.Name(), Text: p.text} }
func (p *driven) machine() bool      { return p.d.Name() == spec.RuntimeMicroVM }

func (p *driven) lacks(service string) string {
	switch {
	case p.d.Name() != spec.RuntimeWasm:
	case service == Database:
		return "the library of the database is not made for WebAssembly"
	case service == MQTT:
		return "a WebAssembly module has no connections to others, and the subscriber needs one to the broker"
	}
	return ""
}

func (p *driven) start(ctx context.Context, l limits, service bool, args ...string) (_ task, err error) {
	id := fmt.Sprintf("bench-%d-%s-%d", os.Getpid(), p.d.Name(), p.n.Add(1))
	task := runtime.Spec{ID: runtime.TaskID(id + ".main.1"), Instance: skerry.InstanceID(id), Container: spec.MainContainer,
		Resources: runtime.Resources{CPU: skerry.MilliCPU(1000 * l.cpu), Memory: skerry.Bytes(l.memory), Pids: 4096, CPUSet: l.cpus}}
	t := &driventask{d: p.d}
	if p.d.Name() == spec.RuntimeNative { // it sees the files and the network of the host
		task.RootFS = []runtime.Mount{{Type: "bind", Source: p.root}}
		task.Env, task.Dir = environment(p.files), p.files
		if service {
			if t.at, err = freeAddr(); err != nil {
				return nil, err
			}
		}
		task.Args = fill(args, t.at)
		task.Args[0] = filepath.Join(p.root, "bin", args[0])
	} else {
		task.RootFS = []runtime.Mount{runtime.Overlay(p.root)}
		task.Env, task.Dir = environment("/tmp"), "/tmp"
		if service {
			if t.line, err = newLine(filepath.Join(p.dir, id+".net")); err != nil {
				return nil, err
			}
			task.Network, t.at = t.line.attachment, net.JoinHostPort(t.line.inside.String(), strconv.Itoa(port))
		}
		modules := p.d.Name() == spec.RuntimeWasm
		// In a container's own file system a flush does nothing, and that of a module is read only.
		if service && (modules || slices.Contains(args, Database)) {
			task.Mounts, task.Env = []runtime.Mount{{Type: "bind", Source: p.files, Target: "/data"}}, environment("/data")
		}
		task.Args = fill(args, ":"+strconv.Itoa(port))
		task.Args[0] = "/bin/" + args[0]
		if modules {
			task.Args[0] += module
			if service {
				task.Listen = []uint16{port}
			}
		}
	}
	if t.h, err = p.d.Start(ctx, task); err != nil {
		if t.line != nil {
			err = errors.Join(err, t.line.close())
		}
		return nil, err
	}
	return t, nil
}

type driventask struct {
	d    runtime.Driver
	h    runtime.Handle
	at   string
	line *line
}

func (t *driventask) addr() string { return t.at }

func (t *driventask) stats(ctx context.Context) (runtime.Stats, error) {
	if s, ok := t.d.(runtime.Statser); ok {
		return s.Stats(ctx, t.h)
	}
	return runtime.Stats{}, errors.New("the runtime does not count")
}

func (t *driventask) alive(ctx context.Context) error {
	s, err := t.d.Status(ctx, t.h)
	if err == nil && s.Exit != nil {
		err = fmt.Errorf("it ended with status %d: %s", s.Exit.Code, t.said(ctx))
	}
	return err
}

// said is the last line that it printed.
func (t *driventask) said(ctx context.Context) (line string) {
	l, ok := t.d.(runtime.Logger)
	if !ok {
		return ""
	}
	log, err := l.OpenLog(ctx, t.h, runtime.LogOptions{Tail: 1})
	if err != nil {
		return ""
	}
	defer log.Close()
	if e, err := log.Next(); err == nil {
		line = string(e.Line)
	}
	return line
}

func (t *driventask) stop(ctx context.Context) error {
	err := t.d.Remove(ctx, t.h)
	if t.line != nil {
		err = errors.Join(err, t.line.close())
	}
	return err
}
