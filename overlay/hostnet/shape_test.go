//go:build linux

package hostnet

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay/internal/kernel"
)

// flow sends as much as goes through in the time given and returns what the receiver got, in bytes per second.
func flow(t *testing.T, from, to *os.File, addr string, span time.Duration) float64 {
	t.Helper()
	var l net.Listener
	must(t, kernel.In(to, func() (err error) { l, err = net.Listen("tcp4", addr); return err }))
	defer l.Close()
	got := make(chan float64, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- 0
			return
		}
		defer c.Close()
		begin := time.Now()
		n, _ := io.Copy(io.Discard, c)
		got <- float64(n) / time.Since(begin).Seconds()
	}()
	var c net.Conn
	must(t, kernel.In(from, func() (err error) { c, err = net.Dial("tcp4", addr); return err }))
	buf := make([]byte, 64<<10)
	for end := time.Now().Add(span); time.Now().Before(end); {
		c.SetWriteDeadline(end)
		if _, err := c.Write(buf); err != nil {
			break
		}
	}
	c.Close()
	return <-got
}

// Bandwidth is limited both ways at the host's end, for one instance and no other. What went through is compared with
// what the limits allow, with room for the bucket and the buffers of the sockets.
func TestBandwidth(t *testing.T) {
	s := newSite(t)
	n := s.open(t, s.options("w1"))
	c := wants("a", "b", "c")
	const limit = 2 * skerry.MiB
	c.Attachments[0].In, c.Attachments[0].Out = limit, limit
	as, err := n.Set(t.Context(), c)
	must(t, err)
	a, b, free := open(t, as["a"].NetNS), open(t, as["b"].NetNS), open(t, as["c"].NetNS)
	const span = 1500 * time.Millisecond
	if got := flow(t, b, a, as["a"].Addresses[0].Addr().String()+":80", span); got > 1.6*float64(limit) {
		t.Errorf("received %.0f bytes/s over a limit of %d", got, limit)
	}
	if got := flow(t, a, b, as["b"].Addresses[0].Addr().String()+":80", span); got > 1.6*float64(limit) {
		t.Errorf("sent %.0f bytes/s over a limit of %d", got, limit)
	}
	if got := flow(t, free, b, as["b"].Addresses[0].Addr().String()+":81", 300*time.Millisecond); got < 4*float64(limit) {
		t.Errorf("an instance without a limit sent only %.0f bytes/s", got)
	}
	// A restarted agent finds the limits and sets them again without harm.
	n.Close()
	n2 := s.open(t, s.options("w1"))
	_, err = n2.Set(t.Context(), c)
	must(t, err)
	if got := flow(t, a, b, as["b"].Addresses[0].Addr().String()+":82", span); got > 1.6*float64(limit) {
		t.Errorf("after a restart sent %.0f bytes/s over a limit of %d", got, limit)
	}
	// Without the instance nothing of its detour is left.
	_, err = n2.Set(t.Context(), wants("b", "c"))
	must(t, err)
	links, err := n2.nl.LinkList()
	must(t, err)
	for _, l := range links {
		if l.Type() == "ifb" {
			t.Errorf("device %s is left", l.Attrs().Name)
		}
	}
}
