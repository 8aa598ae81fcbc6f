//go:build linux

package bpf

import (
	"encoding/binary"
	"net"
	"slices"
	"testing"
	"time"
)

// Raw packets of an instance that may send them: none says for another what its fragments are of, leads one out of the overlay by a tag, or
// hides where it goes behind headers.
func TestRawPackets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, liar, victim := w.hosts[0], w.inst("a1"), w.inst("b1")
	h.service(7, 1, w.inst("a2"))
	for _, six := range []bool{false, true} {
		fragment := func(first bool) []byte {
			if !six {
				p := udp(victim.a4, svc(1, false), 1, 80, []byte("fragment"))
				p[4], p[5] = 0x12, 0x34
				if p[6] = 0x20; !first {
					p[7] = 100
				}
				return p
			}
			x := []byte{17, 0, 0, 1, 0, 0, 0x12, 0x34, 0, 1, 0, 80, 0, 16, 0, 0}
			if !first {
				x[2] = 2
			}
			p := udp(victim.a6, svc(1, true), 1, 80, append(x[8:], "fragment"...))
			p[6] = 44
			return append(p[:40], append(x[:8], p[40:]...)...)
		}
		spoofed, dropped := h.count("drop-spoofed"), h.count("drop-fragment")
		liar.send(fragment(true))
		eventually(t, "a fragment in another's name is dropped", func() bool { return h.count("drop-spoofed") > spoofed })
		victim.send(fragment(false))
		eventually(t, "what it says is forgotten", func() bool { return h.count("drop-fragment") > dropped })
	}

	for _, p := range [][]byte{udp(liar.a4, svc(1, false), 1, 80, []byte("tagged")), udp(liar.a6, w.inst("a2").a6, 1, 80, []byte("tagged"))} {
		before := h.count("drop-protocol")
		frame := ether(h.mac(), broadcast(), p)
		liar.inject(slices.Concat(frame[:12], []byte{0x81, 0, 0, 5}, frame[12:]))
		eventually(t, "a packet with a tag is dropped", func() bool { return h.count("drop-protocol") > before })
	}

	for n, want := range map[int]uint32{3: verdictRedirect, 5: verdictDrop, 8: verdictDrop} {
		p := udp(liar.a6, w.inst("a2").a6, 1, 80, []byte("behind"))
		chain := append([]byte{}, p[:40]...)
		chain[6] = 60
		for i := range n {
			x := []byte{60, 0, 1, 4, 0, 0, 0, 0}
			if i == n-1 {
				x[0] = 17
			}
			chain = append(chain, x...)
		}
		binary.BigEndian.PutUint16(chain[4:], uint16(len(chain)-40+len(p)-40))
		if got := h.try("from_instance", liar.device, ether(h.mac(), broadcast(), append(chain, p[40:]...))); got != want {
			t.Errorf("%d headers: verdict %d, want %d", n, int32(got), int32(want))
		}
	}
}

// An ICMP error about a flow of another network's instance is dropped, whoever guesses of which flow: its backend alone tells of it.
func TestErrorsOfOthers(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"a2", "b1"} {
		w := newWorld(t, plain4)
		h, client := w.hosts[0], w.inst("a1")
		liar := h.add("x1", 9)
		h.service(7, 1, w.inst(backend))
		h.set()
		server := w.inst(backend).listen(80)
		for _, six := range []bool{false, true} {
			c, err := client.dial("udp", svc(1, six), 80)
			must(t, err)
			_, err = c.Write([]byte("x"))
			must(t, err)
			hears(server, 10*time.Second)
			port := uint16(c.LocalAddr().(*net.UDPAddr).Port)
			inner := udp(client.addr(six), w.inst(backend).addr(six), port, 80, []byte("x"))
			icmp, proto := append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, inner...), byte(1)
			if six {
				icmp[0], icmp[1], proto = 1, 4, 58
			}
			before := h.count("drop-network")
			liar.send(packet(liar.addr(six), client.addr(six), proto, icmp, 2)[etherLen:])
			eventually(t, "it is dropped", func() bool { return h.count("drop-network") > before })
			c.Close()
		}
	}
}
