package api

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/execstream"
	"skerry.dev/skerry/runtime"
)

// ContainerStats are the counters of one running container.
type ContainerStats struct {
	App       skerry.ServiceKey `json:"service"`
	Instance  skerry.InstanceID `json:"instance"`
	Container string            `json:"container"`
	CPULimit  skerry.MilliCPU   `json:"cpuLimit,omitempty"`
	Stats     runtime.Stats     `json:"stats"`
	RxBytes   int64             `json:"rxBytes"`
	TxBytes   int64             `json:"txBytes"`
}

// LogLine is one line of a log.
type LogLine struct {
	Time   time.Time `json:"time"`
	Stream string    `json:"stream"` // stdout or stderr
	Line   string    `json:"line"`
}

// LogOptions choose what of a log to read.
type LogOptions struct {
	Container string // default: main
	Follow    bool
	Previous  bool // of the run before
	Since     time.Time
	Tail      int // lines; 0 means all
}

// Logs calls fn for each line of an instance's log until the end, an error of fn, or the end of ctx.
func (c *Client) Logs(ctx context.Context, id skerry.InstanceID, o LogOptions, fn func(LogLine) error) error {
	q := query("container", o.Container, "follow", flag(o.Follow), "previous", flag(o.Previous), "tail", number(o.Tail))
	if !o.Since.IsZero() {
		q.Set("since", o.Since.UTC().Format(time.RFC3339Nano))
	}
	res, err := c.request(ctx, http.MethodGet, instancePath(id)+"/logs", q, nil, true)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	dec := json.NewDecoder(res.Body)
	for {
		var l LogLine
		err := dec.Decode(&l)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return c.unreachable(err)
		}
		if err := fn(l); err != nil {
			return err
		}
	}
}

// WatchFilter chooses what to watch; empty fields choose all.
type WatchFilter struct {
	Namespace, App string
	Kinds          []string // WatchApp, WatchInstance, WatchEvent
}

// watchSilence is how long a watch may be silent before it is begun anew; the server beats more often.
const watchSilence = 45 * time.Second

// Watch calls fn for what there is, then WatchSynced, then each change, until ctx ends or fn gives an error. A lost
// connection is made again: fn then gets WatchMissed, everything anew and WatchSynced; what is not told again is gone.
func (c *Client) Watch(ctx context.Context, f WatchFilter, fn func(WatchMessage) error) error {
	q := query("namespace", f.Namespace, "app", f.App)
	for i, k := range f.Kinds {
		if i > 0 {
			k = q.Get("kinds") + "," + k
		}
		q.Set("kinds", k)
	}
	backoff := 100 * time.Millisecond
	for begun := false; ; {
		err := c.watchOnce(ctx, q, func(m WatchMessage) error {
			if m.Type == WatchBeat {
				return nil
			}
			if begun {
				begun = false
				if err := fn(WatchMessage{Type: WatchMissed}); err != nil {
					return err
				}
			}
			backoff = 100 * time.Millisecond
			return fn(m)
		})
		var own *ownError
		if errors.As(err, &own) {
			return own.error
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			switch skerry.AsError(err).Code {
			case skerry.CodeUnavailable, skerry.CodeRateLimited, skerry.CodeInternal:
			default:
				return err
			}
		}
		begun = true
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return ctx.Err()
		}
		backoff = min(2*backoff, 5*time.Second)
	}
}

// ownError is the error of a caller's function, which ends a watch.
type ownError struct{ error }

func (c *Client) watchOnce(ctx context.Context, query url.Values, fn func(WatchMessage) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(watchSilence, cancel)
	defer silence.Stop()
	res, err := c.request(ctx, http.MethodGet, "/v1/watch", query, nil, true)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	dec := json.NewDecoder(res.Body)
	for {
		var m WatchMessage
		if err := dec.Decode(&m); err != nil {
			return c.unreachable(err)
		}
		silence.Reset(watchSilence)
		if err := fn(m); err != nil {
			return &ownError{err}
		}
	}
}

// ExecOptions say what to run inside an instance.
type ExecOptions struct {
	Command   []string
	Container string
	User      string
	TTY       bool
	Stdin     bool
	Env       []string
}

// Exec runs a command inside an instance. The caller speaks package execstream over the connection and closes closer.
func (c *Client) Exec(ctx context.Context, id skerry.InstanceID, o ExecOptions) (*execstream.Conn, io.Closer, error) {
	q := query("container", o.Container, "user", o.User, "tty", flag(o.TTY), "stdin", flag(o.Stdin))
	q["command"], q["env"] = o.Command, o.Env
	conn, err := c.upgrade(ctx, instancePath(id)+"/exec", q, execstream.ProtoExec)
	if err != nil {
		return nil, nil, err
	}
	return execstream.New(conn), conn, nil
}

// PortForward connects to a port of an instance.
func (c *Client) PortForward(ctx context.Context, id skerry.InstanceID, port int) (net.Conn, error) {
	return c.upgrade(ctx, instancePath(id)+"/portforward", url.Values{"port": {strconv.Itoa(port)}}, execstream.ProtoForward)
}

// upgrade sends a request on a connection of its own and takes the connection over.
func (c *Client) upgrade(ctx context.Context, path string, query url.Values, proto string) (net.Conn, error) {
	refused := ""
	for try := 0; ; try++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url(path, query), nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", proto)
		token, err := c.sign(ctx, req, refused)
		if err != nil {
			return nil, err
		}
		conn, err := c.dial(ctx)
		if err != nil {
			return nil, c.unreachable(err)
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		if err = req.Write(conn); err != nil {
			stop()
			conn.Close()
			return nil, c.unreachable(err)
		}
		br := bufio.NewReader(conn)
		res, err := http.ReadResponse(br, req)
		if err != nil {
			stop()
			conn.Close()
			return nil, c.unreachable(err)
		}
		if res.StatusCode == http.StatusSwitchingProtocols {
			if !stop() {
				return nil, ctx.Err()
			}
			return execstream.Joined{Conn: conn, R: br}, nil
		}
		err = readProblem(res)
		stop()
		conn.Close()
		if res.StatusCode == http.StatusUnauthorized && try == 0 && c.opt.Bearer == "" {
			refused = token
			continue
		}
		return nil, err
	}
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	dial := c.opt.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	host := c.base.Host
	if c.base.Port() == "" {
		host = net.JoinHostPort(c.base.Hostname(), "80")
	}
	conn, err := dial(ctx, "tcp", host)
	if err != nil || c.base.Scheme == "http" {
		return conn, err
	}
	t := tls.Client(conn, c.tls)
	if err := t.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return t, nil
}
