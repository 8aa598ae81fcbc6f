//go:build linux

package worker

import (
	"os"
	"path/filepath"
	"testing"
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
