//go:build linux

package nft

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// What instances send is read without trust, and answered only where it is a segment of TCP.
func FuzzFrame(f *testing.F) {
	a, b := netip.MustParseAddr("10.64.0.1"), netip.MustParseAddr("fd00::1")
	f.Add(segment(a, netip.MustParseAddr("10.30.0.1"), 1000, 80, 1, 2, 2))
	f.Add(segment(b, netip.MustParseAddr("fd30:5ce7::1"), 1000, 80, 1, 2, 16, 1, 2, 3))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, ok := parse(data)
		if !ok {
			return
		}
		out := answerReset(p, p.dst)
		if out == nil {
			return
		}
		q, ok := parse(out)
		if !ok || p.proto != unix.IPPROTO_TCP || q.src != p.dst || q.dst != p.src || q.sport != p.dport || q.dport != p.sport || q.body[13]&4 == 0 {
			t.Errorf("%x is answered by %x", data, out)
		}
	})
}

func FuzzVerdict(f *testing.F) {
	f.Add([]byte{8, 0, 1, 0, 0xff, 0xff, 0xff, 0xfc, 7, 0, 2, 0, 's', '-', 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if s := chainOf(data); len(s) > len(data) {
			t.Errorf("%q of %x", s, data)
		}
	})
}
