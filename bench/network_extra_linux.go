package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"skerry.dev/skerry/lab/wan"
	"skerry.dev/skerry/overlay"
)

// noted says why a case is not there.
func (m *measurer) noted(what string) func(string, error) {
	return func(name string, err error) { m.skip(what+" "+name, err) }
}

// lossy lets a host lose a share of what comes in by its wire, packet by packet, before anything is joined again.
func (h *netHost) lossy(share float64) (io.Closer, error) {
	const getPrandom = 7
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "lose", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.BuiltinFunc(getPrandom).Call(),
		asm.Mov.Reg32(asm.R1, asm.R0),
		asm.Mov.Imm(asm.R0, 2), // XDP_PASS
		asm.LoadImm(asm.R2, int64(share*math.MaxUint32), asm.DWord),
		asm.JGE.Reg(asm.R1, asm.R2, "end"),
		asm.Mov.Imm(asm.R0, 1), // XDP_DROP
		asm.Return().WithSymbol("end"),
	}})
	if err != nil {
		return nil, fmt.Errorf("a program that loses packets: %w", err)
	}
	defer p.Close()
	var l link.Link
	err = h.ns.do(func() error {
		dev, err := net.InterfaceByName("wire")
		if err == nil {
			l, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: dev.Index, Flags: link.XDPDriverMode})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lose packets: %w", err)
	}
	return l, nil
}

// loss measures one stream while both hosts lose one packet in a hundred.
func (m *measurer) loss(ctx context.Context, list []*lane) (err error) {
	if m.Small {
		list = slices.DeleteFunc(slices.Clone(list), func(l *lane) bool { return l.name != caseDirect && l.name != caseSealed })
	}
	for _, l := range list {
		for _, h := range l.hosts {
			x, err := h.lossy(0.01)
			if err != nil {
				return err
			}
			defer x.Close()
		}
	}
	samples := map[string][]float64{}
	for range (m.rounds + 1) / 2 {
		for _, l := range list {
			rate, _, err := l.stream(ctx, 1, m.stream)
			if err != nil {
				rate = math.NaN()
				m.skip("1 % loss, "+l.name, err)
			}
			samples[l.name] = append(samples[l.name], rate)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	for _, l := range list {
		m.out.Loss = append(m.out.Loss, NetLoss{Case: l.name, Gbit: figureOf(samples[l.name], samples[caseDirect])})
	}
	return nil
}

// replicas repeats the paper's figure 8.
func (m *measurer) replicas(ctx context.Context) (err error) {
	list, err := m.lanes(ctx, wireKind{name: "mtu", small: true}, m.counts[len(m.counts)-1],
		[]string{caseNFT, caseVXLAN, caseSealed, casePlain, caseFallback}, m.noted("replicas"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(list)) }()
	for _, n := range m.counts {
		for _, lane := range list {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := lane.spread(n); err != nil {
				return err
			}
			before := make([]int64, len(lane.servers))
			for i, s := range lane.servers {
				before[i] = s.asked.Load()
			}
			times, err := requests(lane.client, lane.to, 0, m.replies)
			if err != nil {
				m.skip(fmt.Sprintf("%d replicas, %s", n, lane.name), err)
				continue
			}
			r := NetReplicas{Case: lane.name, Replicas: n, Median: Median(times), P99: Quantile(times, 0.99), N: len(times), Least: len(times)}
			for i, s := range lane.servers[:n] {
				got := int(s.asked.Load() - before[i])
				r.Least, r.Most = min(r.Least, got), max(r.Most, got)
			}
			m.out.Replicas = append(m.out.Replicas, r)
		}
	}
	return nil
}

// downloads repeats the paper's figure 12: 100 MB over ways with delay.
func (m *measurer) downloads(ctx context.Context) (err error) {
	list, err := m.lanes(ctx, wireKind{name: "mtu", small: true, delay: true}, 1,
		[]string{caseDirect, caseNFT, caseVXLAN, caseWireguard, caseSealed, casePlain}, m.noted("download"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(list)) }()
	var sockets []string
	for _, l := range list {
		s, err := l.delayer(ctx)
		if err != nil {
			return err
		}
		sockets = append(sockets, s)
	}
	for _, ms := range m.delays {
		took := map[string][]float64{}
		for range m.loads {
			for i, l := range list {
				if _, err := wan.Call(ctx, sockets[i], wan.Request{Set: true, Shapes: l.shapes(time.Duration(ms) * time.Millisecond / 2)}); err != nil {
					return err
				}
				d, err := l.download(ctx, m.megabytes*1e6)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					m.skip(fmt.Sprintf("download over %d ms, %s", ms, l.name), err)
					continue
				}
				took[l.name] = append(took[l.name], d.Seconds())
			}
		}
		for _, l := range list {
			if v := took[l.name]; len(v) > 0 {
				m.out.Downloads = append(m.out.Downloads, NetDownload{Case: l.name, Delay: float64(ms), Seconds: Median(v), Spread: spread(v),
					N: len(v)})
			}
		}
	}
	return nil
}

// delayer holds packets up in the router between the hosts, and gives the socket by which it is told how long.
func (l *lane) delayer(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "sb-")
	if err != nil {
		return "", err
	}
	l.later(func() error { return os.RemoveAll(dir) })
	if err := l.mid.sh("iptables -t mangle -A FORWARD -j NFQUEUE --queue-num 1 --queue-bypass"); err != nil {
		return "", &skipped{"the kernel cannot queue packets, so ways have no delay here: " + err.Error()}
	}
	ctx, cancel := context.WithCancel(ctx)
	socket := filepath.Join(dir, "wan")
	done := make(chan error, 1)
	go func() { done <- l.mid.do(func() error { return wan.Run(ctx, 1, socket) }) }()
	l.later(func() error {
		cancel()
		<-done
		return nil
	})
	return socket, within(ctx, 5*time.Second, "packets are delayed", func() (bool, error) {
		_, err := wan.Call(ctx, socket, wan.Request{})
		return err == nil, err
	})
}

// shapes delay all that passes between the hosts, whatever its addresses, one way by d.
func (l *lane) shapes(d time.Duration) (out []wan.Rule) {
	one, two := l.hosts[0], l.hosts[1]
	for _, a := range []netip.Addr{one.addr, one.inst(0)} {
		for _, b := range []netip.Addr{two.addr, two.inst(0)} {
			out = append(out, wan.Rule{Pair: wan.Pair{From: a, To: b}, Shape: wan.Shape{Delay: d}},
				wan.Rule{Pair: wan.Pair{From: b, To: a}, Shape: wan.Shape{Delay: d}})
		}
	}
	return out
}

// download takes bytes from the server, and gives the time from the connection's first packet to the last byte.
func (l *lane) download(ctx context.Context, bytes int64) (time.Duration, error) {
	start := time.Now()
	var d net.Dialer
	var c net.Conn
	err := l.client.do(func() (err error) {
		c, err = d.DialContext(ctx, "tcp4", netip.AddrPortFrom(l.to, downloadPort).String())
		return err
	})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	_ = c.SetDeadline(start.Add(5 * time.Minute))
	if _, err := c.Write(binary.BigEndian.AppendUint64(nil, uint64(bytes))); err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, c)
	if err == nil && n != bytes {
		err = fmt.Errorf("%d bytes of %d came", n, bytes)
	}
	return time.Since(start), err
}

// routesUpdate measures how long the data plane takes for a whole table of service addresses.
func (m *measurer) routesUpdate(ctx context.Context) (err error) {
	if !m.wants(casePlain) {
		return nil
	}
	lane, err := newLane(ctx, m.Program, casePlain, wireKind{name: "gso"}, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lane.close()) }()
	set := func(services []overlay.Service) (float64, error) {
		c := lane.config
		c.Services = services
		start := time.Now()
		err := lane.device.Set(ctx, c)
		return time.Since(start).Seconds() * 1e3, err
	}
	all := func(last byte) (out []overlay.Service) {
		for i := range m.lengths.routes {
			s := overlay.Service{Net: overlayNet, Addr: netip.AddrFrom4([4]byte{10, 30, byte(8 + i>>8), byte(i)})}
			for k := range byte(3) {
				s.Slots = append(s.Slots, overlay.Backend{Net: overlayNet, Addr: netip.AddrFrom4([4]byte{10, 40, 2, last + k})})
			}
			out = append(out, s)
		}
		return out
	}
	var first, update, same []float64
	r := &NetRoutes{Services: m.lengths.routes}
	for i := range max(m.rounds, 3) {
		for _, x := range []struct {
			to       *[]float64
			services []overlay.Service
		}{{nil, nil}, {&first, all(2)}, {&update, all(10)}, {&same, all(10)}} {
			ms, err := set(x.services)
			if err != nil {
				return err
			}
			if x.to != nil {
				*x.to = append(*x.to, ms)
			}
		}
		if i == 0 {
			st, err := lane.device.Stats()
			if err != nil {
				return err
			}
			r.MapBytes = st.MapBytes
		}
	}
	r.First, r.Update, r.Same = figureOf(first, nil), figureOf(update, nil), figureOf(same, nil)
	m.out.Routes = r
	return nil
}
