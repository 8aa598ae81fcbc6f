package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/internal/httpend"
)

// Listen says where and how the interface is offered.
type Listen struct {
	Addr string // host:port; port 0 takes a free one
	// Names are the host names and addresses that the certificate of the site's CA is for, beside those of the machine.
	Names []string
	// CertFile and KeyFile give another certificate (PEM). Both or none.
	CertFile, KeyFile string
	// Plain offers HTTP without TLS, which is refused on other than loopback addresses unless Insecure says that it is meant.
	Plain, Insecure bool
	// Front answers in place of the REST interface, on which it stands; nil: the interface itself answers.
	Front http.Handler
}

// maxHeader bounds the header of a request in bytes.
const maxHeader = 64 << 10

// Server is a Handler with its listener.
type Server struct {
	h     *Handler
	l     Listen
	http  *http.Server
	first *httpend.Fresh
	ln    atomic.Pointer[net.Listener]

	mu       sync.Mutex // protects fresh, idle, conns, stopping
	fresh    map[net.Conn]struct{}
	idle     map[net.Conn]struct{}
	conns    int
	stopping bool
}

// NewServer makes the server; Open listens and Run serves.
func NewServer(h *Handler, l Listen) (*Server, error) {
	if l.Addr == "" {
		return nil, errors.New("no address to listen on is given")
	}
	if (l.CertFile == "") != (l.KeyFile == "") {
		return nil, errors.New("certificate and key require each other")
	}
	s := &Server{h: h, l: l, fresh: map[net.Conn]struct{}{}, idle: map[net.Conn]struct{}{}}
	var front http.Handler = h
	if l.Front != nil {
		front = l.Front
	}
	s.http = &http.Server{Handler: front, ConnState: s.connState, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(h.opt.Log.Handler(), slog.LevelDebug),
		// Terminals and forwards take a connection over, which HTTP/2 does not have.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}
	s.first = httpend.Watch(s.http)
	return s, nil
}

// Handler gives the interface without the listener.
func (s *Server) Handler() *Handler { return s.h }

// Open listens.
func (s *Server) Open() error {
	ln, err := net.Listen("tcp", s.l.Addr)
	if err != nil {
		return err
	}
	if s.l.Plain {
		if a, ok := ln.Addr().(*net.TCPAddr); !s.l.Insecure && (!ok || !a.IP.IsLoopback()) {
			ln.Close()
			return fmt.Errorf("%s is not a loopback address; without TLS passwords would be readable on the network", s.l.Addr)
		}
		s.ln.Store(&ln)
		return nil
	}
	conf, err := s.tls()
	if err != nil {
		ln.Close()
		return err
	}
	ln = tls.NewListener(ln, conf)
	s.ln.Store(&ln)
	return nil
}

func (s *Server) tls() (*tls.Config, error) {
	if s.l.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(s.l.CertFile, s.l.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("certificate: %w", err)
		}
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}, nil
	}
	conf, err := s.h.opt.Backend.Authority().HTTPS(slices.Concat(s.l.Names, machineNames(s.l.Addr)))
	if err == nil {
		conf.NextProtos = []string{"http/1.1"}
	}
	return conf, err
}

// machineNames are the names under which clients may reach an address: loopback, the host's name, its addresses.
func machineNames(addr string) []string {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if host, _, err := net.SplitHostPort(addr); err == nil && host != "" {
		names = append(names, host)
	}
	if n, err := os.Hostname(); err == nil {
		names = append(names, n)
	}
	list, _ := net.InterfaceAddrs()
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && len(names) < 64 {
			names = append(names, n.IP.String())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Addr is where it listens, or nil before Open.
func (s *Server) Addr() net.Addr {
	if ln := s.ln.Load(); ln != nil {
		return (*ln).Addr()
	}
	return nil
}

// URL is where it listens, for a client on this machine.
func (s *Server) URL() string {
	a, ok := s.Addr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	host := a.IP.String()
	if a.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "https"
	if s.l.Plain {
		scheme = "http"
	}
	return scheme + "://" + net.JoinHostPort(host, fmt.Sprint(a.Port))
}

// Connections of which nobody waits for an answer, and all. A client that only holds them takes descriptors that the role needs for its
// links.
const (
	maxQuiet = 1024
	maxConns = 8192
)

// connState keeps account of connections that have asked nothing yet, or nothing more. An orderly shutdown waits for them as for requests,
// though nobody waits for an answer. Where there are too many, any one of them goes.
func (s *Server) connState(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	stopping := s.stopping
	delete(s.fresh, conn)
	delete(s.idle, conn)
	switch state {
	case http.StateNew:
		s.fresh[conn] = struct{}{}
		s.conns++
	case http.StateIdle:
		s.idle[conn] = struct{}{}
	case http.StateClosed, http.StateHijacked: // who took it over has limits of its own
		s.conns--
	}
	var drop net.Conn
	if state == http.StateNew && (stopping || s.conns > maxConns) {
		drop = conn
	} else if len(s.fresh)+len(s.idle) > maxQuiet {
		for _, list := range []map[net.Conn]struct{}{s.fresh, s.idle} {
			for conn := range list {
				if 2*len(list) > maxQuiet {
					drop = conn
				}
				break
			}
		}
	}
	s.mu.Unlock()
	if t, ok := drop.(*tls.Conn); ok {
		t.NetConn().Close() // without a word, for which it would wait
	} else if drop != nil {
		drop.Close()
	}
}

func (s *Server) closeFresh() {
	s.mu.Lock()
	s.stopping = true
	fresh := slices.Collect(maps.Keys(s.fresh))
	s.mu.Unlock()
	for _, c := range fresh {
		c.Close()
	}
}

// stopWait is how long requests may go on when the server stops, and shortWait until those see its end that would never end by themselves.
const (
	stopWait  = 3 * time.Second
	shortWait = 250 * time.Millisecond
)

// Run serves until ctx ends; streams end with it.
func (s *Server) Run(ctx context.Context) error {
	ln := s.ln.Load()
	if ln == nil {
		if err := s.Open(); err != nil {
			return err
		}
		ln = s.ln.Load()
	}
	// Streams see the end of the server through their request's context.
	base, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.http.BaseContext = func(net.Listener) context.Context { return base }
	done := make(chan error, 1)
	go func() { done <- s.http.Serve(*ln) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	(*ln).Close()
	<-done // else Shutdown may miss the connection that was accepted last
	s.first.Await()
	s.closeFresh()
	shut := func(within time.Duration) error {
		ctx, stop := context.WithTimeout(context.Background(), within)
		defer stop()
		return s.http.Shutdown(ctx)
	}
	if shut(shortWait) == nil {
		return nil
	}
	cancel()
	if err := shut(stopWait); err != nil {
		s.h.opt.Log.Warn("requests are cut off because the server stops", "after", stopWait, "err", err)
		s.http.Close()
	}
	return nil
}
