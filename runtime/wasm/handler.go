//go:build linux

package wasm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/httpend"
	"skerry.dev/skerry/runtime"
)

// Defaults of a runtime.Handler, and bounds that nobody chooses.
const (
	defaultTimeout     = 10 * time.Second
	defaultConcurrency = 8
	defaultBody        = 8 * skerry.MiB
	maxHeader          = 64 << 10
	// maxWaiting is how many requests may wait for each that runs.
	maxWaiting = 8
	maxClients = 1000
)

func withDefaults(h runtime.Handler) runtime.Handler {
	if h.Timeout <= 0 {
		h.Timeout = defaultTimeout
	}
	if h.Concurrency <= 0 {
		h.Concurrency = defaultConcurrency
	}
	if h.MaxBody <= 0 {
		h.MaxBody = defaultBody
	}
	return h
}

// serve runs the module for each request until the stop signal, and then until the last has its answer.
func (e *engine) serve(ln net.Listener) (int, error) {
	h := withDefaults(*e.p.Handler)
	s := &handler{e: e, h: h, turns: make(chan struct{}, h.Concurrency), waiting: make(chan struct{}, h.Concurrency*(1+maxWaiting)),
		port: strconv.Itoa(int(e.p.Ports[0]))}
	srv := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(io.Discard, "", 0)}
	fresh := httpend.Watch(srv)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	done := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		ln.Close()
		fresh.Await()
		done <- srv.Shutdown(context.Background())
	})
	err := srv.Serve(&bounded{Listener: ln, slots: make(chan struct{}, maxClients)})
	if ctx.Err() == nil {
		return exitBroken, err
	}
	return 0, <-done
}

// bounded accepts no more connections than it has slots.
type bounded struct {
	net.Listener
	slots chan struct{}
}

func (b *bounded) Accept() (net.Conn, error) {
	b.slots <- struct{}{}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.slots
		return nil, err
	}
	return &slot{Conn: c, free: func() { <-b.slots }}, nil
}

type slot struct {
	net.Conn
	free func()
}

func (s *slot) Close() error {
	err := s.Conn.Close()
	if !errors.Is(err, net.ErrClosed) {
		s.free()
	}
	return err
}

// handler answers requests by runs of the module, in the manner of CGI (RFC 3875).
type handler struct {
	e       *engine
	h       runtime.Handler
	turns   chan struct{} // holds a token for each run
	waiting chan struct{} // and for each request that runs or waits
	port    string
}

func (s *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A client that does not send or take its bytes must not hold the run for longer than it may take. The request before
	// on this connection has left its own times.
	rc := http.NewResponseController(w)
	late := time.Now().Add(s.h.Timeout)
	_ = rc.SetReadDeadline(late.Add(time.Second)) // after the run's own end, or the client would seem to have gone
	_ = rc.SetWriteDeadline(late.Add(5 * time.Second))
	switch {
	case r.ContentLength < 0:
		http.Error(w, "say how long the body is (Content-Length)", http.StatusLengthRequired)
		return
	case r.ContentLength > int64(s.h.MaxBody):
		http.Error(w, fmt.Sprintf("the body has more than %s", s.h.MaxBody), http.StatusRequestEntityTooLarge)
		return
	case strings.ContainsRune(r.URL.Path, 0):
		http.Error(w, "the path contains a NUL", http.StatusBadRequest)
		return
	}
	select {
	case s.waiting <- struct{}{}:
		defer func() { <-s.waiting }()
	default:
		busy(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.h.Timeout)
	defer cancel()
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-ctx.Done():
		busy(w)
		return
	}
	a := &answer{w: w, left: int64(s.h.MaxBody), full: cancel}
	c := s.e.config(append(s.e.p.Env[:len(s.e.p.Env):len(s.e.p.Env)],
		cgi(r, s.port)...)).WithStdin(r.Body).WithStdout(a).WithStderr(os.Stderr).
		WithNanosleep(func(ns int64) { // which must not outlast the run
			t := time.NewTimer(time.Duration(ns))
			defer t.Stop()
			select {
			case <-t.C:
			case <-ctx.Done():
			}
		})
	code, err := s.e.once(ctx, c)
	short := (*noMemory)(nil)
	switch {
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // nobody is there any more
	case a.err != nil:
		err = a.err
	case ctx.Err() != nil:
		err = fmt.Errorf("it took more than %s", s.h.Timeout)
	case err == nil && code != 0:
		err = fmt.Errorf("it ended with status %d", code)
	case err == nil && !a.begun:
		err = errors.New("it ended before the header of its answer")
	case err == nil:
		return
	}
	fmt.Fprintf(os.Stderr, "%s %s: %v\n", r.Method, r.URL.Path, err)
	switch {
	case a.begun: // what was sent cannot be taken back; a connection cut short tells
		panic(http.ErrAbortHandler)
	case errors.As(err, &short):
		busy(w)
	case ctx.Err() != nil && a.err == nil:
		http.Error(w, "the service took too long", http.StatusGatewayTimeout)
	default:
		http.Error(w, "the service gave no proper answer", http.StatusBadGateway)
	}
}

func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "the service is busy", http.StatusServiceUnavailable)
}
