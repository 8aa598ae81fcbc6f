package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/bpf"
)

// flows fills the tables of flows and lets them empty, again and again, for each of the two: what they take must not grow.
func (m *measurer) flows(ctx context.Context) error {
	for _, proto := range []string{"udp", "tcp"} {
		if err := m.flowsOf(ctx, proto); err != nil {
			return err
		}
	}
	return nil
}

func (m *measurer) flowsOf(ctx context.Context, proto string) (err error) {
	n := m.lengths.flows
	l := &lane{rig: &rig{ctx: ctx, program: m.Program}, name: casePlain}
	defer func() { err = errors.Join(err, l.close()) }()
	l.flows = &bpf.Options{Flows: 4096, OtherFlows: n + n/8, Timeouts: bpf.Timeouts{UDP: m.flowLife, Closing: m.flowLife, Sweep: time.Second}}
	fill, end := l.datagrams, func(context.Context, int) error { return nil } // which end by themselves
	if proto == "tcp" {
		l.flows.Flows, l.flows.OtherFlows = 2*n, 4096 // of which one client has half
	}
	if err := l.join(wireKind{name: "gso"}); err != nil {
		return err
	}
	before := kernelMemory()
	if err := errors.Join(l.instances(1500-overlay.Cover), l.skerry()); err != nil {
		return err
	}
	if err := l.spread(1); err != nil {
		return err
	}
	if proto == "tcp" {
		wire, err := l.handmade()
		if err != nil {
			return err
		}
		fill = func(ctx context.Context, n int) error { return wire(ctx, n, tcpSYN) }
		end = func(ctx context.Context, n int) error { return wire(ctx, n, tcpRST) }
	}
	group := fmt.Sprintf("%d flows at once, left to expire, and again", n)
	for range 2 {
		err := m.round(ctx, func() error {
			start := time.Now()
			if err := fill(ctx, n); err != nil {
				return err
			}
			filled, sweep := time.Since(start).Seconds(), 0.0
			full, err := l.device.Stats()
			if err != nil {
				return err
			}
			kernel := kernelMemory() - before
			if err := end(ctx, n); err != nil {
				return err
			}
			last, took := full, time.Duration(0)
			// Flows are looked at less often the longer that takes: with a million it may be every few minutes.
			if err := within(ctx, 15*time.Minute, "the flows have expired", func() (bool, error) {
				time.Sleep(500*time.Millisecond + 20*took) // to count them is a look, too
				asked := time.Now()
				st, err := l.device.Stats()
				took = time.Since(asked)
				if n := st.Counters["sweeps"] - last.Counters["sweeps"]; err == nil && n > 0 {
					sweep = max(sweep, float64(st.Counters["sweep-us"]-last.Counters["sweep-us"])/float64(n)/1e6)
				}
				last = st
				return err == nil && st.Flows == 0, err
			}); err != nil {
				m.skip("expiry", err)
			}
			time.Sleep(m.flowLife / 2) // the kernel gives memory back some time after
			for _, x := range []struct {
				name, unit string
				v          float64
			}{{"flows at once", "", float64(full.Flows)}, {"refused", "", float64(full.Counters["drop-full"])},
				{"until they are there", "s", filled},
				{"kernel memory", "MiB", mib(kernel)}, {"the longest look at all", "s", sweep}, {"left after expiry", "", float64(last.Flows)},
				{"kernel memory after expiry", "MiB", mib(kernelMemory() - before)}} {
				f := m.out.Figure(group, x.name, proto)
				f.Unit = x.unit
				m.out.Add(f, x.v)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// kernelMemory is what the kernel uses and cannot give back, in bytes: entries of the tables are in it, as is what the rest of
// the machine does meanwhile.
func kernelMemory() (sum int64) {
	data, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(data)) {
		var kb int64
		for _, format := range []string{"SUnreclaim: %d kB", "Percpu: %d kB"} {
			if _, err := fmt.Sscanf(line, format, &kb); err == nil {
				sum += kb << 10
			}
		}
	}
	return sum
}

// datagrams sends one datagram of each of n flows: sockets to many ports each.
func (l *lane) datagrams(ctx context.Context, n int) error {
	const ports = 60_000
	return l.hosts[0].insts[0].do(func() error {
		for sent := 0; sent < n && ctx.Err() == nil; {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			for p := 1; p <= ports && sent < n; p++ {
				err := unix.Sendto(fd, []byte{1}, 0, &unix.SockaddrInet4{Addr: serviceAddr().As4(), Port: p + 1000})
				if err == nil || err == unix.ECONNREFUSED {
					sent++
				}
			}
			unix.Close(fd)
		}
		return ctx.Err()
	})
}

const (
	tcpSYN = 0x02
	tcpRST = 0x04
)

// handmade prepares both ends for TCP flows of which no kernel keeps anything, because sockets of a million would take more
// memory than what is measured: packets of the client are made by hand, the server answers with cookies, and the client's
// kernel has no way to refuse those answers. It gives a function that sends one packet of each of n flows.
func (l *lane) handmade() (func(ctx context.Context, n int, flags byte) error, error) {
	const first, perPort = 2000, 60_000
	client, server := l.hosts[0].insts[0], l.hosts[1].insts[0]
	if err := client.sh("ip route add blackhole %s/32", serviceAddr()); err != nil {
		return nil, err
	}
	if err := server.sh("sysctl -qw net.ipv4.tcp_syncookies=2"); err != nil {
		return nil, err
	}
	ports := 0
	listen := func(n int) error {
		return server.do(func() error {
			for ; ports*perPort < n; ports++ {
				ln, err := net.ListenTCP("tcp4", &net.TCPAddr{Port: first + ports})
				if err != nil {
					return err
				}
				l.later(ln.Close)
			}
			return nil
		})
	}
	return func(ctx context.Context, n int, flags byte) error {
		if err := listen(n); err != nil {
			return err
		}
		return client.do(func() error {
			dev, err := net.InterfaceByName("eth0")
			if err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			to := &unix.SockaddrLinklayer{Ifindex: dev.Index, Halen: 6}
			for i := 0; i < n && ctx.Err() == nil; i++ {
				f := tcpFrame(dev.HardwareAddr, l.hosts[0].inst(0), serviceAddr(), uint16(first+i%perPort), uint16(first+i/perPort), flags)
				if err := unix.Sendto(fd, f[:], 0, to); err == unix.ENOBUFS {
					i-- // the queue is full
				} else if err != nil {
					return fmt.Errorf("packet %d: %w", i, err)
				}
			}
			return ctx.Err()
		})
	}, nil
}

// tcpFrame makes a packet without data.
func tcpFrame(mac net.HardwareAddr, src, dst netip.Addr, sport, dport uint16, flags byte) (f [54]byte) {
	copy(f[0:], []byte{2, 0, 0, 0, 0, 1}) // the bridge
	copy(f[6:], mac)
	binary.BigEndian.PutUint16(f[12:], 0x0800)
	ip, tcp := f[14:34], f[34:]
	ip[0], ip[3], ip[8], ip[9] = 0x45, 40, 64, unix.IPPROTO_TCP
	s, d := src.As4(), dst.As4()
	copy(ip[12:], s[:])
	copy(ip[16:], d[:])
	binary.BigEndian.PutUint16(ip[10:], onesSum(0, ip))
	binary.BigEndian.PutUint16(tcp, sport)
	binary.BigEndian.PutUint16(tcp[2:], dport)
	binary.BigEndian.PutUint32(tcp[4:], 1)
	tcp[12], tcp[13] = 5<<4, flags
	binary.BigEndian.PutUint16(tcp[14:], 64000)
	binary.BigEndian.PutUint16(tcp[16:], onesSum(onesSumOf(ip[12:20])+unix.IPPROTO_TCP+20, tcp))
	return f
}

// onesSum is the checksum of RFC 1071, of what was summed before and b.
func onesSum(before uint32, b []byte) uint16 {
	sum := before + onesSumOf(b)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func onesSumOf(b []byte) (sum uint32) {
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return sum
}
