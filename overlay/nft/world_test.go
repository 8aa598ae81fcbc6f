//go:build linux

package nft

import (
	"fmt"
	"testing"

	"skerry.dev/skerry/overlay"
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
}

// newWorld makes the machines, with a bridge between their taps, and sets their data planes.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{World: planetest.NewWorld(t)}
	for i, m := range w.Hosts {
		h := &host{Host: m, opts: Options{Worker: m.Worker, NetNS: fmt.Sprintf("/proc/self/fd/%d", m.NS.Fd())}}
		m.New = func() overlay.Device {
			t.Helper()
			d, err := New(h.opts)
			planetest.Must(t, err)
			h.dev = d
			return d
		}
		w.hosts[i] = h
	}
	w.Begin()
	w.Bridge()
	return w
}
