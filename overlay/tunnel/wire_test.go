//go:build linux

package tunnel

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/lab/wan"
)

// lose has a device drop one in a hundred of the packets that it receives, each for itself: before they are joined.
func lose(s *space, dev string) {
	s.t.Helper()
	must(s.t, s.in(func() error {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "MIT", Instructions: asm.Instructions{
			asm.FnGetPrandomU32.Call(),
			asm.Mod.Imm32(asm.R0, 100),
			asm.JEq.Imm(asm.R0, 0, "drop"),
			asm.Mov.Imm(asm.R0, 2),
			asm.Return(),
			asm.Mov.Imm(asm.R0, 1).WithSymbol("drop"),
			asm.Return(),
		}})
		if err != nil {
			return err
		}
		defer prog.Close()
		i, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: i.Index, Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
		s.t.Cleanup(func() { l.Close() })
		return nil
	}))
}

func TestLoss(t *testing.T) {
	a, b := pair(t, true)
	peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	must(t, transfer(a, b, false, 1000))
	lose(a.space, "e0")
	lose(b.space, "e0")
	must(t, transfer(a, b, false, 20<<20))
	must(t, transfer(b, a, true, 20<<20))
	x, y := a.status(), b.status()
	if x.Counters["tx"] == y.Counters["rx"] {
		t.Error("nothing was lost")
	}
	// What was lost is what was dropped, not what was near it.
	if share := 1 - float64(y.Counters["rx"])/float64(x.Counters["tx"]); share > 0.03 {
		t.Errorf("%.3f of the packets were lost", share)
	}
	if p := a.path(); p.Path != "direct" {
		t.Errorf("%+v", p)
	}
}

// TestPoorLinks has links that cannot cut datagrams, or are narrower than told.
func TestPoorLinks(t *testing.T) {
	for name, script := range map[string]string{
		"no checksum offload": "ethtool -K e0 tx off",
		"small MTU":           "ip link set e0 mtu 1300",
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, true)
			a.sh(script)
			b.sh(script)
			peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
			must(t, transfer(a, b, false, 3<<20))
			must(t, transfer(b, a, true, 3<<20))
		})
	}
}

// TestDatagrams sends UDP in large segments: each datagram must come as it was, and none must be joined to another.
func TestDatagrams(t *testing.T) {
	a, b := pair(t, true)
	peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	must(t, transfer(a, b, false, 1000))
	for _, to := range []netip.Addr{b.inner, b.inner6} {
		var in *net.UDPConn
		must(t, b.in(func() (err error) {
			in, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 0)))
			return err
		}))
		defer in.Close()
		_ = in.SetReadBuffer(4 << 20)
		port := in.LocalAddr().(*net.UDPAddr).AddrPort()
		c, err := a.in2(func() (net.Conn, error) { return net.Dial("udp", port.String()) })
		must(t, err)
		defer c.Close()
		raw, err := c.(*net.UDPConn).SyscallConn()
		must(t, err)
		const size, count = 1000, 25
		must(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size) }))
		must(t, err)
		var want [][]byte
		for i := range 4 {
			var msg []byte
			for j := range count {
				d := bytes.Repeat([]byte(fmt.Sprintf("%d/%02d", i, j)), size/4)
				if j == count-1 {
					d = d[:100*(i+1)]
				}
				d = d[:min(len(d), size)]
				want = append(want, d)
				msg = append(msg, d...)
			}
			_, err := c.Write(msg)
			must(t, err)
		}
		var got [][]byte
		buf := make([]byte, 65536)
		for range want {
			_ = in.SetReadDeadline(time.Now().Add(10 * time.Second))
			n, err := in.Read(buf)
			must(t, err)
			got = append(got, bytes.Clone(buf[:n]))
		}
		if !slices.EqualFunc(want, got, bytes.Equal) {
			t.Errorf("%s: other datagrams came", to)
		}
	}
	if st := a.status().Counters; st["reads"] >= st["tx"] {
		t.Logf("no large segments: %v", st) // a kernel before 6.2
	}
}

// apart has datagrams take a while from one host to the other.
func apart(a, b *station, delay time.Duration) {
	for i, s := range []*station{a, b} {
		s.t.Helper()
		s.sh("ip -6 addr flush dev e0 scope global")
		s.sh("iptables -w -t mangle -A POSTROUTING -o e0 -p udp -j NFQUEUE --queue-num 7")
		socket := filepath.Join(s.dir, "wan")
		ctx, cancel := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- s.in(func() error { return wan.Run(ctx, 7, socket) }) }()
		s.t.Cleanup(func() { cancel(); <-ran })
		here, there := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")
		if i == 1 {
			here, there = there, here
		}
		shapes := []wan.Rule{{Pair: wan.Pair{From: here, To: there}, Shape: wan.Shape{Delay: delay}}}
		eventually(s.t, "the delay", func() bool {
			_, err := wan.Call(s.t.Context(), socket, wan.Request{Set: true, Shapes: shapes})
			return err == nil
		})
	}
}

// TestFarAway has a quarter of a second each way between the hosts: nothing may be taken for lost that only takes long.
func TestFarAway(t *testing.T) {
	a, b := pair(t, false)
	apart(a, b, 250*time.Millisecond)
	peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	must(t, transfer(a, b, false, 200_000))
	must(t, transfer(b, a, false, 200_000))
	for _, s := range []*station{a, b} {
		eventually(t, "a round trip of half a second", func() bool { return s.path().RTT > 450*time.Millisecond })
		p := s.path()
		if p.Path != "direct" || p.RTT > 5*time.Second {
			t.Errorf("%+v", p)
		}
	}
}
