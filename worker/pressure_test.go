//go:build linux

package worker

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"skerry.dev/skerry"
)

func TestAccelerators(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"nvidiactl", "dri/renderD128", "dri/renderD129", "apex_0"} {
		os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700)
		os.WriteFile(filepath.Join(dir, name), nil, 0o600)
	}
	if g, n := accelerators(dir); g != 2 || n != 1 {
		t.Errorf("%d and %d", g, n)
	}
	os.WriteFile(filepath.Join(dir, "nvidia0"), nil, 0o600)
	if g, _ := accelerators(dir); g != 1 {
		t.Errorf("%d: one card has nodes of both kinds", g)
	}
}

func TestLinkSpeed(t *testing.T) {
	dir := t.TempDir()
	os.MkdirAll(filepath.Join(dir, "class/net/eth0"), 0o700)
	os.WriteFile(filepath.Join(dir, "class/net/eth0/speed"), []byte("1000\n"), 0o600)
	if n := linkSpeed(dir, "eth0"); n != 125_000_000 {
		t.Errorf("%d bytes/s", n)
	}
	os.WriteFile(filepath.Join(dir, "class/net/eth0/speed"), []byte("-1\n"), 0o600)
	if n := linkSpeed(dir, "eth0") + linkSpeed(dir, "wlan0"); n != 0 {
		t.Errorf("%d bytes/s of devices that do not tell", n)
	}
	const routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
		"eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\neth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
	if d := defaultDevice(routes); d != "eth0" {
		t.Errorf("default route over %q", d)
	}
}

// TestShareOf: the speed of the link is looked up when an instance sent or received something, and not at rest.
func TestShareOf(t *testing.T) {
	for _, c := range []struct {
		bytes     int64
		bandwidth skerry.Bytes
		want      float64
		asked     int
	}{{0, 100, 0, 0}, {50, 100, 0.25, 1}, {50, 0, 0, 1}, {900, 100, 1, 1}} {
		asked := 0
		got := shareOf(c.bytes, 2*time.Second, func() skerry.Bytes {
			asked++
			return c.bandwidth
		})
		if got != c.want || asked != c.asked {
			t.Errorf("%d bytes of %d: share %v, asked %d times; want %v, %d", c.bytes, c.bandwidth, got, asked, c.want, c.asked)
		}
	}
}
