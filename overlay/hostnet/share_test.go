//go:build linux

package hostnet

import (
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
)

func TestShareOf(t *testing.T) {
	for _, c := range []struct{ room, addresses, want int }{
		{262144, 2, 8192}, {262144, 16, 8192}, {262144, 32, 4096}, {65536, 2, 8192}, {65536, 20, 1024}, {65536, 2000, 256}, {64, 4, 32},
	} {
		if got := shareOf(c.room, c.addresses); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// begun counts the connections that an address has begun, as the kernel has them.
func begun(t *testing.T, host *os.File, from net.IP) (n int) {
	t.Helper()
	must(t, kernel.In(host, func() error {
		list, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		for _, f := range list {
			if f.Forward.SrcIP.Equal(from) {
				n++
			}
		}
		return err
	}))
	return n
}

// floodFrom begins more flows than an instance may have.
func floodFrom(t *testing.T, instance *os.File) {
	t.Helper()
	must(t, kernel.In(instance, func() error {
		c, err := net.ListenPacket("udp4", ":0")
		if err != nil {
			return err
		}
		defer c.Close()
		for port := range 4 * leastFlows {
			if _, err := c.WriteTo([]byte("x"), &net.UDPAddr{IP: net.ParseIP(remoteIP), Port: 10000 + port}); err != nil {
				return fmt.Errorf("packet %d: %w", port, err)
			}
		}
		return nil
	}))
}

// TestShareHoldsWithoutItsNote: an instance has no more than its share where the kernel has no room to note that it was refused more.
func TestShareHoldsWithoutItsNote(t *testing.T) {
	s := newSite(t)
	o := s.options("w1")
	o.Flows = 2 * leastFlows
	n := s.open(t, o)
	as, err := n.Set(t.Context(), wants("hostile"))
	must(t, err)
	nft, err := n.nftables()
	must(t, err)
	var full []nftables.SetElement
	for i := range maxSources {
		full = append(full, nftables.SetElement{Key: []byte{198, 18 + byte(i>>16), byte(i >> 8), byte(i)}})
	}
	for part := range slices.Chunk(full, atOnce) {
		set := &nftables.Set{Table: n.sharesTable(), Name: "refused4", KeyType: nftables.TypeIPAddr, HasTimeout: true, Timeout: refusedFor}
		must(t, nft.SetAddElements(set, part))
	}
	must(t, nft.Flush())
	floodFrom(t, open(t, as["hostile"].NetNS))
	if got := begun(t, s.host, net.IP(as["hostile"].Addresses[0].Addr().AsSlice())); got != leastFlows {
		t.Errorf("%d connections of one instance, and its share is %d", got, leastFlows)
	}
}

// TestOneInstanceLeavesConnections: an instance whose half-open flows would fill the kernel's table has its share of it, others go on, also
// when tables are written anew, and what ends makes room.
func TestOneInstanceLeavesConnections(t *testing.T) {
	s := newSite(t)
	serve(t, s.remote, ":9000")
	o := s.options("w1")
	o.Flows = 2 * leastFlows
	n := s.open(t, o)
	as, err := n.Set(t.Context(), wants("hostile", "honest"))
	must(t, err)
	hostile, honest := open(t, as["hostile"].NetNS), open(t, as["honest"].NetNS)
	from := net.IP(as["hostile"].Addresses[0].Addr().AsSlice())
	flood := func() { floodFrom(t, hostile) }
	flood()
	if got := begun(t, s.host, from); got != leastFlows {
		t.Errorf("%d connections of one instance, and its share is %d", got, leastFlows)
	}
	if refused, err := n.Refused(); err != nil || !slices.Equal(refused, []string{"hostile"}) {
		t.Errorf("connections were refused of %v, %v, want of the hostile one alone", refused, err)
	}
	if _, err := dial(honest, "tcp4", remoteIP+":9000"); err != nil {
		t.Errorf("another instance: %v", err)
	}
	if _, err := dial(s.host, "tcp4", remoteIP+":9000"); err != nil {
		t.Errorf("the host: %v", err)
	}
	// Host ports come, and with them other tables; the worker's agent starts anew. What is counted stays so.
	w := wants("hostile", "honest")
	w.Attachments[1].HostPorts = []HostPort{{HostPort: 8080, Port: 80}}
	_, err = n.Set(t.Context(), w)
	must(t, err)
	must(t, n.Close())
	n = s.open(t, o)
	_, err = n.Set(t.Context(), w)
	must(t, err)
	flood()
	if got := begun(t, s.host, from); got != leastFlows {
		t.Errorf("%d connections afterwards", got)
	}
	// Connections that have ended are none.
	must(t, kernel.In(s.host, func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }))
	for range 20 {
		if _, err := dial(hostile, "tcp4", remoteIP+":9000"); err != nil {
			t.Fatalf("once its flows have ended: %v", err)
		}
	}
	if _, err := n.Set(t.Context(), wants("honest")); err != nil {
		t.Error(err)
	}
}

// TestNamesTakeNoConnections: an instance may ask the worker for more names than it may have connections; each is answered, none is kept.
func TestNamesTakeNoConnections(t *testing.T) {
	s := newSite(t)
	o := s.options("w1")
	o.Flows = 2 * leastFlows
	n := s.open(t, o)
	as, err := n.Set(t.Context(), wants("asks"))
	must(t, err)
	gateway := n.state.gateway().String() + ":53"
	must(t, kernel.In(s.host, func() error {
		server, err := net.ListenPacket("udp4", gateway)
		if err != nil {
			return err
		}
		t.Cleanup(func() { server.Close() })
		go func() {
			buf := make([]byte, 64)
			for {
				n, from, err := server.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = server.WriteTo(buf[:n], from)
			}
		}()
		return nil
	}))
	instance := open(t, as["asks"].NetNS)
	must(t, kernel.In(instance, func() error {
		for k := range 2 * leastFlows {
			if err := ask(gateway); err != nil {
				return fmt.Errorf("question %d: %w", k, err)
			}
		}
		return nil
	}))
	if got := begun(t, s.host, net.IP(as["asks"].Addresses[0].Addr().AsSlice())); got != 0 {
		t.Errorf("got %d connections that the kernel keeps for questions, want none", got)
	}
}

// ask sends a question from a port of its own and waits for the answer.
func ask(server string) error {
	c, err := net.Dial("udp4", server)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("who?")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 64))
	return err
}

// TestConnectionsThatEndMakeRoom opens as many connections one after the other as an instance may not have at once.
func TestConnectionsThatEndMakeRoom(t *testing.T) {
	s := newSite(t)
	serve(t, s.remote, ":9000")
	o := s.options("w1")
	o.Flows = 64
	n := s.open(t, o)
	as, err := n.Set(t.Context(), wants("a"))
	must(t, err)
	a := open(t, as["a"].NetNS)
	for k := range 100 {
		if _, err := dial(a, "tcp4", remoteIP+":9000"); err != nil {
			t.Fatalf("connection %d: %v", k, err)
		}
	}
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	refused := false
	must(t, kernel.In(s.remote, func() error {
		l, err := net.Listen("tcp4", ":9001")
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		return nil
	}))
	for k := 0; k < 64 && !refused; k++ {
		err := kernel.In(a, func() error {
			c, err := net.DialTimeout("tcp4", remoteIP+":9001", 500*time.Millisecond)
			if err == nil {
				held = append(held, c)
			}
			return err
		})
		refused = err != nil
	}
	if !refused || len(held) > 33 {
		t.Errorf("%d connections at once", len(held))
	}
}
