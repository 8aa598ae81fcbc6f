//go:build linux

package wasm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/wasmcode"
)

// wait is a spare, from its start in a directory of its own on. Until the agent tells it which task it is, it is in no task's cgroup
// and has seen nothing of one. It ends when the agent does.
func wait(string) (int, error) {
	ctx := context.Background()
	rt, err := ahead(ctx)
	if err != nil {
		return exitBroken, err
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: spareSocket})
	if err != nil {
		return exitBroken, err
	}
	defer conn.Close()
	// Of the privileges it needs those of user 0 until it has its root. Every thread has to be told, which takes its time.
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(nobody, nobody, nobody)); err != nil {
		return exitBroken, err
	}
	if _, err := conn.Write([]byte{spareReady}); err != nil {
		return exitBroken, err
	}
	job, fds, err := receive(conn)
	if job == nil {
		return 0, err // it was not needed
	}
	if err := job.become(fds); err != nil {
		_, _ = conn.Write([]byte(err.Error()))
		return exitBroken, err
	}
	if _, err := conn.Write([]byte{spareReady}); err != nil {
		return exitBroken, err // the agent has ended, and does not know that this is a task
	}
	conn.Close()
	p := &job.Process
	if p.Handler != nil { // whose modules can be ended from outside, which is other code
		cache, err := wazero.NewCompilationCacheWithDir(p.Code)
		if err != nil {
			return exitBroken, err
		}
		rt = wazero.NewRuntimeWithConfig(ctx, config(true, cache))
	}
	return begin(ctx, &engine{p: p, rt: rt, lean: p.Handler == nil})
}

// ahead does what does not depend on the module: WASI is compiled, and a module runs that does nothing, so that what is needed of
// the program is in memory. Code is looked for below a link, which is turned to that of the module when there is one.
func ahead(ctx context.Context) (wazero.Runtime, error) {
	const first = spareCode + ".first"
	if err := errors.Join(os.Mkdir(first, 0o700), os.Symlink(first, spareCode)); err != nil {
		return nil, err
	}
	idle := wasmcode.Module{Text: "\n", Body: wasmcode.Print}.Encode()
	for i := 0; ; i++ {
		// The directory has another name when the task begins.
		cache, err := wazero.NewCompilationCacheWithDir(filepath.Join("/proc/self/cwd", spareCode))
		if err != nil {
			return nil, err
		}
		rt := wazero.NewRuntimeWithConfig(ctx, config(false, cache))
		if err := host(ctx, rt); err != nil {
			return nil, err
		}
		m, err := load(ctx, rt, idle)
		if err != nil {
			return nil, err
		}
		var said bytes.Buffer
		e := &engine{p: &process{Args: []string{"idle"}}, rt: rt, module: m, budget: &budget{}}
		if _, err := e.once(ctx, e.config(nil).WithStdout(&said)); err != nil {
			return nil, err
		}
		if err := m.Close(ctx); err != nil {
			return nil, err
		}
		if i > 0 { // the second time it was found, as the module of the task will be
			debug.FreeOSMemory()
			return rt, nil
		}
		if err := rt.Close(ctx); err != nil {
			return nil, err
		}
	}
}

// receive gives the job and its descriptors, or nil when the agent has none.
func receive(conn *net.UnixConn) (*job, []int, error) {
	var first [1]byte
	oob := make([]byte, unix.CmsgSpace(2*4))
	n, oobn, _, _, err := conn.ReadMsgUnix(first[:], oob)
	if n == 0 {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, nil, err
	}
	var fds []int
	for _, m := range msgs {
		more, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, nil, err
		}
		fds = append(fds, more...)
	}
	var j job
	if err := json.NewDecoder(conn).Decode(&j); err != nil {
		return nil, nil, err
	}
	return &j, fds, nil
}

// become takes up the namespaces and the root of the task. The limits hold already.
func (j *job) become(fds []int) error {
	if want := 1 + map[bool]int{true: 1}[j.Network]; len(fds) != want {
		return fmt.Errorf("%d descriptors came in place of %d", len(fds), want)
	}
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	if err := unix.MoveMount(fds[0], "", unix.AT_FDCWD, j.Process.Root, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	if j.Network { // of every thread: which of them the module runs on nobody knows
		if _, _, err := syscall.AllThreadsSyscall(unix.SYS_SETNS, uintptr(fds[1]), unix.CLONE_NEWNET, 0); err != 0 {
			return fmt.Errorf("network: %w", err)
		}
	}
	if j.Hostname != "" {
		if err := unix.Sethostname([]byte(j.Hostname)); err != nil {
			return fmt.Errorf("hostname: %w", err)
		}
	}
	const next = spareCode + ".next"
	return errors.Join(os.Symlink(j.Process.Code, next), os.Rename(next, spareCode))
}
