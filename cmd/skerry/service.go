package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"skerry.dev/skerry/internal/signals"
)

// part is something that runs until its context ends. Parts start in order and stop in reverse.
type part struct {
	name string
	run  func(ctx context.Context) error
}

type ended struct {
	name string
	err  error
}

// service runs the parts of a role in one process.
type service struct {
	log     *slog.Logger
	done    chan ended
	started []running
	closers []func() error

	watchdog *watchdog
}

type running struct {
	name   string
	cancel context.CancelFunc
	ended  chan struct{}
}

func newService(log *slog.Logger) *service {
	// A lost terminal does not end a role. The signals are caught and dropped rather than ignored, for what is ignored is so in
	// the containers that the role starts, too, and a shell in there could not even trap it.
	dropped := make(chan os.Signal, 1)
	signal.Notify(dropped, syscall.SIGHUP, os.Interrupt)
	signals.CatchIgnored(dropped)
	return &service{log: log, done: make(chan ended, 16), watchdog: startWatchdog()}
}

// start starts a part. Its context is its own, so that the parts end one after the other.
func (s *service) start(p part) {
	ctx, cancel := context.WithCancel(context.Background())
	r := running{p.name, cancel, make(chan struct{})}
	s.started = append(s.started, r)
	go func() {
		err := p.run(ctx)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil
		}
		close(r.ended)
		s.done <- ended{p.name, err}
	}()
}

// closer adds what is to be closed after all parts have ended, last first.
func (s *service) closer(f func() error) { s.closers = append(s.closers, f) }

// errUpgrade ends the parts of a role whose process goes on, to exchange its program.
var errUpgrade = errors.New("the program is upgraded")

// wait waits until ready is closed; a part that ends first is an error.
func (s *service) wait(ctx context.Context, what string, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case e := <-s.done:
		return s.early(e)
	case <-ctx.Done():
		return fmt.Errorf("stopped while waiting for %s", what)
	}
}

func (s *service) early(e ended) error {
	if e.err == nil {
		return fmt.Errorf("%s stopped unexpectedly", e.name)
	}
	return fmt.Errorf("%s: %w", e.name, e.err)
}

// run says that the service is ready, waits until ctx ends or a part does, and stops everything.
func (s *service) run(ctx context.Context, ready string) error {
	notify("READY=1\nSTATUS=" + ready)
	s.log.Info(ready)
	var err error
	select {
	case <-ctx.Done():
	case e := <-s.done:
		err = s.early(e)
	}
	if !errors.Is(err, errUpgrade) { // systemd would end what follows
		notify("STOPPING=1")
	}
	return errors.Join(err, s.stop())
}

// stop ends the parts in reverse order and closes what they used. What runs on the machine runs on.
func (s *service) stop() error {
	defer s.watchdog.stop() // ending may take its time, which the unit bounds
	s.watchdog.clear()
	var errs []error
	for i := len(s.started) - 1; i >= 0; i-- {
		s.started[i].cancel()
		<-s.started[i].ended
	}
	for len(s.done) > 0 {
		if e := <-s.done; e.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", e.name, e.err))
		}
	}
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.started, s.closers = nil, nil
	return errors.Join(errs...)
}

// notify tells systemd how the service fares; without systemd it does nothing.
func notify(state string) {
	addr := os.Getenv("NOTIFY_SOCKET")
	if addr == "" {
		return
	}
	if strings.HasPrefix(addr, "@") {
		addr = "\x00" + addr[1:]
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: addr, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	c.Write([]byte(state))
}

// frugal trades some CPU for memory: a role is idle most of the time, and its garbage would double what it keeps. The
// environment variables of the Go runtime win.
func frugal(gcPercent int, softLimit int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" && softLimit > 0 {
		debug.SetMemoryLimit(softLimit)
	}
}
