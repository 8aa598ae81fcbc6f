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

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
)

// Options say how a command is run; the zero value will do.
type Options struct {
	// First is what First gave.
	First *runtime.WinSize
	// Kill is called when the context ends, before the command itself is killed. Nil: nothing is.
	Kill func()
	// Owner gets the pipes of a process that can open them anew only if they are its own. Nil: they stay the agent's.
	Owner *Owner
	// Console is where the command, which calls a runtime, leaves the terminal that it makes for the process. Nil: the
	// terminal is the command's own.
	Console *Console
	// Inner says that the command makes a further terminal for the process, and copies between the two. Its own is to change nothing from
	// the beginning, and not only when the command has come to set it. Ends of lines are completed here: runc, by and by, takes that from
	// the inner terminal and gives it to the outer one, so that what a program writes meanwhile would pass both, or neither.
	Inner bool
}

// Owner is a user and a group of the host.
type Owner struct{ UID, GID uint32 }

// Run starts a command and waits for it and its output.
func Run(ctx context.Context, cmd *exec.Cmd, spec runtime.ExecSpec, o Options) (int, error) {
	switch {
	case !spec.TTY:
		return runPipes(ctx, cmd, spec, o)
	case o.Console != nil:
		return o.Console.run(ctx, cmd, spec, o)
	}
	return runTTY(ctx, cmd, spec, o)
}

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

// raw is cfmakeraw(3).
func raw(f *os.File) error {
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST | unix.ONLCR // runc sets the first of them again
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	return unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t)
}

// lines completes the ends of lines that are a line feed alone, as a terminal does.
type lines struct {
	to   io.Writer
	last byte
}

func (l *lines) Write(text []byte) (int, error) {
	out := make([]byte, 0, len(text)+len(text)/16)
	for _, b := range text {
		if b == '\n' && l.last != '\r' {
			out = append(out, '\r')
		}
		out, l.last = append(out, b), b
	}
	if _, err := l.to.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}

// runTTY gives the command a terminal.
func runTTY(ctx context.Context, cmd *exec.Cmd, spec runtime.ExecSpec, opt Options) (int, error) {
	master, slave, err := Open()
	if err != nil {
		return -1, err
	}
	defer master.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	ownSession(cmd).Setctty = true
	if opt.Inner {
		if err := raw(slave); err != nil {
			slave.Close()
			return -1, fmt.Errorf("set a terminal: %w", err)
		}
		if spec.Stdout != nil {
			spec.Stdout = &lines{to: spec.Stdout}
		}
	}
	if opt.First != nil {
		resize(master, *opt.First)
	}
	err = cmd.Start()
	slave.Close()
	if err != nil {
		return -1, err
	}
	ended := make(chan struct{})
	var copying sync.WaitGroup
	copying.Go(func() { attach(master, spec, ended) })
	code, err := wait(ctx, cmd, opt.Kill)
	close(ended)
	copying.Wait()
	return code, err
}

// ownSession keeps signals of the agent's terminal from a command.
func ownSession(cmd *exec.Cmd) *syscall.SysProcAttr {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	return cmd.SysProcAttr
}

// attach joins a terminal to the user's streams. It returns when the process has ended and all that it showed has been passed on.
func attach(master *os.File, spec runtime.ExecSpec, ended <-chan struct{}) {
	var following sync.WaitGroup
	defer following.Wait()
	if spec.Resize != nil {
		following.Go(func() { follow(spec.Resize, ended, master) })
	}
	if spec.Stdin != nil {
		go func() { _, _ = io.Copy(master, spec.Stdin) }() // not waited for, as in runPipes
	}
	PassOn(spec.Stdout, master, ended)
}

// follow makes a terminal as large as the user's until ended is closed.
func follow(sizes <-chan runtime.WinSize, ended <-chan struct{}, master *os.File) {
	for {
		select {
		case w, ok := <-sizes:
			if !ok {
				return
			}
			resize(master, w)
		case <-ended:
			return
		}
	}
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
	if err != nil {
		return -1, err
	}
	return cmd.ProcessState.ExitCode(), nil
}
