// Package execstream is the protocol of a terminal or command inside an instance, spoken over an upgraded HTTP connection
// from the user's command down to the worker. Tiers in between pass it on unread.
//
// A frame is one byte of type, four bytes of length (big endian, at most MaxFrame) and the payload.
package execstream

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Protocols named in the Upgrade header.
const (
	ProtoExec    = "skerry-exec/1"
	ProtoForward = "skerry-tcp/1"
)

// MaxFrame is the largest payload in bytes.
const MaxFrame = 64 << 10

// Type is the first byte of a frame.
type Type byte

// Types of frames.
const (
	Stdin    Type = 0 // to the worker
	Stdout   Type = 1
	Stderr   Type = 2
	Resize   Type = 3 // to the worker: Size as JSON
	Exit     Type = 4 // from the worker, the last: Result as JSON
	StdinEOF Type = 5 // to the worker
)

// Size is the size of a terminal in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Result is how a command ended. Error is not empty when it could not be run.
type Result struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

// Conn reads and writes frames. Write is safe for concurrent use, Read is not.
type Conn struct {
	rw io.ReadWriter
	r  *bufio.Reader
	mu sync.Mutex
}

// New makes a Conn over a connection.
func New(rw io.ReadWriter) *Conn { return &Conn{rw: rw, r: bufio.NewReaderSize(rw, 8<<10)} }

// Read gives the next frame. A frame that is too large is an error.
func (c *Conn) Read() (Type, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes; at most %d are allowed", n, MaxFrame)
	}
	buf := make([]byte, n)
	_, err := io.ReadFull(c.r, buf)
	return Type(head[0]), buf, err
}

// Write sends a payload, in several frames if it is long.
func (c *Conn) Write(t Type, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for first := true; first || len(p) > 0; first = false {
		n := min(len(p), MaxFrame)
		buf := make([]byte, 5+n)
		buf[0] = byte(t)
		binary.BigEndian.PutUint32(buf[1:], uint32(n))
		copy(buf[5:], p[:n])
		if _, err := c.rw.Write(buf); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// WriteJSON sends a value as JSON.
func (c *Conn) WriteJSON(t Type, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.Write(t, data)
}

// CallEvery is how often whoever called a command is written to.
const CallEvery = 10 * time.Second

// CallBack writes to whoever called a command, without saying anything, until ctx ends, and tells once that fails. While the command reads
// no input, what was typed is in the way of reading that the caller has hung up.
func (c *Conn) CallBack(ctx context.Context, every time.Duration, hungUp func()) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if c.Write(Stdout, nil) != nil {
				hungUp()
				return
			}
		}
	}
}

// Writer gives a writer whose bytes become frames of a type.
func (c *Conn) Writer(t Type) io.Writer { return writer{c, t} }

type writer struct {
	c *Conn
	t Type
}

func (w writer) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := w.c.Write(w.t, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Accept upgrades a request to a protocol and takes its connection over. On failure it has answered.
func Accept(w http.ResponseWriter, r *http.Request, proto string) (net.Conn, *bufio.ReadWriter, error) {
	if r.Header.Get("Upgrade") != proto {
		http.Error(w, "this needs Upgrade: "+proto, http.StatusUpgradeRequired)
		return nil, nil, fmt.Errorf("upgrade to %q instead of %s", r.Header.Get("Upgrade"), proto)
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "the connection cannot be taken over", http.StatusInternalServerError)
		return nil, nil, err
	}
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", proto)
	if err != nil {
		conn.Close()
	}
	return conn, buf, err
}

// Joined reads what was buffered before what comes, for a connection that was taken over.
type Joined struct {
	net.Conn
	R io.Reader
}

func (j Joined) Read(p []byte) (int, error) { return j.R.Read(p) }
