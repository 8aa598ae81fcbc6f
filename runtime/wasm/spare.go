//go:build linux

package wasm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/native"
)

const (
	// spareStay is for how long after the last start a spare is kept.
	spareStay = 15 * time.Minute
	// spareRest is for how long a module that begins has the processors before its successor's spare wants them.
	spareRest = 100 * time.Millisecond
	// spareTime bounds the start of a spare, and its answer.
	spareTime = 30 * time.Second
	// spareMemory is the least limit of a task that a spare is used for: what it has taken by then has to fit.
	spareMemory = 16 * skerry.MiB

	spareSocket = "job"
	spareCode   = "code"
	spareReady  = '+'
)

// spares keeps one wasm-run that has begun, its supervisor beside it, and waits for its task, once a task was started. It is of no use
// to anybody but this agent: it ends when the agent does. One that fails costs its task the time of an ordinary start.
type spares struct {
	d *Driver

	mu     sync.Mutex // protects what follows
	ready  *spare
	making bool
	closed bool
	last   *time.Timer
	made   sync.WaitGroup
}

type spare struct {
	*monitor.Spare
	conn   *net.UnixConn
	logMax skerry.Bytes
}

// job is what a spare is told.
type job struct {
	Process  process
	Hostname string `json:",omitempty"`
	// Network says that the second descriptor is the task's network namespace. The first is its root (see native.Tree).
	Network bool `json:",omitempty"`
}

func (s *spares) log(msg string, err error) {
	if l := s.d.Options.Log; l != nil {
		l.Warn(msg, "err", err)
	}
}

// take gives the spare, if there is one that fits.
func (s *spares) take(spec runtime.Spec) *spare {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.ready
	if sp == nil || sp.logMax != spec.LogMax() || spec.Resources.Memory > 0 && spec.Resources.Memory < spareMemory {
		return nil
	}
	s.ready = nil
	return sp
}

// renew has a spare made for the next start, which will probably be like this one. That of a self-test is none to go by.
func (s *spares) renew(spec runtime.Spec) {
	if s.d.IsCheck(spec.ID) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if s.last == nil {
		s.last = time.AfterFunc(spareStay, s.drop)
	} else {
		s.last.Reset(spareStay)
	}
	if s.making || s.ready != nil && s.ready.logMax == spec.LogMax() {
		return
	}
	old := s.ready
	s.ready, s.making = nil, true
	s.made.Go(func() {
		if old != nil {
			old.end()
		}
		time.Sleep(spareRest)
		sp, err := s.make(spec.LogMax())
		if err != nil {
			s.log("no module is kept ready to start", err)
		}
		s.mu.Lock()
		s.making = false
		closed := s.closed
		if !closed {
			s.ready = sp
		}
		s.mu.Unlock()
		if closed && sp != nil {
			sp.end()
		}
	})
}

func (s *spares) drop() {
	s.mu.Lock()
	sp := s.ready
	s.ready = nil
	s.mu.Unlock()
	if sp != nil {
		sp.end()
	}
}

// close ends the spare for good.
func (s *spares) close() {
	s.mu.Lock()
	s.closed = true
	if s.last != nil {
		s.last.Stop()
	}
	s.mu.Unlock()
	s.made.Wait()
	s.drop()
}

func (s *spares) make(logMax skerry.Bytes) (_ *spare, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), spareTime)
	defer cancel()
	sp := &spare{logMax: logMax}
	var ln *net.UnixListener
	defer func() {
		if ln != nil {
			ln.Close()
		}
		if err != nil && sp.Spare != nil {
			sp.end()
		}
	}()
	args := append(slices.Clone(s.d.run), "spare", filepath.Join(s.d.Options.Dir, "spares"))
	sp.Spare, err = s.d.tasks.StartSpare(ctx, args, logMax, func(dir string) error {
		// The path of a socket is short; that of a directory may be long.
		in, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer in.Close()
		ln, err = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", in.Fd(), spareSocket)})
		if err != nil {
			return err
		}
		ln.SetUnlinkOnClose(false)
		return nil
	})
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = ln.SetDeadline(deadline)
	if sp.conn, err = ln.AcceptUnix(); err != nil {
		return nil, err
	}
	if err := sp.isPeer(); err != nil {
		return nil, err
	}
	if err := sp.answer(ctx); err != nil {
		return nil, err
	}
	return sp, nil
}

// isPeer makes sure that nobody else is told what the task is.
func (sp *spare) isPeer() error {
	raw, err := sp.conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	if e := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil ||
		err != nil {
		return errors.Join(e, err)
	}
	if int(peer.Pid) != sp.PID() {
		return fmt.Errorf("process %d answers in place of %d", peer.Pid, sp.PID())
	}
	return nil
}

// answer waits until it has done what it was told.
func (sp *spare) answer(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = sp.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var first [1]byte
	_, err := io.ReadFull(sp.conn, first[:])
	switch {
	case err != nil:
		return fmt.Errorf("it does not answer: %w", err)
	case first[0] != spareReady:
		said, _ := io.ReadAll(io.LimitReader(sp.conn, 4096))
		return errors.New(strings.TrimSpace(string(first[:]) + string(said)))
	}
	return nil
}

// hand tells it which task it is.
func (sp *spare) hand(ctx context.Context, proc *process, own runtime.Spec, mounts []runtime.Mount) error {
	defer sp.conn.Close()
	ctx, cancel := context.WithTimeout(ctx, spareTime)
	defer cancel()
	deadline, _ := ctx.Deadline()
	_ = sp.conn.SetDeadline(deadline)
	tree, err := native.Tree(mounts)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	fds := []int{tree}
	j := job{Process: *proc, Hostname: own.Hostname}
	j.Process.Root = native.SpareRoot
	if own.Network != nil && own.Network.NetNS != "" {
		ns, err := unix.Open(own.Network.NetNS, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(ns)
		fds, j.Network = append(fds, ns), true
	}
	data, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if _, _, err := sp.conn.WriteMsgUnix([]byte{spareReady}, unix.UnixRights(fds...), nil); err != nil {
		return err
	}
	if _, err := sp.conn.Write(data); err != nil {
		return err
	}
	return sp.answer(ctx)
}

func (sp *spare) end() {
	if sp.conn != nil {
		sp.conn.Close()
	}
	sp.End()
}
