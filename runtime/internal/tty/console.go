//go:build linux

package tty

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
)

// Console is a socket at which a runtime leaves the terminal that it makes for a process (--console-socket). Runtimes copy
// between that terminal and their own where they are given none; crun ends when the process does, and what it has not
// copied then is lost.
//
//	agent ── starts ── crun ── makes a terminal ── starts the process on it
//	  └───── socket <───────── its master
type Console struct {
	path string
	dir  *os.File
	ln   *net.UnixListener
}

// Listen makes a socket. Whoever can connect there can be taken for the runtime: the directory is the agent's alone.
func Listen(path string) (*Console, error) {
	dir, err := os.Open(filepath.Dir(path)) // the name of a socket must be short
	if err != nil {
		return nil, err
	}
	c := &Console{path: path, dir: dir}
	if c.ln, err = net.ListenUnix("unix", c.addr()); err != nil {
		dir.Close()
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	c.ln.SetUnlinkOnClose(false) // Close does, by its own name
	return c, nil
}

// Path is what the runtime is told.
func (c *Console) Path() string { return c.path }

// Close removes the socket.
func (c *Console) Close() {
	c.ln.Close()
	c.dir.Close()
	_ = os.Remove(c.path)
}

func (c *Console) run(ctx context.Context, cmd *exec.Cmd, spec runtime.ExecSpec, o Options) (int, error) {
	ownSession(cmd)
	if err := cmd.Start(); err != nil {
		return -1, err
	}
	ended := make(chan struct{})
	var copying sync.WaitGroup
	copying.Go(func() {
		if master := c.receive(); master != nil { // nil: the process was not started
			attach(master, spec, ended)
			master.Close() // which hangs up
		}
	})
	code, err := wait(ctx, cmd, o.Kill)
	close(ended)
	c.noMore()
	copying.Wait()
	return code, err
}

// noMore ends the wait for a runtime that has ended. One that has connected is first in the queue.
func (c *Console) noMore() {
	if conn, err := net.DialUnix("unix", nil, c.addr()); err == nil {
		conn.Close()
		return
	}
	c.ln.Close()
}

// addr is the socket by a short name.
func (c *Console) addr() *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", c.dir.Fd(), filepath.Base(c.path))}
}

// receive returns the terminal's master, or nil if the runtime ends without having sent it.
func (c *Console) receive() *os.File {
	conn, err := c.ln.AcceptUnix()
	if err != nil {
		return nil
	}
	defer conn.Close()
	name, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(name, rights)
	if err != nil {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err == nil && len(fds) == 1 && unix.SetNonblock(fds[0], true) == nil {
		return os.NewFile(uintptr(fds[0]), "/dev/ptmx")
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return nil
}
