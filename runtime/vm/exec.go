//go:build linux

package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/internal/tty"
	"skerry.dev/skerry/runtime/vm/wire"
)

// dial reaches a task's vm-run. Its directory is opened first: the name of a socket must be short.
func dial(ctx context.Context, t *monitor.Task) (net.Conn, error) {
	fd, err := unix.Open(t.Path(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", fd, socketFile))
}

// Exec runs a process in a machine, beside the program and with its restrictions. As in a shell, a program that is not there
// ends with 127 and one that cannot be run with 126, with the reason on Stderr, or on the terminal.
func (d *Driver) Exec(ctx context.Context, handle runtime.Handle, spec runtime.ExecSpec) (int, error) {
	task, err := d.base.Running(handle, spec)
	if err != nil {
		return -1, err
	}
	if spec.Dir != "" && !path.IsAbs(spec.Dir) {
		return -1, &runtime.InvalidSpec{Field: "dir", Reason: fmt.Sprintf("%q is not absolute; begin it with /", spec.Dir)}
	}
	setup, err := readSetup(task.Path())
	if err != nil {
		return -1, err
	}
	p := setup.Guest.Process
	p.Args, p.TTY, p.Env = spec.Args, spec.TTY, append(slices.Clone(p.Env), spec.Env...)
	if spec.Dir != "" {
		p.Dir = spec.Dir
	}
	if spec.User != "" {
		u, err := lookupUser(task.Path(), spec.User)
		if err != nil {
			return -1, err
		}
		p.UID, p.GID, p.Groups = u.UID, u.GID, u.Groups
	}
	if first := tty.First(spec); first != nil {
		p.Size = wire.Size{Rows: uint32(first.Rows), Cols: uint32(first.Cols)}
	}
	conn, err := dial(ctx, task)
	if err != nil {
		return -1, fmt.Errorf("exec in %s: %w", handle.ID, err)
	}
	x := newExecution(conn, spec)
	code, err := x.run(ctx, &p)
	if ctx.Err() != nil {
		return -1, ctx.Err()
	}
	if err != nil {
		return -1, fmt.Errorf("exec in %s: %w", handle.ID, err)
	}
	return code, nil
}

// Stats are the processor's and the disks' of the task's control group on the host, for that is what they cost, and the memory
// and processes of the program in its machine, for these are what it can run out of.
func (d *Driver) Stats(ctx context.Context, handle runtime.Handle) (runtime.Stats, error) {
	task, err := d.base.Tasks.Get(handle)
	if err != nil {
		return runtime.Stats{}, err
	}
	st, err := task.Stats(time.Now())
	if err != nil {
		return st, err
	}
	s, err := readSetup(task.Path())
	if err != nil {
		return st, err
	}
	var u wire.Usage
	if data, err := os.ReadFile(task.Path(usageFile)); err == nil {
		err = json.Unmarshal(data, &u)
		if err != nil {
			return st, err
		}
	} else if task.Status().State == runtime.StateRunning {
		if u, err = ask(ctx, task); err != nil {
			return st, fmt.Errorf("ask the machine of %s: %w", handle.ID, err)
		}
	}
	st.Memory, st.MemoryWorkingSet, st.MemoryPeak, st.MemoryLimit = skerry.Bytes(u.Memory), skerry.Bytes(u.WorkingSet), skerry.Bytes(u.Peak),
		skerry.Bytes(s.Guest.Memory)
	st.OOMKills, st.Pids = u.OOMKills, int64(u.Pids)
	return st, nil
}

// ask asks a machine what its program uses.
func ask(ctx context.Context, t *monitor.Task) (u wire.Usage, err error) {
	conn, err := dial(ctx, t)
	if err != nil {
		return u, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second)) // a hostile guest need not answer
	if err := wire.Write(conn, wire.Frame{Kind: wire.KindAsk}); err != nil {
		return u, err
	}
	f, err := wire.Read(conn)
	if err != nil {
		return u, err
	}
	if f.Kind != wire.KindUsage {
		return u, wire.ErrFrame
	}
	return u, wire.Decode(f.Data, &u)
}
