//go:build linux

package wasm

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/experimental/sock"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

// The exit status of wasm-run is the module's own, but for these: a module that crashed is told as a process that aborted.
const (
	exitCrash  = 128 + 6
	exitBroken = 125 // it could not be begun
)

// RunMain is the hidden command
//
//	TASK                                   run the module of a task, in its cgroup and namespaces
//	spare DIR                              wait in DIR to be told of which task to run the module
//	compile OUT [--handler] CGROUP...      compile the module on standard input
//
// It returns the exit status.
func RunMain(args []string) int {
	var err error
	code := exitBroken
	switch {
	case len(args) == 1:
		code, err = run(args[0])
	case len(args) == 2 && args[0] == "spare":
		code, err = wait(args[1])
	case len(args) > 2 && args[0] == "compile":
		rest := args[2:]
		handler := rest[0] == "--handler"
		if handler {
			rest = rest[1:]
		}
		if err = compile(args[1], handler, rest); err == nil {
			return 0
		}
	default:
		err = errors.New("this command is not for people; see runtime/wasm")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// config is the same for compiling and for running: what it says decides on the code that is made.
func config(handler bool, c wazero.CompilationCache) wazero.RuntimeConfig {
	return wazero.NewRuntimeConfig().WithCompilationCache(c).WithDebugInfoEnabled(false).WithCloseOnContextDone(handler)
}

// load compiles a module, or takes its code from the cache.
func load(ctx context.Context, rt wazero.Runtime, code []byte) (m wazero.CompiledModule, err error) {
	defer func() {
		if r := recover(); r != nil {
			m, err = nil, fmt.Errorf("the compiler gave up: %v", r)
		}
	}()
	if rt.Module(wasi_snapshot_preview1.ModuleName) == nil { // a spare has it
		if err := host(ctx, rt); err != nil {
			return nil, err
		}
	}
	if m, err = rt.CompileModule(ctx, code); err != nil {
		return nil, err
	}
	for _, f := range m.ImportedFunctions() {
		if from, name, _ := f.Import(); from != wasi_snapshot_preview1.ModuleName {
			return nil, fmt.Errorf("it imports %q from %q, but only WASI preview 1 is there", name, from)
		}
	}
	if m.ExportedFunctions()["_start"] == nil {
		return nil, errors.New("it has no _start: build a command, not a library")
	}
	return m, nil
}

// host compiles what modules import, which takes longer than to load a small module.
func host(ctx context.Context, rt wazero.Runtime) error {
	_, err := wasi_snapshot_preview1.Instantiate(experimental.WithFunctionListenerFactory(ctx,
		&sockets{conns: map[uint32]conn{}, known: map[uint64]int{}}), rt)
	return err
}

// compile fills the directory out, from which nothing else can be seen.
func compile(out string, handler bool, groups []string) error {
	for _, g := range groups {
		if err := os.WriteFile(filepath.Join(g, "cgroup.procs"), []byte("0"), 0o644); err != nil { // 0: whoever writes
			return err
		}
	}
	if err := enter(out); err != nil {
		return err
	}
	code, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	cache, err := wazero.NewCompilationCacheWithDir("/")
	if err != nil {
		return err
	}
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, config(handler, cache))
	_, err = load(ctx, rt, code)
	return err
}

// engine is a module, loaded, in its sandbox.
type engine struct {
	p      *process
	rt     wazero.Runtime
	module wazero.CompiledModule
	budget *budget
	// lean says that nothing is left of what was needed before the module.
	lean bool
}

func run(task string) (int, error) {
	data, err := os.ReadFile(filepath.Join(task, processFile))
	if err != nil {
		return exitBroken, err
	}
	var p process
	if err := json.Unmarshal(data, &p); err != nil {
		return exitBroken, err
	}
	cache, err := wazero.NewCompilationCacheWithDir(p.Code)
	if err != nil {
		return exitBroken, err
	}
	ctx := context.Background()
	return begin(ctx, &engine{p: &p, rt: wazero.NewRuntimeWithConfig(ctx, config(p.Handler != nil, cache))})
}

// begin loads the module, goes into the sandbox, and runs it.
func begin(ctx context.Context, e *engine) (int, error) {
	proc := e.p
	code, err := os.ReadFile(proc.Module)
	if err != nil {
		return exitBroken, err
	}
	if proc.Own && slices.ContainsFunc(proc.Ports, func(n uint16) bool { return n < 1024 }) {
		// The module's network is its own, and it has no privileges to listen there with.
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0o644); err != nil {
			return exitBroken, err
		}
	}
	if e.module, err = load(ctx, e.rt, code); err != nil {
		return exitBroken, err
	}
	var ln net.Listener
	if proc.Handler != nil {
		if ln, err = net.Listen("tcp", fmt.Sprintf(":%d", proc.Ports[0])); err != nil {
			return exitBroken, err
		}
	}
	if e.budget, err = openBudget(proc.Memory); err != nil {
		return exitBroken, err
	}
	if large := len(code) > 1<<20; large || !e.lean { // it takes as long as all the rest of a small module's start
		code = nil
		debug.FreeOSMemory()
	}
	e.budget.begin()
	if err := enter(proc.Root); err != nil {
		return exitBroken, err
	}
	if proc.Handler != nil {
		return e.serve(ln)
	}
	if len(proc.Ports) > 0 {
		sockets := sock.NewConfig()
		for _, port := range proc.Ports {
			sockets = sockets.WithTCPListener("", int(port))
		}
		ctx = sock.WithConfig(ctx, sockets)
	}
	return e.once(ctx, e.config(proc.Env).WithStdin(os.Stdin).WithStdout(os.Stdout).WithStderr(os.Stderr))
}

// config is what the module sees in every run.
func (e *engine) config(env []string) wazero.ModuleConfig {
	c := wazero.NewModuleConfig().WithName("").WithArgs(e.p.Args...).WithSysWalltime().WithSysNanotime().WithSysNanosleep().WithRandSource(rand.Reader).
		WithFSConfig(wazero.NewFSConfig().WithDirMount("/", "/"))
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		c = c.WithEnv(name, value)
	}
	return c
}

// once runs the module from its beginning to its end, and gives its exit status.
func (e *engine) once(ctx context.Context, c wazero.ModuleConfig) (code int, err error) {
	defer func() {
		if r := recover(); r != nil {
			code, err = exitBroken, fmt.Errorf("it broke the engine: %v", r)
			if short, ok := r.(*noMemory); ok {
				err = short
			}
		}
	}()
	mod, err := e.rt.InstantiateModule(experimental.WithMemoryAllocator(ctx, e.budget), e.module, c)
	if mod != nil {
		defer mod.Close(context.WithoutCancel(ctx))
	}
	var exit *sys.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		if exit.ExitCode() > 255 {
			return 255, nil
		}
		return int(exit.ExitCode()), nil
	case bytes.Contains([]byte(err.Error()), []byte("wasm error:")):
		return exitCrash, fmt.Errorf("the module crashed: %w", err)
	}
	return exitBroken, err
}
