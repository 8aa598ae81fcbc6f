//go:build linux

package hostnet

import (
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// TestHardwareAddressesStay: an instance that may send raw packets, and uses the hardware address of another, does not get what is for
// that.
func TestHardwareAddressesStay(t *testing.T) {
	s := newSite(t)
	n := s.open(t, s.options("w1"))
	as, err := n.Set(t.Context(), wants("liar", "victim"))
	must(t, err)
	liar, victim := open(t, as["liar"].NetNS), open(t, as["victim"].NetNS)
	serve(t, victim, ":80")
	at := as["victim"].Addresses[0].Addr().String() + ":80"
	if _, err := dial(s.host, "udp4", at); err != nil { // they know each other's hardware addresses
		t.Fatal(err)
	}
	var theirs net.HardwareAddr
	must(t, kernel.In(victim, func() error {
		eth, err := net.InterfaceByName("eth0")
		if err == nil {
			theirs = eth.HardwareAddr
		}
		return err
	}))
	must(t, kernel.In(liar, func() error {
		eth, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		frame := slices.Concat(net.HardwareAddr{255, 255, 255, 255, 255, 255}, theirs, []byte{0x88, 0xb5}, make([]byte, 46))
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: eth.Index})
	}))
	for range 3 {
		if _, err := dial(s.host, "udp4", at); err != nil {
			t.Errorf("it is not reached: %v", err)
		}
	}
}
