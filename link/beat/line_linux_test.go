package beat

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// parentAndLine are a socket that answers nothing by itself and the way to it.
func parentAndLine(t *testing.T) (*net.UDPConn, *line) {
	t.Helper()
	parent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { parent.Close() })
	l, err := dial(parent.LocalAddr().(*net.UDPAddr).AddrPort())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return parent, l
}

// heard is the next datagram that the parent gets, and from where.
func heard(t *testing.T, parent *net.UDPConn) (string, netip.AddrPort) {
	t.Helper()
	var b [Size + 1]byte
	n, from, err := parent.ReadFromUDPAddrPort(b[:])
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n]), from
}

func TestExchange(t *testing.T) {
	parent, l := parentAndLine(t)
	var in [Size + 1]byte
	if n, err := l.exchange([]byte("first"), in[:], time.Millisecond); n != 0 || err != nil {
		t.Errorf("without an answer: %d bytes, %v", n, err)
	}
	got, from := heard(t, parent)
	if got != "first" {
		t.Fatalf("the parent got %q, want %q", got, "first")
	}
	// Its answer comes too late, and while the next beat waits for its own.
	if _, err := parent.WriteTo([]byte("late"), net.UDPAddrFromAddrPort(from)); err != nil {
		t.Fatal(err)
	}
	go func() {
		var b [Size + 1]byte
		if n, from, err := parent.ReadFromUDPAddrPort(b[:]); err == nil && string(b[:n]) == "second" {
			_, _ = parent.WriteTo([]byte("answer"), net.UDPAddrFromAddrPort(from))
		}
	}()
	if n, err := l.exchange([]byte("second"), in[:], time.Minute); err != nil || string(in[:n]) != "answer" {
		t.Errorf("the answer: got %q, %v, want %q", in[:n], err, "answer")
	}
	parent.Close()
	if _, err := l.exchange([]byte("beat"), in[:], time.Minute); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("to a closed port: got %v, want %v", err, unix.ECONNREFUSED)
	}
}

// TestReceive waits by the poller after an exchange in vain, from the same port, and leaves the poller with the next exchange.
func TestReceive(t *testing.T) {
	parent, l := parentAndLine(t)
	var in [Size + 1]byte
	ports := map[uint16]bool{}
	for range 2 {
		if n, err := l.exchange([]byte("beat"), in[:], time.Millisecond); n != 0 || err != nil {
			t.Fatalf("without an answer: got %d bytes, %v, want none", n, err)
		}
		if l.polled != nil {
			t.Error("the socket of an exchange is with the poller, want it by itself")
		}
		_, from := heard(t, parent)
		ports[from.Port()] = true
		if n, err := l.receive(t.Context(), in[:], time.Now().Add(time.Millisecond)); err == nil {
			t.Errorf("nothing was sent: got %d bytes, want an error", n)
		}
		if _, err := parent.WriteTo([]byte("answer"), net.UDPAddrFromAddrPort(from)); err != nil {
			t.Fatal(err)
		}
		if n, err := l.receive(t.Context(), in[:], time.Now().Add(time.Minute)); err != nil || string(in[:n]) != "answer" {
			t.Errorf("the answer: got %q, %v, want %q", in[:n], err, "answer")
		}
	}
	if len(ports) != 1 {
		t.Errorf("beats came from ports %v, want one", ports)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := l.receive(ctx, in[:], time.Now().Add(time.Hour)); err == nil {
		t.Errorf("after the end: got %d bytes, want an error", n)
	}
}

// TestTooManyDescriptors has none left for the poller: answers are taken nevertheless.
func TestTooManyDescriptors(t *testing.T) {
	parent, l := parentAndLine(t)
	if err := l.send([]byte("beat")); err != nil {
		t.Fatal(err)
	}
	_, from := heard(t, parent)
	if _, err := parent.WriteTo([]byte("answer"), net.UDPAddrFromAddrPort(from)); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Cur: 0, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	var in [Size + 1]byte
	n, err := l.receive(t.Context(), in[:], time.Now().Add(time.Minute))
	if backErr := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); backErr != nil {
		t.Fatal(backErr)
	}
	if err != nil || string(in[:n]) != "answer" {
		t.Errorf("the answer: got %q, %v, want %q", in[:n], err, "answer")
	}
}

// TestNobodyWaitsForItself has the parent in the same process, which has one processor: it answers once nothing waits any more. What a wait
// adds to the round trip must not make the next one longer, nor may the process stand still for each beat.
func TestNobodyWaitsForItself(t *testing.T) {
	const trip, interval, beats = 100 * time.Microsecond, time.Second, 1000
	now := time.Unix(1000, 0)
	p, quick := NewPulse(interval, now), haste{}
	waits, most := 0, time.Duration(0)
	for range beats {
		seq, ok := p.Send(now)
		if !ok {
			t.Fatalf("no beat is due at %v", now)
		}
		took := trip
		if rtt := p.rtt; quick.on(rtt) {
			waits++
			took, most = took+2*rtt, max(most, 2*rtt)
			quick.waited(false)
		}
		p.Answer(now.Add(took), seq)
		now = p.Due()
	}
	if waits == 0 || waits > beats/hasteRest || most > 4*trip {
		t.Errorf("%d of %d beats waited, up to %v", waits, beats, most)
	}
}

// TestHaste has every beat wait that is answered in time.
func TestHaste(t *testing.T) {
	var quick haste
	for _, c := range []struct {
		rtt  time.Duration
		want bool
	}{{0, false}, {time.Millisecond, true}, {quickRTT, true}, {quickRTT + 1, false}, {time.Millisecond, true}} {
		if got := quick.on(c.rtt); got != c.want {
			t.Errorf("with a round trip of %v it waits: %v", c.rtt, got)
		}
		quick.waited(true)
	}
}

// TestInterruptedExchange: a signal, as Go's scheduler sends them, ends no wait.
func TestInterruptedExchange(t *testing.T) {
	parent, l := parentAndLine(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, process := unix.Gettid(), unix.Getpid()
	go func() {
		var b [Size + 1]byte
		_, from, err := parent.ReadFromUDPAddrPort(b[:])
		for range 100 {
			_ = unix.Tgkill(process, thread, unix.SIGURG)
		}
		if err == nil {
			_, _ = parent.WriteTo([]byte("answer"), net.UDPAddrFromAddrPort(from))
		}
	}()
	var in [Size + 1]byte
	if n, err := l.exchange([]byte("beat"), in[:], time.Minute); err != nil || string(in[:n]) != "answer" {
		t.Errorf("the answer: got %q, %v, want %q", in[:n], err, "answer")
	}
}
