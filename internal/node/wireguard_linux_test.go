package node

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"skerry.dev/skerry/overlay/wireguard"
)

// A worker says why it does without the kernel's WireGuard, and leaves no device of an earlier agent behind.
func TestOpenWireGuard(t *testing.T) {
	dir := t.TempDir()
	c := &WorkerConfig{Common: Common{Dir: dir, Log: slog.New(slog.DiscardHandler)}}
	// Any device with the name stands for the one of an earlier agent.
	stale := func() {
		t.Helper()
		err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: wireguard.Device("w")}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, try := range map[string]struct {
		how  WireGuard
		path Dataplane
		why  string
	}{
		"off":      {WireGuardOff, DataplaneEBPF, "it is switched off"},
		"nftables": {WireGuardAuto, DataplaneNFTables, "it requires the eBPF data plane"},
	} {
		stale()
		c.WireGuard = try.how
		l, why, err := openWireGuard(c, "w", try.path)
		if l != nil || why != try.why || err != nil {
			t.Errorf("%s: %v, %q, %v", name, l, why, err)
		}
		if _, err := netlink.LinkByName(wireguard.Device("w")); !errors.As(err, &netlink.LinkNotFoundError{}) {
			t.Errorf("%s: a device is left: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "wireguard.key")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key was made that nobody needs: %v", err)
	}
	c.WireGuard = ""
	l, why, err := openWireGuard(c, "w", DataplaneEBPF)
	if err != nil {
		t.Fatal(err)
	}
	if l == nil {
		if !strings.HasPrefix(why, "the kernel has no WireGuard: ") || !strings.Contains(why, "modprobe wireguard") {
			t.Errorf("it does without for the reason %q", why)
		}
	} else if err := l.CleanUp(); err != nil || why != "" {
		t.Errorf("%q, %v", why, err)
	}
	if st, err := os.Stat(filepath.Join(dir, "wireguard.key")); err != nil || st.Mode().Perm() != 0o600 || st.Size() != 32 {
		t.Errorf("its key: %v, %v", st, err)
	}
	c.WireGuard = "on"
	if _, _, err := openWireGuard(c, "w", DataplaneEBPF); err == nil {
		t.Error("an unknown choice is taken")
	}
}
