//go:build linux

package tunnel

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
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHangs stops a datapath in the midst of its life: who asks it is told, and who starts one gets another.
func TestHangs(t *testing.T) {
	s := newStation(t, 1)
	s.start()
	pid := s.client.Hello().PID
	impatient := StartOptions{Dir: s.dir, Command: s.command(), patience: 200 * time.Millisecond}
	first, err := Start(t.Context(), impatient)
	must(t, err)
	defer first.Close()
	must(t, unix.Kill(pid, unix.SIGSTOP))
	eventually(t, "a stop", func() bool { // each thread comes to it by itself
		list, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		return !slices.ContainsFunc(list, func(file string) bool {
			b, _ := os.ReadFile(file)
			return !bytes.Contains(b, []byte(") T "))
		})
	})
	if _, err := first.Status(t.Context()); !errors.Is(err, ErrHangs) {
		t.Errorf("a datapath that hangs: %v", err)
	}
	s.client.Close()
	s.client, err = Start(t.Context(), impatient)
	must(t, err)
	if got := s.client.Hello().PID; got == pid {
		t.Error("a datapath that hangs was not replaced")
	}
	// That its caller has no time left is not the datapath's fault.
	pid = s.client.Hello().PID
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, impatient); !errors.Is(err, context.Canceled) {
		t.Errorf("a start that was given up: %v", err)
	}
	if got := holder(s.dir); got != pid {
		t.Errorf("a start that was given up left datapath %d, before it was %d", got, pid)
	}
	must(t, s.client.Stop(t.Context()))
}

// TestUnread asks a datapath that reads nothing for more than its socket holds.
func TestUnread(t *testing.T) {
	here, there := net.Pipe() // which holds nothing
	defer there.Close()
	c := &Client{conn: here, patience: 50 * time.Millisecond, events: make(chan Event), ended: make(chan struct{}), wait: map[uint64]chan answer{}}
	go c.read()
	if _, err := c.Status(t.Context()); !errors.Is(err, ErrHangs) {
		t.Errorf("got %v", err)
	}
	<-c.ended
}

// TestTied has a datapath end with its client.
func TestTied(t *testing.T) {
	s := newStation(t, 1)
	c, err := Start(t.Context(), StartOptions{Dir: s.dir, Command: s.command(), Tied: true})
	must(t, err)
	if _, err := c.Status(t.Context()); err != nil || holder(s.dir) != c.Hello().PID {
		t.Errorf("datapath %d, status: %v", holder(s.dir), err)
	}
	must(t, c.leash.Close()) // as when its process is killed
	eventually(t, "its end", func() bool { return holder(s.dir) == 0 })
	c.Close()
}

// TestStopHangs has a datapath that takes leave and does not go.
func TestStopHangs(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	must(t, cmd.Start())
	reaped := make(chan error, 1)
	go func() { reaped <- cmd.Wait() }()
	here, there := net.Pipe()
	go func() {
		if b, err := newLines(there).next(); err == nil {
			q, _ := parseRequest(b)
			_ = (&conn{Conn: there}).write(answer{Number: q.Number})
		}
		there.Close()
	}()
	c := &Client{conn: here, hello: Hello{PID: cmd.Process.Pid}, patience: 200 * time.Millisecond, events: make(chan Event), ended: make(chan struct{}), wait: map[uint64]chan answer{}}
	go c.read()
	must(t, c.Stop(t.Context()))
	if err := <-reaped; err == nil {
		t.Error("it ended by itself")
	}
}
