package ingress

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/internal/panics"
)

// listener is one open listener.
type listener struct {
	in    *Ingress
	kind  listenerKind
	ln    net.Listener
	table atomic.Pointer[table]
	srv   *http.Server // nil for TCP

	ctx     context.Context // of requests
	cancel  context.CancelFunc
	serving sync.WaitGroup // the accepting goroutine, and those of TCP connections

	mu       sync.Mutex
	ended    *sync.Cond            // a request has, or a request has come by all connections
	requests int                   // now
	conns    map[net.Conn]*entered // of clients
	fresh    int                   // connections by which no request has come
	gone     bool                  // what comes now is closed at once
}

// entered is a client's connection.
type entered struct {
	asked bool   // a request has come by it
	give  func() // gives its share back
}

// open begins to serve a listener.
func (in *Ingress) open(ln net.Listener, t *table) *listener {
	d := &listener{in: in, kind: t.kind(), ln: ln, conns: map[net.Conn]*entered{}}
	d.table.Store(t)
	d.ended = sync.NewCond(&d.mu)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	if !t.http {
		d.serving.Go(d.acceptTCP)
		return d
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	d.srv = &http.Server{
		Handler: d, Protocols: protocols, ReadHeaderTimeout: in.opt.HeaderTimeout, IdleTimeout: in.opt.IdleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return d.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if t, ok := c.(*tls.Conn); ok {
				c = t.NetConn()
			}
			return context.WithValue(ctx, connOf{}, c)
		},
		ErrorLog: slog.NewLogLogger(in.opt.Log.Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return d.table.Load().certificate(h)
		}, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) { return d.table.Load().certs.challenges.config(h) }},
	}
	d.serving.Go(func() {
		l := &counted{ln, d}
		if t.tls {
			_ = d.srv.ServeTLS(l, "", "")
		} else {
			_ = d.srv.Serve(l)
		}
	})
	return d
}

// counted is a listener that keeps track of its connections.
type counted struct {
	net.Listener
	d *listener
}

func (l *counted) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		t := &tracked{Conn: c, d: l.d}
		if l.d.enter(t) {
			return t, nil
		}
	}
}

// tracked is a client's connection that reports its end.
type tracked struct {
	net.Conn
	d    *listener
	once sync.Once
}

func (c *tracked) Close() error {
	c.once.Do(func() { c.d.leave(c) })
	return c.Conn.Close()
}

// CloseWrite ends one direction, for connections that were taken over from HTTP.
func (c *tracked) CloseWrite() error { return closeWrite(c.Conn) }

// enter counts a connection, or closes it when there are too many, or too many of its client.
func (d *listener) enter(c net.Conn) bool {
	give, ok := d.in.conns.take(clientOf(c.RemoteAddr().String(), d.table.Load().trusted))
	if !ok {
		closeRaw(c)
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		give()
		closeRaw(c)
		return false
	}
	d.conns[c] = &entered{give: give}
	d.fresh++
	d.in.recent.note(c.RemoteAddr(), time.Now())
	return true
}

func closeRaw(c net.Conn) {
	if t, ok := c.(*tracked); ok {
		c = t.Conn
	}
	_ = c.Close()
}

func (d *listener) leave(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if k := d.conns[c]; k != nil {
		delete(d.conns, c)
		k.give()
		if !k.asked {
			d.noLongerFresh()
		}
	}
}

// noLongerFresh counts a connection that has brought a request or ended. The caller has the lock.
func (d *listener) noLongerFresh() {
	if d.fresh--; d.fresh == 0 {
		d.ended.Broadcast()
	}
}

// connOf is the key of a request's connection in its context.
type connOf struct{}

// begin counts a request, unless the end has come.
func (d *listener) begin(ctx context.Context) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return false
	}
	d.requests++
	if c, ok := ctx.Value(connOf{}).(net.Conn); ok {
		if k := d.conns[c]; k != nil && !k.asked {
			k.asked = true
			d.noLongerFresh()
		}
	}
	return true
}

func (d *listener) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests--
	d.ended.Broadcast()
}

// awaitFirst waits until a request has come by each connection: http.Server closes those by which it comes after Shutdown has begun. Some
// clients connect and never ask, so it waits no longer than firstRequest.
func (d *listener) awaitFirst(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstRequest)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ended.Broadcast()
	})()
	d.mu.Lock()
	defer d.mu.Unlock()
	for ctx.Err() == nil && d.fresh > 0 {
		d.ended.Wait()
	}
}

// firstRequest is how long connections are waited for, by which no request has come yet, when a listener closes.
const firstRequest = 500 * time.Millisecond

// drain waits until all requests and connections have ended, or cuts them off when ctx is done. The listener is closed.
func (d *listener) drain(ctx context.Context) {
	cut := context.AfterFunc(ctx, func() {
		d.mu.Lock()
		d.gone = true
		conns := make([]net.Conn, 0, len(d.conns))
		for c := range d.conns {
			conns = append(conns, c)
		}
		d.mu.Unlock()
		d.cancel()
		for _, c := range conns {
			closeRaw(c)
			d.leave(c)
		}
	})
	if d.srv != nil {
		d.serving.Wait() // else Shutdown may miss the connection that was accepted last
		d.awaitFirst(ctx)
		_ = d.srv.Shutdown(ctx)
		d.mu.Lock() // Shutdown does not wait for connections that were taken over
		for d.requests > 0 {
			d.ended.Wait()
		}
		d.mu.Unlock()
		_ = d.srv.Close()
	}
	d.serving.Wait()
	cut()
	d.cancel()
}

// acceptTCP takes connections until the listener is closed.
func (d *listener) acceptTCP() {
	for {
		c, err := d.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, or a client that left
			select {
			case <-time.After(10 * time.Millisecond):
			case <-d.in.cut.Done():
				return
			}
			continue
		}
		if d.enter(c) {
			d.serving.Go(func() {
				defer d.leave(c)
				defer c.Close()
				defer panics.Catch(d.in.opt.Log, "a connection at the ingress")
				d.carry(c)
			})
		}
	}
}
