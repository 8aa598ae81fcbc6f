//go:build linux

package bpf

import (
	"testing"

	"github.com/vishvananda/netlink"

	"skerry.dev/skerry/overlay/internal/planetest"
)

// TestSettled: once a configuration is set, the next one asks for no device by itself. A device that was taken away, or down, is
// noticed and put right.
func TestSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	d := w.hosts[0].dev
	settled := func() bool {
		t.Helper()
		d.mu.Lock()
		defer d.mu.Unlock()
		m, err := d.look()
		planetest.Must(t, err)
		return d.settled(m, d.set.Local.Plain)
	}
	again := func() {
		t.Helper()
		d.mu.Lock()
		defer d.mu.Unlock()
		planetest.Must(t, d.apply(*d.set))
	}
	if !settled() {
		t.Fatal("after a configuration was set, the devices are not as they should be")
	}
	for name, harm := range map[string]func(netlink.Link) error{d.opts.vxlan(): d.nl.LinkDel, d.opts.tunnelTap(): d.nl.LinkSetDown} {
		d.mu.Lock() // the device follows what changes on the host
		l, err := d.nl.LinkByName(name)
		planetest.Must(t, err)
		planetest.Must(t, harm(l))
		m, err := d.look()
		planetest.Must(t, err)
		if d.settled(m, d.set.Local.Plain) {
			t.Errorf("%s was harmed, and nobody would look", name)
		}
		d.mu.Unlock()
		if again(); !settled() {
			t.Errorf("%s is not put right", name)
		}
	}
}
