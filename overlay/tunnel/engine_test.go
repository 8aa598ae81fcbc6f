//go:build linux

package tunnel

import (
	"testing"

	"skerry.dev/skerry/overlay"
)

func TestPair(t *testing.T) {
	a, b := pair(t, true)
	peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	must(t, transfer(a, b, false, 1000))
	must(t, transfer(b, a, true, 1000))
	must(t, transfer(a, b, false, 50<<20))
	must(t, transfer(b, a, true, 50<<20))
	for _, s := range []*station{a, b} {
		eventually(t, "a direct path", func() bool { p := s.status().Peers[0]; return p.Path == overlay.PathDirect && p.RTT > 0 })
		p := s.status().Peers[0]
		if p.RxBytes < 50<<20 || p.TxBytes < 50<<20 || p.Handshake.IsZero() || p.Cipher == "" || p.Reason != "" {
			t.Errorf("%+v", p)
		}
	}
}
