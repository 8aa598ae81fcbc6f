//go:build linux

package vm

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry/runtime/vm/wire"
)

// session is what vm-run speaks with a guest, and passes on between it and the agent. Nothing that the guest says is
// believed further than its own streams.
type session struct {
	conn           io.ReadWriteCloser
	stdout, stderr io.Writer

	booted, running chan struct{} // each receives once
	failed          chan wire.Failure
	exited          chan wire.Exit

	write sync.Mutex // held while a frame is written

	mu      sync.Mutex // protects what follows
	next    uint32
	streams map[uint32]*client
}

// client is the agent's end of a process that was executed, or of a question.
type client struct {
	conn  net.Conn
	write sync.Mutex
}

func newSession(conn io.ReadWriteCloser) *session {
	return &session{
		conn: conn, stdout: os.Stdout, stderr: os.Stderr, booted: make(chan struct{}, 1), running: make(chan struct{}, 1),
		failed: make(chan wire.Failure, 1), exited: make(chan wire.Exit, 1), streams: map[uint32]*client{},
	}
}

func (s *session) send(kind wire.Kind, stream uint32, data []byte) error {
	s.write.Lock()
	defer s.write.Unlock()
	return wire.Write(s.conn, wire.Frame{Kind: kind, Stream: stream, Data: data})
}

// listen takes what the guest says until it says nothing sensible any more. The machine's end is seen elsewhere.
func (s *session) listen() {
	in := bufio.NewReaderSize(s.conn, 64<<10)
	hello, ran := false, false
	for {
		f, err := wire.Read(in)
		if err != nil {
			return
		}
		switch {
		case f.Kind == wire.KindHello && !hello:
			if len(f.Data) != 1 || f.Data[0] != wire.Version {
				s.fail(wire.Failure{Message: "the guest's init is of another build"})
				return
			}
			hello = true
			s.booted <- struct{}{}
		case f.Stream != 0:
			s.pass(f)
		case f.Kind == wire.KindStarted && hello && !ran:
			ran = true
			s.running <- struct{}{}
		case f.Kind == wire.KindFailed && !ran:
			var m wire.Failure
			if wire.Decode(f.Data, &m) == nil {
				m.Field, m.Message = clean(m.Field), clean(m.Message)
				s.fail(m)
				return
			}
		case f.Kind == wire.KindStdout && ran:
			_, _ = s.stdout.Write(f.Data)
		case f.Kind == wire.KindStderr && ran:
			_, _ = s.stderr.Write(f.Data)
		case f.Kind == wire.KindExit && ran:
			var x wire.Exit
			if wire.Decode(f.Data, &x) == nil {
				s.exited <- x
				return
			}
		}
	}
}

func (s *session) fail(f wire.Failure) {
	select {
	case s.failed <- f:
	default:
	}
}

// pass gives a frame to whom it is for, in the same words.
func (s *session) pass(f wire.Frame) {
	s.mu.Lock()
	c := s.streams[f.Stream]
	s.mu.Unlock()
	if c == nil {
		return
	}
	// The agent takes at once what it has granted. One that stands still must not hold up the task.
	c.write.Lock()
	_ = c.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	err := wire.Write(c.conn, f)
	c.write.Unlock()
	if err != nil || f.Kind == wire.KindExit || f.Kind == wire.KindFailed || f.Kind == wire.KindUsage {
		s.drop(f.Stream, c)
	}
}

func (s *session) drop(stream uint32, c *client) {
	s.mu.Lock()
	delete(s.streams, stream)
	s.mu.Unlock()
	c.conn.Close()
}

// accept serves the agent.
func (s *session) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go s.serve(&client{conn: conn})
	}
}

// serve passes what one connection asks for to the guest: one process, or one question.
func (s *session) serve(c *client) {
	in := bufio.NewReader(c.conn)
	s.mu.Lock()
	s.next++
	stream := s.next
	s.streams[stream] = c
	s.mu.Unlock()
	defer s.drop(stream, c)
	executed := false
	for {
		f, err := wire.Read(in)
		if err != nil {
			if executed {
				const kill = 9
				_ = s.send(wire.KindSignal, stream, []byte{kill}) // nobody waits for it any more
			}
			return
		}
		executed = executed || f.Kind == wire.KindExec
		if s.send(f.Kind, stream, f.Data) != nil {
			return
		}
	}
}

// tail keeps the last of what is written to it.
type tail struct {
	noClock chan struct{} // closed when the kernel of an emulated guest has said noClock; nil: nobody waits for that

	mu   sync.Mutex // protects what follows
	text []byte
	said bool // noClock is closed
}

// noClock is what Linux says when the timer of an emulated processor seems to stand still: it compares that with another clock for a
// tenth of a second, in which the host may have given the emulator no processor. It then waits for ever for a tick.
const noClock = "disabling apic timer"

// tailSize is how much.
const tailSize = 2 << 10

// follow reads a console to its end.
func follow(r io.Reader) *tail {
	t := &tail{noClock: make(chan struct{})}
	go func() { _, _ = io.Copy(t, r) }()
	return t
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if t.noClock != nil && !t.said && bytes.Contains(t.text, []byte(noClock)) {
		t.said = true
		close(t.noClock)
	}
	if n := len(t.text) - tailSize; n > 0 {
		t.text = append(t.text[:0], t.text[n:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(clean(string(t.text)))
}
