package api

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"skerry.dev/skerry/internal/execstream"
)

// Browsers take a connection over by WebSocket alone, and cannot send an Authorization header with it. So the access
// token comes as a protocol, bearer.TOKEN, beside the one that is spoken; only the latter is answered. What is inside of the
// messages is the byte stream of execstream, so that the tiers below see no difference.

const (
	webSocketExec   = "skerry-exec.1"
	webSocketBearer = "bearer."
)

// webSocketToken gives the access token of a WebSocket's request; empty for any other.
func webSocketToken(r *http.Request) string {
	if !websocket.IsWebSocketUpgrade(r) {
		return ""
	}
	for _, p := range websocket.Subprotocols(r) {
		if t, ok := strings.CutPrefix(p, webSocketBearer); ok {
			return t
		}
	}
	return ""
}

// sameOrigin reports whether a request comes from a page of this server, or from no page. The Upgrader asks the same,
// when it is too late for an answer.
func sameOrigin(r *http.Request) bool {
	origin := r.Header.Values("Origin")
	if len(origin) == 0 {
		return true
	}
	u, err := url.Parse(origin[0])
	return err == nil && len(origin) == 1 && strings.EqualFold(u.Host, r.Host)
}

// asStream makes a WebSocket's request one of execstream. Refusals are answered as they are; the WebSocket begins when
// the connection is taken over.
func asStream(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	down := r.Clone(r.Context())
	for k := range down.Header {
		if strings.HasPrefix(k, "Sec-Websocket-") {
			down.Header.Del(k)
		}
	}
	down.Header.Set("Upgrade", execstream.ProtoExec)
	return &streamWriter{ResponseWriter: w, r: r}, down
}

type streamWriter struct {
	http.ResponseWriter
	r *http.Request
}

// Hijack begins the WebSocket.
func (s *streamWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	up := websocket.Upgrader{Subprotocols: []string{webSocketExec}, HandshakeTimeout: 10 * time.Second, ReadBufferSize: 4 << 10,
		WriteBufferSize: 4 << 10, Error: func(http.ResponseWriter, *http.Request, int, error) {}} // the caller answers
	c, err := up.Upgrade(hijackable{s.ResponseWriter}, s.r, nil)
	if err != nil {
		return nil, nil, err
	}
	c.SetReadLimit(2 * execstream.MaxFrame)
	conn := &webSocketConn{Conn: c.NetConn(), ws: c}
	return conn, bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn)), nil
}

// hijackable shows the Hijacker below what wraps it.
type hijackable struct{ http.ResponseWriter }

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(h.ResponseWriter).Hijack()
}

// webSocketConn is the byte stream inside of a WebSocket's binary messages. What is written first is the answer to the
// upgrade of the stream, which the WebSocket's own has told already: it is left out.
type webSocketConn struct {
	net.Conn // addresses and deadlines
	ws       *websocket.Conn
	in       io.Reader // the message that is read
	head     []byte
	begun    bool
}

// maxAnswer bounds the head of the answer that is left out.
const maxAnswer = 16 << 10

func (c *webSocketConn) Write(p []byte) (int, error) {
	rest := p
	if !c.begun {
		c.head = append(c.head, p...)
		i := bytes.Index(c.head, []byte("\r\n\r\n"))
		if i < 0 {
			if len(c.head) > maxAnswer {
				return 0, errors.New("an answer without an end")
			}
			return len(p), nil
		}
		c.begun, rest, c.head = true, c.head[i+4:], nil
	}
	if len(rest) > 0 {
		if err := c.ws.WriteMessage(websocket.BinaryMessage, rest); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (c *webSocketConn) Read(data []byte) (int, error) {
	for {
		if c.in == nil {
			kind, in, err := c.ws.NextReader()
			if err != nil {
				if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway) {
					err = io.EOF
				}
				return 0, err
			}
			if kind != websocket.BinaryMessage {
				return 0, errors.New("a text message in a stream of bytes")
			}
			c.in = in
		}
		n, err := c.in.Read(data)
		if err == io.EOF {
			c.in, err = nil, nil
			if n == 0 {
				continue
			}
		}
		return n, err
	}
}

// Close says so to the browser, which would otherwise take it for a broken line.
func (c *webSocketConn) Close() error {
	c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
	return c.ws.Close()
}
