package beat

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"
)

// TestPanicEndsNoBeats: a beat on which the parent panics is lost, and those that come after it are taken.
func TestPanicEndsNoBeats(t *testing.T) {
	said := make(words, 8)
	l, err := Listen("127.0.0.1:0", time.Minute, slog.New(slog.NewTextHandler(said, nil)), func(string, time.Time, bool) {})
	if err != nil {
		t.Fatal(err)
	}
	watch := l.watch
	l.watch = nil
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	session := Session{ID: [4]byte{1}, Key: [32]byte{1}}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(l.conn.LocalAddr().(*net.UDPAddr).AddrPort()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	beat := func(seq uint32) {
		if _, err := c.Write(session.append(nil, kindBeat, seq)); err != nil {
			t.Fatal(err)
		}
	}
	beat(1)
	wg.Go(func() { _ = l.Run(ctx) })
	t.Log(<-said) // by what looks who is silent, or by the beat
	l.mu.Lock()
	l.watch = watch
	l.mu.Unlock()
	l.Add("w1", session, nil)
	for seq := uint32(2); ; seq++ {
		beat(seq)
		var in [Size + 1]byte
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := c.Read(in[:]); err == nil && n > 0 {
			break
		}
		if seq > 200 {
			t.Fatal("beats are answered no longer")
		}
	}
}

type words chan string

func (w words) Write(b []byte) (int, error) { w <- string(b); return len(b), nil }
