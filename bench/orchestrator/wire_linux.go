package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/lab"
)

// listener looks at what passes a host's cable, from when it is made to when it is stopped.
type listener struct {
	fd   int
	w    *sniffer
	done chan error
	stop context.CancelFunc
}

// listen begins to count the packets of a host of a lab.
func listen(l *lab.Lab, host string, sort func(peer netip.Addr, port uint16, tcp bool) string) (*listener, error) {
	self := netip.MustParseAddr(l.Topology.Host(host).Address)
	s := &listener{fd: -1, w: newWire(self, sort), done: make(chan error, 1)}
	err := l.In(host, func() (err error) {
		// Datagrams of the link layer without its header, of IPv4 alone; those that leave are seen, too, by ETH_P_ALL alone.
		const all = uint16(unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8)
		if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		list, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, i := range list {
			addrs, err := i.Addrs()
			if err != nil {
				return err
			}
			for _, a := range addrs {
				if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == self && i.Flags&net.FlagLoopback == 0 {
					return errors.Join(
						unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20),
						unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}),
						unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}))
				}
			}
		}
		return fmt.Errorf("%s has no cable with %s", host, self)
	})
	if err != nil {
		if s.fd >= 0 {
			unix.Close(s.fd)
		}
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go func() { s.done <- s.run(ctx) }()
	return s, nil
}

func (s *listener) run(ctx context.Context) error {
	buf := make([]byte, 1<<17)
	for ctx.Err() == nil {
		n, from, err := unix.Recvfrom(s.fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Protocol == uint16(unix.ETH_P_IP>>8|unix.ETH_P_IP&0xff<<8) {
			s.w.packet(buf[:n])
		}
	}
	// The kernel counts what did not fit; a count that is short is no count.
	st, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && st.Drops > 0 {
		err = fmt.Errorf("%d packets were not seen", st.Drops)
	}
	return err
}

// end stops counting. It gives what was seen, by sort.
func (s *listener) end() (map[string]*Traffic, error) {
	s.stop()
	err := <-s.done
	return s.w.sums, errors.Join(err, unix.Close(s.fd))
}

// wait sleeps, unless ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
