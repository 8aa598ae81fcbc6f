//go:build linux

package wasm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/printed"
	"skerry.dev/skerry/internal/wasmcode"
	"skerry.dev/skerry/runtime/internal/cgroup"
)

const (
	maxModule     = 64 * skerry.MiB
	compileMemory = 1 * skerry.GiB
	// compileTime is enough for a large module on a slow and busy board: what takes a fast core a second took an emulated one two minutes.
	compileTime = 10 * time.Minute
	// maxCode bounds what one module's compiled code takes of the disk, cacheSize what all of them take; those that are used
	// now and then stay.
	maxCode   = 1 * skerry.GiB
	cacheSize = 2 * skerry.GiB
	cacheStay = time.Hour

	compileGroup = "wasm-compile"
	moduleFile   = "module.wasm"
	codeDir      = "code"
	newPrefix    = ".new-"
)

// cache holds compiled modules, each in a directory of its own that is named by the module's content: no module's compiler writes
// where another's code is.
//
//	DIR/<sha256>-<program>[-handler]/module.wasm
//	                                /code/wazero-.../<key>
type cache struct {
	dir   string
	run   []string
	group cgroup.Group
	stamp string // of the program that compiles: another one's code may be different

	turn chan struct{} // holds one token while a module is compiled

	mu    sync.Mutex // protects known
	known map[fileID]string
}

// fileID tells a file of an image from what it was, or will be.
type fileID struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func newCache(dir string, run []string, group cgroup.Group) *cache {
	c := &cache{dir: dir, run: run, group: group, turn: make(chan struct{}, 1), known: map[fileID]string{}}
	if st, err := os.Stat(run[0]); err == nil {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %d", st.Size(), st.ModTime().UnixNano()))
		c.stamp = hex.EncodeToString(sum[:4])
	}
	// What a crash left half-made. Whoever made it has ended with its agent.
	left, _ := filepath.Glob(filepath.Join(dir, newPrefix+"*"))
	for _, l := range left {
		_ = os.RemoveAll(l)
	}
	return c
}

func (c *cache) remove() error {
	return errors.Join(os.RemoveAll(c.dir), c.clearGroup())
}

func (c *cache) clearGroup() error {
	if !c.group.Exists() {
		return nil
	}
	return c.group.End(5 * time.Second)
}

// module gives the directory of a module, compiled.
func (c *cache) module(ctx context.Context, file *os.File, handler bool) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return "", err
	}
	id := fileID{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}
	c.mu.Lock()
	sum := c.known[id]
	c.mu.Unlock()
	var code []byte
	if sum == "" {
		var err error
		if code, err = read(file); err != nil {
			return "", err
		}
		digest := sha256.Sum256(code)
		sum = hex.EncodeToString(digest[:])
	}
	dir := filepath.Join(c.dir, sum+"-"+c.stamp)
	if handler {
		dir += "-handler"
	}
	if !c.has(dir) {
		if err := c.make(ctx, dir, file, code, handler); err != nil {
			return "", err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) > 1000 {
		clear(c.known)
	}
	c.known[id] = sum
	return dir, nil
}

func (c *cache) has(dir string) bool {
	now := time.Now()
	return os.Chtimes(dir, now, now) == nil // it is in use
}

func read(f *os.File) ([]byte, error) {
	code, err := io.ReadAll(io.NewSectionReader(f, 0, int64(maxModule)+1))
	if err != nil {
		return nil, err
	}
	if len(code) > int(maxModule) {
		return nil, fmt.Errorf("it has more than %s", maxModule)
	}
	return wasmcode.FixTables(code)
}

// make compiles a module, one at a time.
func (c *cache) make(ctx context.Context, dir string, file *os.File, code []byte, handler bool) (err error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.has(dir) {
		return nil
	}
	if code == nil {
		if code, err = read(file); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.dir, 0o711); err != nil {
		return err
	}
	c.prune()
	tmp, err := os.MkdirTemp(c.dir, newPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, "out")
	if err := errors.Join(os.WriteFile(filepath.Join(tmp, moduleFile), code, 0o444), os.Mkdir(out, 0o700),
		os.Chown(out, nobody, nobody)); err != nil {
		return err
	}
	if err := c.compile(ctx, out, code, handler); err != nil {
		return err
	}
	if err := take(out, filepath.Join(tmp, codeDir)); err != nil {
		return err
	}
	// After a power failure a directory of this name is whole, or it would be taken for whole for ever.
	if err := errors.Join(os.RemoveAll(out), syncAll(tmp)); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}

// syncAll brings everything in the file system of a directory onto its disk.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// compile runs the compiler, which has nothing but the module and a directory for its result.
func (c *cache) compile(ctx context.Context, out string, code []byte, handler bool) error {
	if err := c.group.Create(cgroup.Limits{Memory: compileMemory, Pids: 200}); err != nil {
		return err
	}
	defer func() { _ = c.clearGroup() }()
	compileCtx, cancel := context.WithTimeout(ctx, compileTime)
	defer cancel()
	args := append(slices.Clone(c.run[1:]), "compile", out)
	if handler {
		args = append(args, "--handler")
	}
	cmd := exec.CommandContext(compileCtx, c.run[0], append(args, c.group.Dirs()...)...)
	cmd.Env, cmd.Stdin = []string{}, bytes.NewReader(code)
	said := &printed.Head{Max: 4096}
	cmd.Stderr = said
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWPID,
	}
	// The signal comes when the thread that started it ends, which is not to be before.
	runtime.LockOSThread()
	err := cmd.Run()
	runtime.UnlockOSThread()
	text := strings.TrimSpace(said.String())
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case compileCtx.Err() != nil:
		return &tooMuch{compileTime.String()}
	case c.group.OOMKills() > 0:
		return &tooMuch{compileMemory.String() + " of memory"}
	case text == "":
		return fmt.Errorf("it could not be compiled: %w", err)
	}
	return errors.New(text)
}

// tooMuch is why a module was not compiled that may be a good one.
type tooMuch struct{ what string }

func (e *tooMuch) Error() string { return "compiling it takes more than " + e.what }

// take copies what the compiler made. It had no privileges, and what it wrote may be anything: only plain files are taken, and
// only by whom the agent trusts can the copy be written.
func take(from, to string) error {
	src, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	dst, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer dst.Close()
	left, files := int64(maxCode), 0
	top, err := list(src, ".")
	if err != nil {
		return err
	}
	for _, d := range top {
		if err := dst.Mkdir(d, 0o755); err != nil {
			return err
		}
		names, err := list(src, d)
		if err != nil {
			return err
		}
		for _, n := range names {
			name := filepath.Join(d, n)
			size, err := takeFile(src, dst, name, left)
			if err != nil {
				return err
			}
			left -= size
			files++
		}
	}
	if files == 0 && compiles(runtime.GOARCH) {
		return errors.New("the compiler made nothing")
	}
	return nil
}

// compiles tells for which architectures the engine makes code; on others it interprets, and there is nothing to keep.
func compiles(arch string) bool { return arch == "amd64" || arch == "arm64" }

// list gives the few names in a directory that the compiler made.
func list(r *os.Root, dir string) ([]string, error) {
	f, err := r.OpenFile(dir, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(5)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return names, nil
}

func takeFile(src, dst *os.Root, name string, left int64) (int64, error) {
	in, err := src.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	if st, err := in.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > left {
		return 0, errors.Join(err, fmt.Errorf("its compiled code is no file of at most %s", maxCode))
	}
	out, err := dst.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	n, err := io.Copy(out, io.LimitReader(in, left))
	return n, errors.Join(err, out.Sync(), out.Close())
}

// prune removes the modules that were not used for longest, as far as they take too much of the disk.
func (c *cache) prune() {
	type entry struct {
		dir  string
		used time.Time
		size int64
	}
	var all []entry
	var sum int64
	dirs, _ := filepath.Glob(filepath.Join(c.dir, "[0-9a-f]*"))
	for _, d := range dirs {
		st, err := os.Stat(d)
		if err != nil {
			continue
		}
		e := entry{dir: d, used: st.ModTime()}
		_ = filepath.WalkDir(d, func(_ string, de os.DirEntry, err error) error {
			if err == nil && de.Type().IsRegular() {
				if i, err := de.Info(); err == nil {
					e.size += i.Size()
				}
			}
			return nil
		})
		sum += e.size
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.dir, b.dir)) })
	for _, e := range all {
		if sum <= int64(cacheSize) || time.Since(e.used) < cacheStay {
			return
		}
		_ = os.RemoveAll(e.dir)
		sum -= e.size
	}
}
