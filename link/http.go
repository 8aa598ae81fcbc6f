package link

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"skerry.dev/skerry/wire"
)

// StreamHTTP is the kind of streams that carry HTTP/1.1.
const StreamHTTP = "http"

// Opener opens streams: a *Peer or a *Client.
type Opener interface {
	OpenStream(ctx context.Context, h *wire.StreamHeader) (net.Conn, error)
}

// NewTransport gives a transport whose requests travel over streams to whoever open finds at that moment; the host of
// the URL does not matter. Idle connections are closed after 20 s, so that the stream connection can rest.
// CloseIdleConnections frees them at once.
func NewTransport(open func() (Opener, error)) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			o, err := open()
			if err != nil {
				return nil, err
			}
			return o.OpenStream(ctx, &wire.StreamHeader{Kind: StreamHTTP})
		},
		MaxIdleConnsPerHost: 2, IdleConnTimeout: 20 * time.Second, ResponseHeaderTimeout: time.Minute,
		DisableCompression: true, // images are compressed already; logs must not wait in a compressor
	}
}

// HTTPStreams serves HTTP requests from streams. Register Serve for StreamHTTP in a StreamMux.
type HTTPStreams struct {
	srv    *http.Server
	l      *streamListener
	served chan struct{} // closed when the server has ended
}

type peerContext struct{}

// PeerFrom gives the peer whose stream carries a request, or nil.
func PeerFrom(ctx context.Context) *Peer {
	p, _ := ctx.Value(peerContext{}).(*Peer)
	return p
}

// NewHTTPStreams serves h; Close ends it.
func NewHTTPStreams(h http.Handler) *HTTPStreams {
	s := &HTTPStreams{l: &streamListener{in: make(chan net.Conn), done: make(chan struct{})}, served: make(chan struct{})}
	s.srv = &http.Server{
		Handler: h, ReadHeaderTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if pc, ok := c.(*httpConn); ok {
				ctx = context.WithValue(ctx, peerContext{}, pc.peer)
			}
			return ctx
		},
	}
	go func() {
		defer close(s.served)
		s.srv.Serve(s.l)
	}()
	return s
}

// httpConn lets the stream's function wait until the HTTP server (or who hijacked the connection) is done with it.
type httpConn struct {
	net.Conn
	peer *Peer
	once sync.Once
	done chan struct{}
}

func (c *httpConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.done) })
	return err
}

// Serve is a StreamFunc.
func (s *HTTPStreams) Serve(p *Peer, _ *wire.StreamHeader, conn net.Conn) {
	c := &httpConn{Conn: conn, peer: p, done: make(chan struct{})}
	select {
	case s.l.in <- c:
	case <-s.l.done:
		return
	}
	select {
	case <-c.done:
	case <-p.down:
		c.Close()
	}
}

// Close ends all requests. It is idempotent.
func (s *HTTPStreams) Close() error {
	s.l.Close()
	err := s.srv.Close()
	<-s.served
	return err
}

// streamListener hands streams to an HTTP server.
type streamListener struct {
	in   chan net.Conn // unbuffered; Serve waits
	done chan struct{}
	once sync.Once
}

func (l *streamListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.in:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *streamListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *streamListener) Addr() net.Addr { return streamAddr{} }

type streamAddr struct{}

func (streamAddr) Network() string { return "stream" }
func (streamAddr) String() string  { return "stream" }
