package beat

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestQuickly(t *testing.T) {
	parent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	child, err := net.DialUDP("udp", nil, parent.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	raw, err := child.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var in [Size + 1]byte
	if n, err := quickly(raw, []byte("beat"), in[:], time.Millisecond); n != 0 || err != nil {
		t.Errorf("without an answer: %d bytes, %v", n, err)
	}
	var got [Size + 1]byte
	n, from, err := parent.ReadFrom(got[:])
	if err != nil || string(got[:n]) != "beat" {
		t.Fatalf("the parent got %q, %v", got[:n], err)
	}
	if _, err := parent.WriteTo([]byte("answer"), from); err != nil {
		t.Fatal(err)
	}
	// On the loopback device it has come already.
	if n, err := quickly(raw, []byte("beat"), in[:], time.Minute); err != nil || string(in[:n]) != "answer" {
		t.Errorf("the answer: %q, %v", in[:n], err)
	}
	parent.Close()
	if _, err := quickly(raw, []byte("beat"), in[:], time.Minute); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("to a closed port: %v", err)
	}
	child.Close()
	if _, err := quickly(raw, []byte("beat"), in[:], time.Minute); err == nil {
		t.Error("by a closed connection: no error")
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
