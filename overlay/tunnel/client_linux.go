package tunnel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/wire"
)

// StartOptions say how a datapath is started.
type StartOptions struct {
	// Dir holds the control socket and the log; it must exist and be root's alone.
	Dir string
	// Command runs Main; "--dir DIR" is added.
	Command []string
	// Shelter moves the process out of the agent's cgroup, before it does anything; nil leaves it there.
	Shelter func(pid int) error
	// Env is added to the process's environment, which is empty but for limits of memory.
	Env []string
	// Tied has a datapath that is started end with its client: when that is closed, or its process ends however it may.
	Tied bool

	patience time.Duration // answerIn if 0; tests have less
}

// Client is the agent's end of talking to a datapath. Its methods may be used at the same time.
type Client struct {
	conn     net.Conn
	hello    Hello
	patience time.Duration // for one answer
	events   chan Event
	ended    chan struct{}

	mu     sync.Mutex
	number uint64
	wait   map[uint64]chan answer
	err    error // why the connection ended

	writing sync.Mutex

	leash   *os.File // nil: the datapath outlives the client
	dir     string
	leasing sync.Mutex    // of the following
	keep    *net.UnixConn // the lease of sockets; nil: none
	over    bool
}

// ErrNotRunning says that there is no datapath in a directory.
var ErrNotRunning = errors.New("no datapath is running")

// Start gives the datapath that runs in a directory, or starts one. One that speaks another control version is replaced: its
// tap stays, and packets wait in there; its peers begin new sessions.
func Start(ctx context.Context, o StartOptions) (*Client, error) {
	if o.patience == 0 {
		o.patience = answerIn
	}
	client, err := connect(ctx, o.Dir, o.patience)
	if err == nil && client.hello.Control == ControlVersion {
		return client, nil
	}
	if err == nil {
		err = client.Stop(ctx)
		client.Close()
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // who asks has no time left, which is not the datapath's fault
	}
	if err != nil && !errors.Is(err, ErrNotRunning) {
		// It runs, but does not talk as it should: it is ended as whoever holds the lock.
		if err := kill(o.Dir); err != nil {
			return nil, err
		}
	}
	leash, err := launch(o)
	if err != nil {
		return nil, fmt.Errorf("start the datapath: %w", err)
	}
	if client, err = await(ctx, o.Dir); err != nil {
		leash.Close()
		return nil, err
	}
	client.leash = leash
	return client, nil
}

// startFor is how long a datapath may take until its socket is there.
const startFor = 15 * time.Second

func await(ctx context.Context, dir string) (*Client, error) {
	ctx, cancel := context.WithTimeout(ctx, startFor)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		c, err := Connect(ctx, dir)
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			text, _ := os.ReadFile(filepath.Join(dir, logFile))
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			return nil, fmt.Errorf("start the datapath: %w; its last words: %q", err, lines[len(lines)-1])
		case <-time.After(wait):
		}
	}
}

// launch starts the process. The file that it gives is the end of a leash; nil where there is none.
func launch(o StartOptions) (*os.File, error) {
	log, err := os.OpenFile(filepath.Join(o.Dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	args := append(append([]string{}, o.Command[1:]...), "--dir", o.Dir, "--wait")
	if o.Tied {
		args = append(args, "--tied")
	}
	cmd := exec.Command(o.Command[0], args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, log, log
	// Buffers are bounded and there is little else: collecting often costs nothing, and keeps it small.
	cmd.Env = append([]string{"GOGC=40", "GOMEMLIMIT=48MiB"}, o.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		out.Close()
		return nil, err
	}
	if o.Shelter != nil {
		if err := o.Shelter(cmd.Process.Pid); err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			out.Close()
			return nil, err
		}
	}
	go func() { _ = cmd.Wait() }() // while this agent lives; afterwards it is init's
	if !o.Tied {
		out.Close()
		return nil, nil
	}
	if _, err := out.Write([]byte{1}); err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

// holder gives the process that holds the lock of a directory; 0: none.
func holder(dir string) int {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		return 0
	}
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	return pid
}

// kill ends the process that holds the lock of a directory, and waits until it has.
func kill(dir string) error {
	for range 1000 {
		pid := holder(dir)
		if pid <= 1 {
			return nil
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			return fmt.Errorf("end the datapath %d: %w", pid, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("the datapath in %s does not end", dir)
}

// Connect talks to the datapath that runs in a directory; ErrNotRunning when there is none.
func Connect(ctx context.Context, dir string) (*Client, error) { return connect(ctx, dir, answerIn) }

func connect(ctx context.Context, dir string, patience time.Duration) (*Client, error) {
	at, path, err := short(dir, socketFile)
	if err != nil {
		return nil, fmt.Errorf("%w in %s", ErrNotRunning, dir)
	}
	defer at.Close()
	n, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		if holder(dir) == 0 {
			return nil, fmt.Errorf("%w in %s", ErrNotRunning, dir)
		}
		return nil, fmt.Errorf("connect to the datapath: %w", err)
	}
	c := &Client{dir: dir, conn: n, patience: patience, events: make(chan Event, eventRoom), ended: make(chan struct{}),
		wait: map[uint64]chan answer{}}
	go c.read()
	a, err := c.ask(ctx, request{Op: opHello})
	if err != nil || a.Hello == nil {
		c.Close()
		return nil, fmt.Errorf("connect to the datapath: %w", errors.Join(err, errMalformedIf(a.Hello == nil)))
	}
	c.hello = *a.Hello
	return c, nil
}

func errMalformedIf(bad bool) error {
	if bad {
		return errors.New("it did not say hello")
	}
	return nil
}

// Hello tells which datapath it is.
func (c *Client) Hello() Hello { return c.hello }

func (c *Client) read() {
	defer close(c.events)
	defer close(c.ended)
	l := newLines(c.conn)
	for {
		data, err := l.next()
		var a answer
		if err == nil {
			err = json.Unmarshal(data, &a)
		}
		if err != nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		}
		if a.Event != nil {
			select {
			case c.events <- *a.Event:
			default: // the reader is slow; Status tells how things are
			}
			continue
		}
		c.mu.Lock()
		w := c.wait[a.Number]
		delete(c.wait, a.Number)
		c.mu.Unlock()
		if w != nil {
			w <- a
		}
	}
}

// answerIn is how long a datapath may take for an answer. It takes milliseconds; one that does not answer hangs.
const answerIn = 10 * time.Second

// ErrHangs says that a datapath runs, and does not answer. Its connection is closed; Start replaces it.
var ErrHangs = errors.New("the datapath does not answer")

// ask waits for an answer until ctx ends, but not for longer than answerIn.
func (c *Client) ask(ctx context.Context, q request) (answer, error) {
	limit, cancel := context.WithTimeoutCause(ctx, c.patience, ErrHangs)
	defer cancel()
	a, err := c.exchange(limit, q)
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(limit), ErrHangs) || errors.Is(err, os.ErrDeadlineExceeded) {
		c.conn.Close()
		return a, fmt.Errorf("ask the datapath: %w in %s", ErrHangs, c.patience)
	}
	return a, err
}

func (c *Client) exchange(ctx context.Context, q request) (answer, error) {
	w := make(chan answer, 1)
	c.mu.Lock()
	c.number++
	q.Number = c.number
	c.wait[q.Number] = w
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.wait, q.Number)
		c.mu.Unlock()
	}()
	data, err := json.Marshal(q)
	if err != nil {
		return answer{}, err
	}
	c.writing.Lock()
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.patience))
	_, err = c.conn.Write(append(data, '\n'))
	c.writing.Unlock()
	if err != nil {
		c.conn.Close() // half a request would spoil the next
		return answer{}, fmt.Errorf("ask the datapath: %w", err)
	}
	var a answer
	select {
	case a = <-w:
	case <-c.ended:
		select {
		case a = <-w: // it came just before
		default:
			c.mu.Lock()
			defer c.mu.Unlock()
			return a, fmt.Errorf("ask the datapath: it has ended: %w", c.err)
		}
	case <-ctx.Done():
		return a, ctx.Err()
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// Set makes the datapath what a configuration says.
func (c *Client) Set(ctx context.Context, cfg Config) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	_, err := c.ask(ctx, request{Op: opSet, Config: &cfg})
	return err
}

// Status tells how things are.
func (c *Client) Status(ctx context.Context) (Status, error) {
	a, err := c.ask(ctx, request{Op: opStatus})
	if err != nil || a.Status == nil {
		return Status{}, err
	}
	return *a.Status, nil
}

// Unknown tells a peer that no instance here has an address that it sent to.
func (c *Client) Unknown(ctx context.Context, peer wire.PeerID, net wire.NetworkID, addr netip.Addr) error {
	_, err := c.ask(ctx, request{Op: opUnknown, Peer: peer, Network: net, Addr: addr})
	return err
}

// Look has the datapath see at once whether relays and peers still hear from here: the way out may be another one, though no
// address of this machine has changed. A datapath of an earlier version does not know how.
func (c *Client) Look(ctx context.Context) error {
	_, err := c.ask(ctx, request{Op: opLook})
	return err
}

// Ping asks a peer for a sign of life by the ways to it, and gives how long ago the last one came; false: none ever, or it is no peer. A
// datapath of an earlier version does not know how.
func (c *Client) Ping(ctx context.Context, peer wire.PeerID) (ago time.Duration, ok bool, err error) {
	a, err := c.ask(ctx, request{Op: opPing, Peer: peer})
	if err != nil || a.Heard == nil {
		return 0, false, err
	}
	return time.Duration(*a.Heard), true, nil
}

// Events gives what happens, until the connection ends.
func (c *Client) Events() <-chan Event { return c.events }

// Stop ends the datapath and waits until it has ended.
func (c *Client) Stop(ctx context.Context) error {
	if _, err := c.ask(ctx, request{Op: opStop}); err != nil {
		return err
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	pid := c.hello.PID
	c.Close()
	hangs := time.Now().Add(c.patience)
	for ctx.Err() == nil {
		if unix.Kill(pid, 0) == unix.ESRCH || ended(pid) {
			return nil
		}
		if time.Now().After(hangs) { // it has let go of everything, but is there
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return ctx.Err()
}

// ended says whether a process waits for its parent to take note of its end.
func ended(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// Close ends the connection; the datapath goes on.
func (c *Client) Close() error {
	c.release()
	c.conn.Close()
	c.leash.Close() // nil does not mind
	<-c.ended
	return nil
}
