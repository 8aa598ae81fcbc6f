package tunnel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"

	"skerry.dev/skerry/wire"
)

// ControlVersion is that of what agent and datapath say to each other. A datapath of another one is replaced.
const ControlVersion = 2

// The agent and the datapath exchange lines of JSON: a request is answered by one answer with its number; events come in
// between, on every connection.

// Operations.
const (
	opHello   = "hello"
	opSet     = "set"
	opStatus  = "status"
	opUnknown = "unknown"
	opLook    = "look"
	opPing    = "ping"
	opStop    = "stop"
)

type request struct {
	Number  uint64         `json:"n"`
	Op      string         `json:"op"`
	Config  *Config        `json:"config,omitempty"`
	Peer    wire.PeerID    `json:"peer,omitempty"`
	Network wire.NetworkID `json:"net,omitempty"`
	Addr    netip.Addr     `json:"addr,omitzero"`
}

type answer struct {
	Number uint64  `json:"n,omitempty"` // 0: an event
	Error  string  `json:"error,omitempty"`
	Hello  *Hello  `json:"hello,omitempty"`
	Status *Status `json:"status,omitempty"`
	Heard  *int64  `json:"heard,omitempty"` // of ping: how long ago, in nanoseconds; nothing: never, or there is no such peer
	Event  *Event  `json:"event,omitempty"`
}

// Hello says which datapath it is.
type Hello struct {
	Control int    `json:"control"` // ControlVersion
	Version string `json:"version"` // of the program
	PID     int    `json:"pid"`
}

const (
	// maxLine is the longest line: a configuration of thousands of peers.
	maxLine = 16 << 20
	// maxControllers is how many connections there may be at once.
	maxControllers = 8
	controlEvents  = 64
)

// controller serves an engine on a unix socket.
type controller struct {
	e     *Engine
	hello Hello
	stop  func() // ends the datapath

	mu   sync.Mutex
	open map[*conn]bool
}

// conn is one connection of an agent.
type conn struct {
	net.Conn
	mu     sync.Mutex // of writing
	events chan Event // what does not fit is dropped; Status tells how things are
}

// serve takes connections until the listener closes.
func (c *controller) serve(ctx context.Context, ln net.Listener) {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { c.spread(ctx) })
	for {
		n, err := ln.Accept()
		if err != nil {
			return
		}
		k := &conn{Conn: n, events: make(chan Event, controlEvents)}
		c.mu.Lock()
		full := len(c.open) >= maxControllers
		if !full {
			c.open[k] = true
		}
		c.mu.Unlock()
		if full {
			n.Close()
			continue
		}
		wg.Go(func() {
			defer func() {
				c.mu.Lock()
				delete(c.open, k)
				c.mu.Unlock()
				n.Close()
			}()
			stop := context.AfterFunc(ctx, func() { n.Close() })
			defer stop()
			c.talk(ctx, k)
		})
	}
}

// spread gives events to every connection.
func (c *controller) spread(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case ev, ok := <-c.e.Events():
			if !ok {
				return
			}
			c.mu.Lock()
			for k := range c.open {
				select {
				case k.events <- ev:
				default:
				}
			}
			c.mu.Unlock()
		}
	}
}

func (k *conn) write(a answer) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err = k.Write(append(b, '\n'))
	return err
}

// talk answers one connection's requests.
func (c *controller) talk(ctx context.Context, k *conn) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case ev := <-k.events:
				if k.write(answer{Event: &ev}) != nil {
					k.Close()
					return
				}
			}
		}
	})
	lines := newLines(k)
	for {
		b, err := lines.next()
		if err != nil {
			return
		}
		q, err := parseRequest(b)
		a := answer{Number: q.Number}
		if err == nil {
			err = c.do(q, &a)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if k.write(a) != nil {
			return
		}
		if q.Op == opStop && err == nil {
			c.stop()
			return
		}
	}
}

func parseRequest(b []byte) (q request, err error) {
	if err := json.Unmarshal(b, &q); err != nil {
		return q, fmt.Errorf("request: %w", err)
	}
	if q.Op == opSet && q.Config == nil {
		return q, errors.New("request: set without a configuration")
	}
	return q, nil
}

func (c *controller) do(q request, a *answer) error {
	switch q.Op {
	case opHello:
		a.Hello = &c.hello
	case opSet:
		return c.e.Set(*q.Config)
	case opStatus:
		st, err := c.e.Status()
		a.Status = &st
		return err
	case opUnknown:
		return c.e.Unknown(q.Peer, q.Network, q.Addr)
	case opLook:
		return c.e.Look()
	case opPing:
		ago, ok, err := c.e.Ping(q.Peer)
		if n := int64(ago); ok {
			a.Heard = &n
		}
		return err
	case opStop:
	default:
		return fmt.Errorf("request: the datapath does not know %q; it may be of an older version", q.Op)
	}
	return nil
}

// lines reads lines of bounded length. Its buffer grows when it must and does not stay large.
type lines struct{ r *bufio.Reader }

func newLines(r io.Reader) *lines { return &lines{bufio.NewReaderSize(r, 4096)} }

func (l *lines) next() ([]byte, error) {
	var whole []byte
	for {
		b, err := l.r.ReadSlice('\n')
		if err == nil && whole == nil {
			return b, nil
		}
		whole = append(whole, b...)
		if err == nil {
			return whole, nil
		}
		if err != bufio.ErrBufferFull {
			return nil, err
		}
		if len(whole) > maxLine {
			return nil, fmt.Errorf("a line of more than %d bytes: %w", maxLine, os.ErrInvalid)
		}
	}
}
