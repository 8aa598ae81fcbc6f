//go:build unix

package role

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// TestWatchdog: systemd hears of a service for as long as its loop makes progress, and of another process's never.
func TestWatchdog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hear := func() (string, error) {
		var buf [256]byte
		n, err := conn.Read(buf[:])
		return string(buf[:n]), err
	}
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "30000")
	t.Setenv("WATCHDOG_PID", "1")
	if d := watchdogTime(); d != 0 {
		t.Errorf("a word every %v is wanted of another process", d)
	}
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	if d := watchdogTime(); d != 30*time.Millisecond {
		t.Errorf("a word every %v", d)
	}
	s := NewService(slog.New(slog.DiscardHandler))
	for range 3 { // it starts
		if m, err := hear(); m != "WATCHDOG=1" || err != nil {
			t.Fatalf("%q, %v", m, err)
		}
	}
	asked, free := make(chan struct{}), make(chan struct{})
	s.Watch(func(ctx context.Context) {
		select {
		case asked <- struct{}{}:
		case <-ctx.Done():
			return
		}
		select {
		case <-free:
		case <-ctx.Done():
		}
	})
	for range 3 { // the loop hangs, and then goes on
		<-asked
		if err := conn.SetReadDeadline(time.Now()); err != nil {
			t.Fatal(err)
		}
		for { // said before it was asked
			if _, err := hear(); err != nil {
				break
			}
		}
		if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if m, err := hear(); err == nil {
			t.Fatalf("%q of a loop that hangs", m)
		}
		if err := conn.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		free <- struct{}{}
		if m, err := hear(); m != "WATCHDOG=1" || err != nil {
			t.Fatalf("%q, %v", m, err)
		}
	}
	if err := s.Stop(); err != nil { // also while the loop hangs
		t.Fatal(err)
	}
}

// Every role's unit has systemd start it again when it hangs.
func TestUnitsHaveWatchdogs(t *testing.T) {
	for _, role := range []string{"root", "cluster", "worker"} {
		text, err := os.ReadFile("../../../packaging/systemd/skerry-" + role + ".service")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`(?m)^Type=notify$`, `(?m)^WatchdogSec=\d+$`, `(?m)^Restart=always$`} {
			if !regexp.MustCompile(want).Match(text) {
				t.Errorf("%s: no %s", role, want)
			}
		}
	}
}
