//go:build linux

// Package tty runs a command with the streams or the terminal of a runtime.ExecSpec and tells its exit code. Runtime
// drivers import it.
package tty

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
)

// Open makes a pseudo-terminal.
func Open() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	return master, slave, nil
}

// resize is what IoctlSetWinsize does, on a descriptor that stays non-blocking.
func resize(f *os.File, w runtime.WinSize) {
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) {
			_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: w.Rows, Col: w.Cols})
		})
	}
}

// First takes the terminal's first size from an exec's channel, when it is there already; the program is to find it
// when it begins.
func First(spec runtime.ExecSpec) *runtime.WinSize {
	if !spec.TTY {
		return nil
	}
	select {
	case w, ok := <-spec.Resize:
		if ok {
			return &w
		}
	default:
	}
	return nil
}

// Run starts cmd and waits for it; first is what First gave. When ctx ends, kill is called, then the command itself is killed.
// inner, if not nil, gives the process that cmd runs on a further terminal, or 0 while there is none.
func Run(ctx context.Context, cmd *exec.Cmd, spec runtime.ExecSpec, first *runtime.WinSize, kill func(), inner func() int) (int, error) {
	if spec.TTY {
		return runTTY(ctx, cmd, spec, first, kill, inner)
	}
	cmd.Stdout, cmd.Stderr = spec.Stdout, spec.Stderr
	// What the command left behind may keep the pipes open; its output is not waited for longer than this.
	cmd.WaitDelay = time.Second
	var stdin io.WriteCloser
	if spec.Stdin != nil {
		var err error
		if stdin, err = cmd.StdinPipe(); err != nil {
			return -1, err
		}
	}
	if err := cmd.Start(); err != nil {
		return -1, err
	}
	if stdin != nil {
		// Not waited for: a reader such as a network stream ends when its owner closes it, after Exec returned.
		go func() {
			_, _ = io.Copy(stdin, spec.Stdin)
			stdin.Close()
		}()
	}
	return wait(ctx, cmd, kill)
}

func runTTY(ctx context.Context, cmd *exec.Cmd, spec runtime.ExecSpec, first *runtime.WinSize, kill func(), inner func() int) (int, error) {
	master, slave, err := Open()
	if err != nil {
		return -1, err
	}
	defer master.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	if first != nil {
		resize(master, *first)
	}
	var outer unix.Stat_t
	if err := unix.Fstat(int(slave.Fd()), &outer); err != nil {
		slave.Close()
		return -1, err
	}
	err = cmd.Start()
	slave.Close()
	if err != nil {
		return -1, err
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		out := spec.Stdout
		if out == nil {
			out = io.Discard
		}
		// The end of a terminal is an error, EIO.
		_, _ = io.Copy(out, master)
	})
	if spec.Resize != nil {
		wg.Go(func() { follow(spec.Resize, done, master, &outer, inner) })
	}
	if spec.Stdin != nil {
		go func() { _, _ = io.Copy(master, spec.Stdin) }()
	}
	code, err := wait(ctx, cmd, kill)
	close(done)
	// Background processes may hold the terminal open.
	_ = master.SetReadDeadline(time.Now().Add(time.Second))
	wg.Wait()
	return code, err
}

// A process that has not begun yet is looked for so often, and so many times.
const (
	innerEvery = 20 * time.Millisecond
	innerTries = 500
)

// follow makes terminals as large as the user's until done is closed.
func follow(sizes <-chan runtime.WinSize, done <-chan struct{}, master *os.File, outer *unix.Stat_t, inner func() int) {
	var again <-chan time.Time
	var last runtime.WinSize
	tries := 0
	for sizes != nil || again != nil {
		select {
		case w, ok := <-sizes:
			if !ok {
				sizes = nil
				continue
			}
			last, tries = w, 0
			resize(master, w)
		case <-again:
		case <-done:
			return
		}
		again = nil
		if tries++; inner != nil && tries < innerTries && !resizeInner(inner(), outer, last) {
			again = time.After(innerEvery)
		}
	}
}

// resizeInner sets the size of the terminal that a process has for its input or output, unless it still is the outer one.
// Runtimes copy the size of their own terminal to that of the process, but crun only since 1.8.7.
func resizeInner(pid int, outer *unix.Stat_t, w runtime.WinSize) bool {
	if pid <= 0 {
		return false
	}
	for n := range 3 {
		// It is looked at before it is opened, for the process may have put anything there.
		at, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", pid, n), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		const firstMajor, lastMajor = 136, 143 // of pseudo-terminals, in the kernel's devices.txt
		if err = unix.Fstat(at, &st); err == nil && (st.Dev != outer.Dev || st.Rdev != outer.Rdev) && st.Mode&unix.S_IFMT == unix.S_IFCHR && unix.Major(uint64(st.Rdev)) >= firstMajor && unix.Major(uint64(st.Rdev)) <= lastMajor {
			var f *os.File
			if f, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", at), os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0); err == nil {
				resize(f, w)
				f.Close()
				unix.Close(at)
				return true
			}
		}
		unix.Close(at)
	}
	return false
}

func wait(ctx context.Context, cmd *exec.Cmd, kill func()) (int, error) {
	stop := context.AfterFunc(ctx, func() {
		if kill != nil {
			kill()
		}
		_ = cmd.Process.Kill()
	})
	err := cmd.Wait()
	if !stop() && ctx.Err() != nil {
		return -1, ctx.Err()
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		ws := exit.Sys().(syscall.WaitStatus)
		if ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
		return ws.ExitStatus(), nil
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return -1, err
	}
	return cmd.ProcessState.ExitCode(), nil
}
