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
	"skerry.dev/skerry/overlay/internal/planetest"
)

// rate sends for a while from one instance to an address of another, and gives what arrived, in bytes per second.
func rate(t *testing.T, from, to *planetest.Inst, addr netip.Addr, p int) float64 {
	t.Helper()
	const span = 400 * time.Millisecond
	var l net.Listener
	planetest.Must(t, kernel.In(to.NS, func() (err error) { l, err = net.Listen("tcp", fmt.Sprint(":", p)); return err }))
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
	c, err := from.Dial("tcp", addr, p)
	planetest.Must(t, err)
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
	planetest.Must(t, h.dev.CleanUp())
	kerneltest.Run(t, h.NS, "ip link del lan0")
	h.Insts, h.Conf.Instances = nil, nil
	dir := t.TempDir()
	resolv := filepath.Join(dir, "resolv.conf")
	planetest.Must(t, os.WriteFile(resolv, nil, 0o600))
	kerneltest.Run(t, h.NS, "ip route add default via 10.100.0.2") // hostnet takes the MTU from it
	n, err := hostnet.New(hostnet.Options{Name: h.opts.Worker, Subnet: h.Blocks()[0], StateDir: filepath.Join(dir, "state"),
		RunDir: filepath.Join(dir, "run"), NetNS: h.opts.NetNS, ResolvConf: resolv})
	planetest.Must(t, err)
	t.Cleanup(func() {
		if err := n.CleanUp(context.Background()); err != nil {
			t.Error(err)
		}
		n.Close()
	})
	const limit = 4 * skerry.MiB
	wants := []hostnet.Want{{ID: "limited", In: limit, Out: limit}, {ID: "free"}}
	as, err := n.Set(t.Context(), hostnet.Config{Attachments: wants})
	planetest.Must(t, err)
	for _, want := range wants {
		a := as[want.ID]
		ns, err := os.Open(a.NetNS)
		planetest.Must(t, err)
		t.Cleanup(func() { ns.Close() })
		addr := a.Addresses[0].Addr()
		i := &planetest.Inst{Host: h.Host, Name: want.ID, NS: ns, A4: addr, Device: fmt.Sprintf("%s.%d", h.opts.prefix(), addr.As4()[3])}
		h.Insts = append(h.Insts, i)
		h.Conf.Instances = append(h.Conf.Instances, overlay.Instance{ID: i.Name, Net: 7, Device: i.Device, Addrs: []netip.Addr{addr}})
	}
	h.opts.noTCX = old
	h.Open()
	limited, free, far := h.Insts[0], h.Insts[1], w.Inst("a2")
	for last, to := range []*planetest.Inst{limited, free, far} {
		service := overlay.Service{Net: 7, Addr: planetest.Svc(byte(last), false), Slots: []overlay.Backend{{Net: 7, Addr: to.A4}}}
		for _, host := range w.hosts {
			host.Conf.Services = append(host.Conf.Services, service)
		}
	}
	h.Set()
	w.hosts[1].Set()
	p := 1000
	for _, c := range []struct {
		from, to *planetest.Inst
		last     byte
		held     bool
	}{
		{limited, free, 1, true}, {limited, far, 2, true}, {free, limited, 0, true}, {far, limited, 0, true},
		{free, far, 2, false}, {far, free, 1, false},
	} {
		for _, addr := range []netip.Addr{planetest.Svc(c.last, false), c.to.A4} {
			if old && (c.to == free || c.from == far) {
				break // where the programs hang makes no difference to these
			}
			p++
			got := rate(t, c.from, c.to, addr, p)
			if c.held && (got > 1.6*float64(limit) || got < 0.2*float64(limit)) || !c.held && got < 2*float64(limit) {
				t.Errorf("%s to %s by %s: %.0f bytes/s with a limit of %d", c.from.Name, c.to.Name, addr, got, limit)
			}
			if !c.held || old {
				break
			}
		}
	}
	// A limit that comes and goes is followed without a Set.
	wants[0].In, wants[0].Out = 0, 0
	_, err = n.Set(t.Context(), hostnet.Config{Attachments: wants})
	planetest.Must(t, err)
	key := address(limited.A4.As16())
	flags := func() uint32 {
		var v instanceValue
		planetest.Must(t, h.dev.tables.instances.m.Lookup(&key, &v))
		return v.Flags
	}
	planetest.Eventually(t, "the limits are gone", func() bool { return flags() == 0 })
	wants[0].In, wants[0].Out = limit, limit
	_, err = n.Set(t.Context(), hostnet.Config{Attachments: wants})
	planetest.Must(t, err)
	planetest.Eventually(t, "the limits are there", func() bool { return flags() == limitIn|limitOut })
}
