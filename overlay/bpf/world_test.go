//go:build linux

package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/kerneltest"
	"skerry.dev/skerry/overlay/internal/planetest"
)

// world is two machines on one wire.
type world struct {
	*planetest.World
	hosts [2]*host
}

// host is one of them, with the data plane of a worker.
type host struct {
	*planetest.Host
	opts Options
	dev  *Device

	thread  chan func() // see on
	indexes map[string]uint32
}

const plainPort = 50100

// way is how both hosts reach each other.
type way int

const (
	plain4 way = iota
	plain6
	tunnel
	linked // by a device without Ethernet headers; link_test.go carries what is in it
)

// newWorld makes the machines, and sets their data planes.
func newWorld(t testing.TB, how way) *world {
	t.Helper()
	w, fs := &world{}, filepath.Join(t.TempDir(), "bpf")
	t.Cleanup(func() {
		if left, _ := os.ReadDir(filepath.Join(fs, "skerry")); len(left) > 0 {
			t.Errorf("pins are left: %v", left)
		}
		// A program that another test starts just now may have a file of it open for a moment.
		if err := unix.Unmount(fs, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			t.Errorf("unmount %s: %v", fs, err)
		}
	})
	w.World = planetest.NewWorld(t)
	for i, m := range w.Hosts {
		h := &host{Host: m, opts: Options{Worker: m.Worker, NetNS: fmt.Sprintf("/proc/self/fd/%d", m.NS.Fd()), BPFFS: fs,
			Flows: 4096, OtherFlows: 4096}}
		m.New = func() overlay.Device {
			t.Helper()
			d, err := New(h.opts)
			planetest.Must(t, err)
			h.dev = d
			return d
		}
		if how == plain6 {
			m.Wire = netip.MustParseAddr(fmt.Sprintf("fd00:100::%d", m.N))
		}
		w.hosts[i] = h
	}
	for i, h := range w.Hosts {
		other, peer := w.Hosts[1-i], &h.Conf.Peers[0]
		switch how {
		case plain4, plain6:
			h.Conf.Local.Plain = netip.AddrPortFrom(h.Wire, plainPort)
			peer.Plain = &overlay.PlainPath{Endpoint: netip.AddrPortFrom(other.Wire, plainPort), TagOut: uint64(1000 + h.N),
				TagsIn: []uint64{uint64(1000 + other.N)}}
		case linked:
			kerneltest.Run(t, h.NS, "ip tuntap add wg0 mode tun")
			h.Conf.Local.Link = &overlay.Link{Device: "wg0", Prefix: linkOf(h.N)}
			peer.Link = &overlay.LinkPath{Prefix: linkOf(other.N), Use: true}
		}
	}
	w.Begin()
	return w
}

// inventory counts what a device has.
type inventory struct{ services, instances, hooks int }

func (h *host) held() inventory {
	h.dev.mu.Lock() // it follows the host by itself
	defer h.dev.mu.Unlock()
	return inventory{len(h.dev.tables.services.have), len(h.dev.tables.instances.have), len(h.dev.links) + len(h.dev.filters)}
}
