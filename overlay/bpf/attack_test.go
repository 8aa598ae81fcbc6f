//go:build linux

package bpf

import (
	"encoding/binary"
	"slices"
	"testing"

	"skerry.dev/skerry/overlay/internal/planetest"
)

// Raw packets of an instance that may send them: none says for another what its fragments are of, leads one out of the overlay by a tag, or
// hides where it goes behind headers.
func TestRawPackets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plain4)
	h, liar, victim := w.hosts[0], w.Inst("a1"), w.Inst("b1")
	h.Service(7, 1, w.Inst("a2"))
	for _, six := range []bool{false, true} {
		fragment := func(first bool) []byte {
			if !six {
				p := planetest.UDP(victim.A4, planetest.Svc(1, false), 1, 80, []byte("fragment"))
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
			p := planetest.UDP(victim.A6, planetest.Svc(1, true), 1, 80, append(x[8:], "fragment"...))
			p[6] = 44
			return append(p[:40], append(x[:8], p[40:]...)...)
		}
		spoofed, dropped := h.Count("drop-spoofed"), h.Count("drop-fragment")
		liar.Send(fragment(true))
		planetest.Eventually(t, "a fragment in another's name is dropped", func() bool { return h.Count("drop-spoofed") > spoofed })
		victim.Send(fragment(false))
		planetest.Eventually(t, "what it says is forgotten", func() bool { return h.Count("drop-fragment") > dropped })
	}

	for _, p := range [][]byte{planetest.UDP(liar.A4, planetest.Svc(1, false), 1, 80, []byte("tagged")),
		planetest.UDP(liar.A6, w.Inst("a2").A6, 1, 80, []byte("tagged"))} {
		before := h.Count("drop-protocol")
		frame := h.Frame(p)
		liar.Inject(slices.Concat(frame[:12], []byte{0x81, 0, 0, 5}, frame[12:]))
		planetest.Eventually(t, "a packet with a tag is dropped", func() bool { return h.Count("drop-protocol") > before })
	}

	for n, want := range map[int]uint32{3: verdictRedirect, 5: verdictDrop, 8: verdictDrop} {
		p := planetest.UDP(liar.A6, w.Inst("a2").A6, 1, 80, []byte("behind"))
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
		if got := h.try("from_instance", liar.Device, h.Frame(append(chain, p[40:]...))); got != want {
			t.Errorf("%d headers: verdict %d, want %d", n, int32(got), int32(want))
		}
	}
}
