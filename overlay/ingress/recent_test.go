package ingress

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

func TestRecentClients(t *testing.T) {
	in, _, _ := start(t, Options{})
	now := time.Now()
	note := func(a string, at time.Time) { in.recent.note(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a)), at) }
	note("192.0.2.1:1000", now.Add(-time.Minute))
	note("192.0.2.2:1000", now)
	note("[::ffff:192.0.2.3]:1000", now.Add(-2*time.Minute))
	note("198.51.100.1:1", now.Add(-recentFor))
	if a, ok := in.ClientIn(netip.MustParsePrefix("192.0.2.0/24")); !ok || a.String() != "192.0.2.2" {
		t.Errorf("%s, %v", a, ok)
	}
	if a, ok := in.ClientIn(netip.MustParsePrefix("198.51.100.0/24")); ok {
		t.Errorf("%s is remembered", a)
	}
	for i := range 3 * maxRecent {
		note(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1).String(), now)
	}
	if n := len(in.recent.at); n > maxRecent {
		t.Errorf("%d are remembered", n)
	}
	in.recent.note(nil, now)
}
