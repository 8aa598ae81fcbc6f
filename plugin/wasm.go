package plugin

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/wasmcode"
)

const (
	maxModule = 64 << 20
	wasmPage  = 64 << 10
	// wasmAtOnce bounds the instances of one module, and with them its memory.
	wasmAtOnce = 2
)

// wasm runs a module: compiled once, an instance of its own for each query, so that nothing stays from one to the next.
// It has no files, no sockets, and a clock and random numbers that depend on the query alone.
type wasm struct {
	name   string
	desc   *Description
	rt     wazero.Runtime
	module wazero.CompiledModule
	stderr *lines
	turns  chan struct{}
}

func newWasm(ctx context.Context, name string, d *Description, file string, cache wazero.CompilationCache, stderr *lines) (w *wasm,
	err error) {
	code, err := readModule(file)
	if err != nil {
		return nil, err
	}
	// A fault of the compiler in an odd module must not end the orchestrator.
	defer func() {
		if r := recover(); r != nil {
			w, err = nil, fmt.Errorf("the compiler gave up: %v", r)
		}
	}()
	cfg := wazero.NewRuntimeConfig().WithMemoryLimitPages(uint32(d.Memory / wasmPage)).WithCloseOnContextDone(true).WithDebugInfoEnabled(false)
	if cache != nil {
		cfg = cfg.WithCompilationCache(cache)
	}
	w = &wasm{name: name, desc: d, rt: wazero.NewRuntimeWithConfig(ctx, cfg), stderr: stderr, turns: make(chan struct{}, wasmAtOnce)}
	if err := w.load(ctx, code); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func readModule(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	code, err := io.ReadAll(io.LimitReader(f, maxModule+1))
	if err != nil {
		return nil, err
	}
	if len(code) > maxModule {
		return nil, fmt.Errorf("it has more than %s", skerry.Bytes(maxModule))
	}
	return wasmcode.FixTables(code)
}

func (w *wasm) load(ctx context.Context, code []byte) error {
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, w.rt); err != nil {
		return err
	}
	var err error
	if w.module, err = w.rt.CompileModule(ctx, code); err != nil {
		return errors.New(clean(err.Error()))
	}
	for _, f := range w.module.ImportedFunctions() {
		if from, name, _ := f.Import(); from != wasi_snapshot_preview1.ModuleName {
			return fmt.Errorf("it imports %s from %s, but only WASI preview 1 is there", clean(name), clean(from))
		}
	}
	if w.module.ExportedFunctions()["_start"] == nil {
		return errors.New("it has no _start: build a command, not a library")
	}
	return nil
}

func (w *wasm) ask(ctx context.Context, seed uint64, query []byte, check func([]byte) error) (u use, err error) {
	if err := turn(ctx, w.turns); err != nil {
		return u, err
	}
	defer func() { <-w.turns }()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it broke the engine: %v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, w.desc.timeout())
	defer cancel()
	out := bounded{full: cancel}
	defer w.stderr.flush()
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	cfg := wazero.NewModuleConfig().WithName("").WithArgs(w.name).WithStdin(bytes.NewReader(query)).WithStdout(&out).WithStderr(w.stderr).
		WithRandSource(rand.NewChaCha8(key)).WithStartFunctions()
	for _, k := range slices.Sorted(maps.Keys(w.desc.Env)) {
		cfg = cfg.WithEnv(k, w.desc.Env[k])
	}
	mod, err := w.rt.InstantiateModule(ctx, w.module, cfg)
	if err == nil {
		defer mod.Close(context.WithoutCancel(ctx))
		mem := mod.Memory() // it can be looked at when the module has ended, too
		_, err = mod.ExportedFunction("_start").Call(ctx)
		u.memory = size(mem)
	}
	if out.over {
		return u, errTooMuch
	}
	if err != nil {
		if err := w.why(ctx, err, u); err != nil {
			return u, err
		}
	}
	return u, check(out.buf.Bytes())
}

// size is how far a module's memory grew.
func size(m api.Memory) skerry.Bytes {
	if m == nil {
		return 0
	}
	return skerry.Bytes(m.Size())
}

// why tells how a run ended; nil when it ended well.
func (w *wasm) why(ctx context.Context, err error, u use) error {
	var exit *sys.ExitError
	if ctx.Err() != nil {
		return late(ctx, w.desc.timeout())
	}
	if errors.As(err, &exit) {
		if exit.ExitCode() == 0 {
			return nil
		}
		err = fmt.Errorf("it ended with status %d", exit.ExitCode())
	} else {
		err = fmt.Errorf("it crashed: %s", clean(firstLine(err.Error())))
	}
	if u.memory >= w.desc.Memory-w.desc.Memory/16 {
		err = fmt.Errorf("%w; it had taken all of its memory (%s)", err, w.desc.Memory)
	}
	return err
}

func firstLine(s string) string {
	for i, r := range s {
		if r == '\n' {
			return s[:i]
		}
	}
	return s
}

// isolation tells what keeps the plugin apart.
func (w *wasm) isolation() []string {
	return []string{"WebAssembly: no files, no network, memory " + w.desc.Memory.String()}
}

func (w *wasm) close() { _ = w.rt.Close(context.Background()) }
