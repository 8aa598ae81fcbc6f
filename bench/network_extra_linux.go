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

	"skerry.dev/skerry/bench/report"
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
	return m.eachStream(ctx, list, "1 % loss", func(name string) *report.Figure { return metricOf("tcp1").figure(m.out, groupLoss, name) })
}

// writesOf measures a stream that is written so many bytes at a time: 003 has its network benchmark by the size of a message (table 2).
func (m *measurer) writesOf(ctx context.Context, list []*lane, bytes int) error {
	size := fmt.Sprint(bytes, " B")
	return m.eachStream(ctx, list, "writes of "+size, func(name string) *report.Figure {
		f := m.out.Figure(groupWrites, size, name)
		f.Unit, f.Better, f.Curve, f.At = "Gbit/s", report.Higher, "rate by bytes of a write", float64(bytes)
		return f
	}, "-l", fmt.Sprint(bytes))
}

// eachStream measures one stream of each case in some rounds, with more arguments of iperf3.
func (m *measurer) eachStream(ctx context.Context, list []*lane, what string, of func(name string) *report.Figure, more ...string) error {
	round := func() error {
		for _, l := range list {
			rate, _, err := l.stream(ctx, 1, m.stream, more...)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				m.skip(what+", "+l.name, err)
			default:
				m.out.Add(of(l.name), rate)
			}
		}
		return nil
	}
	for range (m.rounds + 1) / 2 {
		if err := m.round(ctx, round); err != nil {
			return err
		}
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
	for range m.rounds {
		err := m.round(ctx, func() error {
			for _, n := range m.counts {
				for _, lane := range list {
					if err := ctx.Err(); err != nil {
						return err
					}
					if err := m.asked(lane, n); err != nil {
						m.skip(fmt.Sprintf("%d replicas, %s", n, lane.name), err)
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// asked measures requests to a service address with n instances behind it.
func (m *measurer) asked(lane *lane, n int) error {
	if err := lane.spread(n); err != nil {
		return err
	}
	before := make([]int64, len(lane.servers))
	for i, s := range lane.servers {
		before[i] = s.asked.Load()
	}
	times, err := requests(lane.client, lane.to, 0, m.replies)
	if err != nil {
		return err
	}
	least, most := int64(len(times)), int64(0)
	for i, s := range lane.servers[:n] {
		got := s.asked.Load() - before[i]
		least, most = min(least, got), max(most, got)
	}
	for _, x := range []struct {
		what, unit string
		v          float64
	}{{"median", "us", report.Median(times)}, {"p99", "us", report.Quantile(times, 0.99)},
		{"most asked less least", "requests", float64(most - least)}} {
		f := m.out.Figure(groupReplicas, fmt.Sprintf("%d instances, %s", n, x.what), lane.name)
		f.Unit = x.unit
		m.out.Add(f, x.v)
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
		for range m.loads {
			err := m.round(ctx, func() error {
				for i, l := range list {
					shapes := l.shapes(time.Duration(ms) * time.Millisecond / 2)
					if _, err := wan.Call(ctx, sockets[i], wan.Request{Set: true, Shapes: shapes}); err != nil {
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
					f := m.out.Figure(groupDownloads, fmt.Sprintf("round trip of %d ms", ms), l.name)
					f.Unit = "s"
					m.out.Add(f, d.Seconds())
				}
				return nil
			})
			if err != nil {
				return err
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
	group := fmt.Sprintf("%d service addresses of three instances each", m.lengths.routes)
	for i := range max(m.rounds, 3) {
		err := m.round(ctx, func() error {
			for _, x := range []struct {
				name     string
				services []overlay.Service
			}{{"", nil}, {"all are new", all(2)}, {"all lead elsewhere", all(10)}, {"nothing changes", all(10)}} {
				ms, err := set(x.services)
				if err != nil {
					return err
				}
				if x.name != "" {
					f := m.out.Figure(group, x.name, "")
					f.Unit = "ms"
					m.out.Add(f, ms)
				}
			}
			if i == 0 {
				st, err := lane.device.Stats()
				if err != nil {
					return err
				}
				f := m.out.Figure(group, "tables", "")
				f.Unit = "MiB"
				m.out.Add(f, mib(st.MapBytes))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if m.lengths.routes == 10_000 {
		goal := 1000.0
		m.out.Figure(group, "all lead elsewhere", "").Goal = &goal
	}
	return nil
}

// Groups of figures beside those of the wires.
const (
	groupLoss      = "1 % of packets lost in each direction, mtu"
	groupWrites    = "1 TCP stream by the size of its writes, mtu"
	groupReplicas  = "connect, ask and answer by a service address, mtu (figure 8)"
	groupDownloads = "a download of 100 MB, mtu (figure 12)"
)

func mib(n int64) float64 { return float64(n) / (1 << 20) }
