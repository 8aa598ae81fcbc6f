package link

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/yamux"
)

// Duplex carries HTTP/1.1 over one connection in both directions, between two processes of which each has something that the other needs.
type Duplex struct {
	// Transport sends requests to the other end; the host of their URL does not matter.
	Transport *http.Transport

	sess   *yamux.Session
	srv    *http.Server
	served chan struct{}
}

// NewDuplex serves h to the other end. dialed says which of both this is. Close ends it, and the connection.
func NewDuplex(conn net.Conn, dialed bool, keepAlive time.Duration, serves http.Handler) (*Duplex, error) {
	begin := yamux.Server
	if dialed {
		begin = yamux.Client
	}
	sess, err := begin(conn, yamuxConfig(keepAlive))
	if err != nil {
		return nil, err
	}
	both := &Duplex{sess: sess, served: make(chan struct{}), srv: &http.Server{Handler: serves, ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}}
	both.Transport = &http.Transport{
		DialContext:         func(context.Context, string, string) (net.Conn, error) { return sess.Open() },
		MaxIdleConnsPerHost: 2, IdleConnTimeout: 20 * time.Second, ResponseHeaderTimeout: time.Minute, DisableCompression: true,
	}
	go func() {
		defer close(both.served)
		both.srv.Serve(sess)
		sess.Close()
	}()
	return both, nil
}

// Done is closed when the connection has ended.
func (d *Duplex) Done() <-chan struct{} { return d.sess.CloseChan() }

// Close ends all requests. It is idempotent.
func (d *Duplex) Close() error {
	err := d.sess.Close()
	d.srv.Close()
	d.Transport.CloseIdleConnections()
	<-d.served
	return err
}

var _ io.Closer = (*Duplex)(nil)
