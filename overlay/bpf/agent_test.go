//go:build linux

package bpf

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/forge"
	"skerry.dev/skerry/overlay/internal/planetest"
)

// What is too long is answered, so that the sender learns the path's MTU; or cut, if that is allowed.
func TestTooBig(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	client := w.Inst("a1")
	planetest.TooBig(t, w.World)
	// Cut by the data plane: without leave of the sender's stack, which does not know.
	server := w.Inst("a2").Listen(82)
	p := planetest.UDP(client.A4, planetest.Svc(1, false), 1, 82, bytes.Repeat([]byte("x"), 1450))
	p[6] = 0 // may be cut
	p[10], p[11] = 0, 0
	binary.BigEndian.PutUint16(p[10:], forge.Checksum(p[:20]))
	client.Send(p)
	if got, _ := planetest.Hears(server, 10*time.Second); len(got) != 1450 {
		t.Errorf("%d bytes arrived", len(got))
	}
}

// Fragments follow the first one, in both directions, here and across hosts.
func TestFragments(t *testing.T) {
	t.Parallel()
	for how, name := range map[way]string{plain4: "plain4", tunnel: "tunnel"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, how)
			if how == tunnel {
				w.Bridge()
			}
			planetest.Fragments(t, w.World)
			h, client := w.hosts[0], w.Inst("a1")
			// One whose first is missing leads nowhere.
			before := h.Count("drop-fragment")
			p := planetest.UDP(client.A4, planetest.Svc(1, false), 1, 80, []byte("later"))
			p[6], p[7] = 0x20, 100
			client.Send(p)
			planetest.Eventually(t, "it is dropped", func() bool { return h.Count("drop-fragment") > before })
		})
	}
}

// Whatever a program is given, it gives a verdict, and lets nothing pass for another.
func TestHostileFrames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, client := w.hosts[0], w.Inst("a1")
	h.Service(7, 1, w.Inst("b1"), w.Inst("a2"))
	var frames [][]byte
	for _, six := range []bool{false, true} {
		frames = append(frames,
			h.Frame(planetest.UDP(client.Addr(six), planetest.Svc(1, six), 1, 2, []byte("some payload"))),
			h.Frame(planetest.TCP(client.Addr(six), planetest.Svc(1, six), 1, 2, 2, 0)),
			forgeTooBig(planetest.Ether(net.HardwareAddr{2, 0, 0, 0, 0, 0}, net.HardwareAddr{2, 0, 0, 0, 0, 7},
				planetest.UDP(planetest.Svc(1, six), client.Addr(six), 1, 2, []byte("x"))), 1400))
	}
	inner := datagram(1002, 7, planetest.UDP(w.Inst("a2").A4, client.A4, 1, 2, []byte("x")))
	outer := append([]byte{0xc3, 0, 0xc3, 0xb4, 0, 0, 0, 0}, inner...)
	frames = append(frames, planetest.ToAll(forge.IP(w.hosts[1].Wire, h.Wire, 17, outer, 6)))
	devices := map[string]string{"from_instance": client.Device, "to_instance": client.Device, "from_wire": "wire",
		"from_tunnel": h.opts.tunnelTap(), "from_agent": h.opts.agentTap(), "from_bridge": "lan0", "from_vxlan": h.opts.vxlan()}
	for program, device := range devices {
		for _, f := range frames {
			for n := etherLen; n <= len(f); n++ {
				_, _ = h.tryAny(program, device, f[:n])
			}
			for n := etherLen; n < len(f); n++ {
				for _, b := range []byte{0, 0x0f, 0x40, 0xff} {
					g := bytes.Clone(f)
					g[n] = b
					_, _ = h.tryAny(program, device, g)
				}
			}
		}
	}
	// Nothing of it has changed what the table of flows may hold.
	for a := range h.backends(client.A4, unix.IPPROTO_TCP) {
		if a != w.Inst("b1").A4 && a != w.Inst("a2").A4 {
			t.Errorf("a flow leads to %s", a)
		}
	}
}
