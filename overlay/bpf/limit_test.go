//go:build linux

package bpf

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/hostnet"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/kerneltest"
)

// rate sends for a while from one instance to an address of another, and gives what arrived, in bytes per second.
func rate(t *testing.T, from, to *inst, addr netip.Addr, p int) float64 {
	t.Helper()
	const span = 400 * time.Millisecond
	var l net.Listener
	must(t, kernel.In(to.ns, func() (err error) { l, err = net.Listen("tcp", fmt.Sprint(":", p)); return err }))
	defer l.Close()
	got := make(chan float64, 1)
	begin := time.Now() // not at the receiver's first turn, which may find much waiting on a busy machine
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- 0
			return
		}
		defer c.Close()
		n, _ := io.Copy(io.Discard, c)
		got <- float64(n) / time.Since(begin).Seconds()
	}()
	c, err := from.dial("tcp", addr, p)
	must(t, err)
	_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
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

// Limits of overlay/hostnet hold for the overlay's packets too, which pass the queues by unless they are led there: what
// an instance sends to service addresses here and elsewhere, and what it receives from there.
func TestLimitsHold(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprint("noTCX=", old), func(t *testing.T) { testLimits(t, old) })
	}
}

func testLimits(t *testing.T, old bool) {
	w := newWorld(t, plain4)
	h := w.hosts[0]
	must(t, h.dev.CleanUp())
	kerneltest.Run(t, h.ns, "ip link del lan0")
	h.insts, h.conf.Instances = nil, nil
	dir := t.TempDir()
	resolv := filepath.Join(dir, "resolv.conf")
	must(t, os.WriteFile(resolv, nil, 0o600))
	kerneltest.Run(t, h.ns, "ip route add default via 10.100.0.2") // hostnet takes the MTU from it
	n, err := hostnet.New(hostnet.Options{Name: h.opts.Worker, Subnet: h.blocks()[0], StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), NetNS: h.opts.NetNS, ResolvConf: resolv})
	must(t, err)
	t.Cleanup(func() {
		if err := n.CleanUp(context.Background()); err != nil {
			t.Error(err)
		}
		n.Close()
	})
	const limit = 4 * skerry.MiB
	wants := []hostnet.Want{{ID: "limited", In: limit, Out: limit}, {ID: "free"}}
	as, err := n.Set(t.Context(), hostnet.Config{Attachments: wants})
	must(t, err)
	for _, want := range wants {
		a := as[want.ID]
		ns, err := os.Open(a.NetNS)
		must(t, err)
		t.Cleanup(func() { ns.Close() })
		addr := a.Addresses[0].Addr()
		i := &inst{h: h, name: want.ID, ns: ns, a4: addr, device: fmt.Sprintf("%s.%d", h.opts.prefix(), addr.As4()[3])}
		h.insts = append(h.insts, i)
		h.conf.Instances = append(h.conf.Instances, overlay.Instance{ID: i.name, Net: 7, Device: i.device, Addrs: []netip.Addr{addr}})
	}
	h.opts.noTCX = old
	h.open()
	limited, free, far := h.insts[0], h.insts[1], w.inst("a2")
	for last, to := range []*inst{limited, free, far} {
		h.conf.Services = append(h.conf.Services, overlay.Service{Net: 7, Addr: svc(byte(last), false), Slots: []overlay.Backend{{Net: 7, Addr: to.a4}}})
		w.hosts[1].conf.Services = append(w.hosts[1].conf.Services, overlay.Service{Net: 7, Addr: svc(byte(last), false), Slots: []overlay.Backend{{Net: 7, Addr: to.a4}}})
	}
	h.set()
	w.hosts[1].set()
	p := 1000
	for _, c := range []struct {
		from, to *inst
		last     byte
		held     bool
	}{
		{limited, free, 1, true}, {limited, far, 2, true}, {free, limited, 0, true}, {far, limited, 0, true},
		{free, far, 2, false}, {far, free, 1, false},
	} {
		for _, addr := range []netip.Addr{svc(c.last, false), c.to.a4} {
			if old && (c.to == free || c.from == far) {
				break // where the programs hang makes no difference to these
			}
			p++
			got := rate(t, c.from, c.to, addr, p)
			if c.held && (got > 1.6*float64(limit) || got < 0.2*float64(limit)) || !c.held && got < 2*float64(limit) {
				t.Errorf("%s to %s by %s: %.0f bytes/s with a limit of %d", c.from.name, c.to.name, addr, got, limit)
			}
			if !c.held || old {
				break
			}
		}
	}
	// A limit that comes and goes is followed without a Set.
	wants[0].In, wants[0].Out = 0, 0
	_, err = n.Set(t.Context(), hostnet.Config{Attachments: wants})
	must(t, err)
	key := address(limited.a4.As16())
	flags := func() uint32 {
		var v instanceValue
		must(t, h.dev.tables.instances.m.Lookup(&key, &v))
		return v.Flags
	}
	eventually(t, "the limits are gone", func() bool { return flags() == 0 })
	wants[0].In, wants[0].Out = limit, limit
	_, err = n.Set(t.Context(), hostnet.Config{Attachments: wants})
	must(t, err)
	eventually(t, "the limits are there", func() bool { return flags() == limitIn|limitOut })
}
