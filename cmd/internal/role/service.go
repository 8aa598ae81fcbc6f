// Package role has what the commands of roles share: flags, joining, the service around a role, and the socket on which a role answers
// commands on its machine. It knows no role; whoever adds a role to a program imports it.
package role

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
	"time"

	"skerry.dev/skerry/internal/signals"
)

type ended struct {
	name string
	err  error
}

// Service runs the parts of a role in one process. They start in order and stop in reverse.
type Service struct {
	log     *slog.Logger
	done    chan ended
	started []running
	closers []func() error

	watchdog *Watchdog
}

type running struct {
	name   string
	cancel context.CancelFunc
	ended  chan struct{}
}

// NewService begins a service: from here on, the watchdog hears of it.
func NewService(log *slog.Logger) *Service {
	// A lost terminal does not end a role. The signals are caught and dropped rather than ignored, for what is ignored is so in
	// the containers that the role starts, too, and a shell in there could not even trap it.
	dropped := make(chan os.Signal, 1)
	signal.Notify(dropped, syscall.SIGHUP, os.Interrupt)
	signals.CatchIgnored(dropped)
	return &Service{log: log, done: make(chan ended, 16), watchdog: StartWatchdog()}
}

// Start starts a part, which runs until its context ends. That is its own, so that the parts end one after the other.
func (s *Service) Start(name string, run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := running{name, cancel, make(chan struct{})}
	s.started = append(s.started, r)
	go func() {
		err := run(ctx)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil
		}
		close(r.ended)
		s.done <- ended{name, err}
	}()
}

// Closer adds what is to be closed after all parts have ended, last first.
func (s *Service) Closer(f func() error) { s.closers = append(s.closers, f) }

// ErrUpgrade ends the parts of a role whose process goes on, to exchange its program.
var ErrUpgrade = errors.New("the program is upgraded")

// Wait waits until ready is closed; a part that ends first is an error.
func (s *Service) Wait(ctx context.Context, what string, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case e := <-s.done:
		return s.early(e)
	case <-ctx.Done():
		return fmt.Errorf("stopped while waiting for %s", what)
	}
}

func (s *Service) early(e ended) error {
	if e.err == nil {
		return fmt.Errorf("%s stopped unexpectedly", e.name)
	}
	return fmt.Errorf("%s: %w", e.name, e.err)
}

// Run says that the service is ready, waits until ctx ends or a part does, and stops everything.
func (s *Service) Run(ctx context.Context, ready string) error {
	notify("READY=1\nSTATUS=" + ready)
	s.log.Info(ready)
	var err error
	select {
	case <-ctx.Done():
	case e := <-s.done:
		err = s.early(e)
	}
	if !errors.Is(err, ErrUpgrade) { // systemd would end what follows
		notify("STOPPING=1")
	}
	return errors.Join(err, s.Stop())
}

// Watch has the watchdog look at a loop of the role, too: look returns when the loop has done something.
func (s *Service) Watch(look func(context.Context)) { s.watchdog.add(look) }

// Stop ends the parts in reverse order and closes what they used. What runs on the machine runs on.
func (s *Service) Stop() error {
	defer s.watchdog.Stop() // ending may take its time, which the unit bounds
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

// Frugal trades some CPU for memory: a role is idle most of the time, and its garbage would double what it keeps. GOGC wins.
func Frugal() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(40)
	}
}

// Listening waits until a role listens; the address is known a moment after the role is up.
func (s *Service) Listening(ctx context.Context, name string, ok func() bool) error {
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for !ok() {
		select {
		case <-t.C:
		case e := <-s.done:
			return s.early(e)
		case <-ctx.Done():
			return errors.New("stopped while the " + name + " was starting")
		}
	}
	return nil
}
