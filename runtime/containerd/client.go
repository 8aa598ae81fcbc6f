package containerd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Namespace is where all of ours is at a daemon.
const Namespace = "skerry"

// maxAnswer bounds what a daemon answers.
const maxAnswer = 16 << 20

// Code is a status of gRPC.
type Code int

// The statuses that mean something here.
const (
	CodeUnknown       Code = 2
	CodeNotFound      Code = 5
	CodeAlreadyExists Code = 6
	CodePrecondition  Code = 9
	CodeUnimplemented Code = 12
	CodeUnavailable   Code = 14
)

// CallError is a daemon's refusal.
type CallError struct {
	Method  string // the last part of its name
	Code    Code
	Message string
}

func (e *CallError) Error() string { return fmt.Sprintf("containerd: %s: %s", e.Method, e.Message) }

// NotFound reports whether an error says that a thing is not there.
func NotFound(err error) bool { return has(err, CodeNotFound) }

func has(err error, code Code) bool {
	e, ok := errors.AsType[*CallError](err)
	return ok && e.Code == code
}

// Client speaks with one daemon. It is safe for concurrent use. The gRPC in it is what unary calls need: one message each way, over HTTP/2
// without TLS on a Unix socket.
type Client struct {
	Socket string
	http   *http.Client
}

// NewClient makes a client for a socket; nothing is opened yet.
func NewClient(socket string) *Client {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &Client{socket, &http.Client{Transport: &http.Transport{
		Protocols: &p, DisableCompression: true, IdleConnTimeout: time.Minute,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
}

// Close closes connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// callTime is how long a daemon may take for a call, but to wait for the end of a process.
const callTime = 2 * time.Minute

// call is one unary call; service and method name it, as in "tasks.v1.Tasks", "Get".
func (c *Client) call(ctx context.Context, service, method string, m message) ([]byte, error) {
	if method != "Wait" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTime)
		defer cancel()
	}
	frame := make([]byte, 5, 5+len(m)) // not compressed, and the length
	binary.BigEndian.PutUint32(frame[1:], uint32(len(m)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://containerd/containerd.services."+service+"/"+method,
		bytes.NewReader(append(frame, m...)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	req.Header.Set("containerd-namespace", Namespace)
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("containerd: %s: %w", method, errors.Unwrap(err)) // the URL would tell nobody anything
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("containerd: %s: %w", method, err)
	}
	if err := outcome(resp, method); err != nil {
		return nil, err
	}
	body, err := unframe(answer)
	if err != nil {
		return nil, fmt.Errorf("containerd: %s: %w", method, err)
	}
	return body, nil
}

// outcome reads the status, which is in the trailers, or among the headers where there is no answer.
func outcome(resp *http.Response, method string) error {
	status, h := resp.Trailer.Get("grpc-status"), resp.Trailer
	if status == "" {
		status, h = resp.Header.Get("grpc-status"), resp.Header
	}
	code, err := strconv.Atoi(status)
	if err != nil {
		return fmt.Errorf("containerd: %s: %w: it answered %s without a status of gRPC", method, errMessage, resp.Status)
	}
	if code == 0 {
		return nil
	}
	text, err := url.PathUnescape(h.Get("grpc-message"))
	if err != nil {
		text = h.Get("grpc-message")
	}
	return &CallError{method, Code(code), text}
}

// unframe takes the one message out of an answer.
func unframe(b []byte) ([]byte, error) {
	if len(b) < 5 || b[0] != 0 || uint64(binary.BigEndian.Uint32(b[1:])) != uint64(len(b)-5) {
		return nil, fmt.Errorf("%w: %d bytes are not one message", errMessage, len(b))
	}
	return b[5:], nil
}
