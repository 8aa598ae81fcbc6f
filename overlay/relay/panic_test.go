package relay

import (
	"log/slog"
	"net/netip"
	"testing"

	"skerry.dev/skerry/overlay/relay/frame"
)

// TestPanicEndsNoRelay: a datagram on which the relay panics is lost, and nothing else.
func TestPanicEndsNoRelay(t *testing.T) {
	said := make(words, 8)
	s, err := New(Options{UDP: netip.MustParseAddrPort("127.0.0.1:0"), Log: slog.New(slog.NewTextHandler(said, nil))})
	must(t, err)
	defer s.Close()
	must(t, s.Set(of(1)))
	w := newWorker(t, s, 1)
	a := w.ask(frame.Register{Peer: 1, Nonce: 1})
	s.table.Lock()
	at := s.table.at
	s.table.at = nil // a registration cannot be noted
	s.table.Unlock()
	_, err = w.conn.Write(frame.Register{Peer: 1, Nonce: 2, Cookie: a.Cookie}.Append(nil, w.key))
	must(t, err)
	t.Log(<-said)
	s.table.Lock()
	s.table.at = at
	s.table.Unlock()
	w.register()
}

// words is where a log is written to.
type words chan string

func (w words) Write(b []byte) (int, error) { w <- string(b); return len(b), nil }
