package cluster

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/internal/roundtrip"
	"skerry.dev/skerry/overlay/relay"
	"skerry.dev/skerry/wire"
)

// Two gateways measure each other over the ports of their relays. The one that has no key gets no answer.
func TestGatewaysMeasureOverTheirRelays(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	open := func(name string) (*roundtrip.Meter, string) {
		var r *relay.Server
		m := roundtrip.Share(func(b []byte, to netip.AddrPort) error { return r.Send(b, to) }, slog.New(slog.DiscardHandler))
		r, err := relay.New(relay.Options{Name: name, UDP: netip.MustParseAddrPort("127.0.0.1:0"),
			Probe: func(b []byte, from netip.AddrPort) { m.Take(time.Now(), b, from) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		wg.Go(func() { m.Run(ctx) })
		return m, r.UDP().String()
	}
	a, atA := open("a")
	b, atB := open("b")
	stranger, _ := open("c")
	key := []byte("the key of a federation's gateways")
	a.SetPeers(wire.Peers{KeyID: 7, Key: key, List: []string{atB}})
	b.SetPeers(wire.Peers{KeyID: 7, Key: key, List: []string{atA}})
	stranger.SetPeers(wire.Peers{KeyID: 7, Key: []byte("another"), List: []string{atA, atB}})
	for _, m := range []*roundtrip.Meter{a, b} {
		for len(m.Heard(4)) == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		if h := m.Heard(4); len(h) != 1 || h[0].Ms < 0 || h[0].Ms > 1000 {
			t.Errorf("it heard %+v", h)
		}
	}
	if h := stranger.Heard(4); len(h) != 0 {
		t.Errorf("a stranger was answered: %+v", h)
	}
}
