// Package httpend ends an http.Server without losing a request that is on its way by a new connection: http.Server itself closes
// connections by which the first request is read after Shutdown has begun. It owns nothing of the server.
package httpend

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// FirstRequest is how long to wait for the first request by a connection. Some clients connect and never ask.
const FirstRequest = 500 * time.Millisecond

// Fresh knows the connections by which no request has come yet.
type Fresh struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
	none  chan struct{} // closed when there are none; nil: nobody waits for that
}

// connOf is the key of a request's connection in its context.
type connOf struct{}

// Watch has a server that does not serve yet tell of its connections.
func Watch(srv *http.Server) *Fresh {
	f := &Fresh{conns: map[net.Conn]struct{}{}}
	handler, state := srv.Handler, srv.ConnState
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connOf{}).(net.Conn); ok {
			f.leave(c)
		}
		handler.ServeHTTP(w, r)
	})
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connOf{}, c) }
	srv.ConnState = func(c net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			f.mu.Lock()
			f.conns[c] = struct{}{}
			f.mu.Unlock()
		case http.StateClosed, http.StateHijacked:
			f.leave(c)
		}
		if state != nil {
			state(c, s)
		}
	}
	return f
}

func (f *Fresh) leave(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
	if len(f.conns) == 0 && f.none != nil {
		close(f.none)
		f.none = nil
	}
}

// Await waits until a request has come by each connection, for FirstRequest at most. The listener is closed, and one goroutine calls it.
func (f *Fresh) Await() {
	f.mu.Lock()
	if len(f.conns) == 0 {
		f.mu.Unlock()
		return
	}
	none := make(chan struct{})
	f.none = none
	f.mu.Unlock()
	t := time.NewTimer(FirstRequest)
	defer t.Stop()
	select {
	case <-none:
	case <-t.C:
	}
}
