package tunnel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxBatch is the most bytes that one system call sends by UDP GSO, maxSegments the most datagrams: older kernels take
	// no more than 64.
	maxBatch    = 65507 - 20
	maxSegments = 64
	rxBuffers   = 4
	rxSize      = 65536
	socketBytes = 4 << 20
)

// socket is a UDP socket for both versions of IP, or for IPv4 where the other is turned off.
type socket struct {
	fd   int
	v6   bool
	port uint16
	gro  bool
}

func openSocket(port uint16) (*socket, error) {
	s := &socket{v6: true}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
		err = unix.Bind(fd, &unix.SockaddrInet6{Port: int(port)})
		if err != nil {
			unix.Close(fd)
		}
	}
	if err != nil && err != unix.EADDRINUSE {
		s.v6 = false
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err == nil {
			if err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(port)}); err != nil {
				unix.Close(fd)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("UDP port %d: %w", port, err)
	}
	s.fd = fd
	s.gro = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) == nil
	for _, o := range [][2]int{{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, o[0], socketBytes) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, o[1], socketBytes)
		}
	}
	// A datagram that is too long for some link is better cut there than lost.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
	if s.v6 {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("getsockname", err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet6:
		s.port = uint16(sa.Port)
	case *unix.SockaddrInet4:
		s.port = uint16(sa.Port)
	}
	return s, nil
}

// rawAddr is a socket address as the kernel takes it.
type rawAddr struct {
	b [unix.SizeofSockaddrInet6]byte
	n uint32
}

func (s *socket) rawAddr(a netip.AddrPort) (r rawAddr) {
	if s.v6 {
		binary.NativeEndian.PutUint16(r.b[:], unix.AF_INET6)
		ip := a.Addr().As16()
		copy(r.b[8:], ip[:])
		r.n = unix.SizeofSockaddrInet6
	} else {
		binary.NativeEndian.PutUint16(r.b[:], unix.AF_INET)
		if a.Addr().Unmap().Is4() {
			ip := a.Addr().Unmap().As4()
			copy(r.b[4:], ip[:])
		}
		r.n = unix.SizeofSockaddrInet4
	}
	binary.BigEndian.PutUint16(r.b[2:], a.Port())
	return r
}

func (r *rawAddr) addrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(r.b[2:])
	if binary.NativeEndian.Uint16(r.b[:]) == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(r.b[4:8])), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(r.b[8:24])).Unmap(), port)
}

// System calls that do not wait are raw: the scheduler of Go would take the processor away from a thread that is in one
// for some microseconds, as those are that move many packets, and waking threads costs more than the packets do.

// transmitter is what one goroutine sends with.
type transmitter struct {
	hdr unix.Msghdr
	iov unix.Iovec
	oob [24]byte
}

func (t *transmitter) sendmsg(s *socket, to *rawAddr, b []byte, seg int) syscall.Errno {
	t.iov.Base = unsafe.SliceData(b)
	t.iov.SetLen(len(b))
	t.hdr = unix.Msghdr{Name: &to.b[0], Namelen: to.n, Iov: &t.iov}
	t.hdr.SetIovlen(1)
	if seg < len(b) {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&t.oob[0]))
		h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
		h.SetLen(unix.CmsgLen(2))
		binary.NativeEndian.PutUint16(t.oob[unix.CmsgLen(0):], uint16(seg))
		t.hdr.Control = &t.oob[0]
		t.hdr.SetControllen(unix.CmsgSpace(2))
	}
	for {
		_, _, e := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&t.hdr)), 0)
		if e != syscall.EINTR {
			return e
		}
	}
}

// send sends datagrams of seg bytes each, the last of which may be shorter. Where they cannot go at once (a link without
// checksum offload, or with a smaller MTU), they go one by one.
func (t *transmitter) send(s *socket, to *rawAddr, data []byte, seg int) error {
	e := t.sendmsg(s, to, data, seg)
	switch e {
	case 0:
		return nil
	case syscall.EAGAIN: // the socket's buffer is full, and the wire slower than the sender: wait for it
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
		_, _ = unix.Poll(fds, 20)
		if e = t.sendmsg(s, to, data, seg); e == 0 {
			return nil
		}
		return e
	}
	if seg >= len(data) {
		// An ICMP error of an earlier datagram shows here; this one has not been sent.
		if e == syscall.ECONNREFUSED || e == syscall.EHOSTUNREACH {
			if e = t.sendmsg(s, to, data, seg); e == 0 {
				return nil
			}
		}
		return e
	}
	var last error
	for len(data) > 0 {
		n := min(seg, len(data))
		if e := t.sendmsg(s, to, data[:n], n); e != 0 {
			last = e
		}
		data = data[n:]
	}
	return last
}

// mmsghdr is the kernel's.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// listener is what one goroutine receives with.
type listener struct {
	bufs [rxBuffers][]byte
	from [rxBuffers]rawAddr
	oob  [rxBuffers][64]byte
	iovs [rxBuffers]unix.Iovec
	msgs [rxBuffers]mmsghdr
}

func newListener() *listener {
	l := &listener{}
	for i := range l.bufs {
		l.bufs[i] = make([]byte, rxSize)
	}
	return l
}

// receive takes what is there: some messages, each of one or more datagrams. It does not wait.
func (l *listener) receive(s *socket) (int, error) {
	for i := range l.msgs {
		l.iovs[i].Base = &l.bufs[i][0]
		l.iovs[i].SetLen(rxSize)
		h := &l.msgs[i].hdr
		*h = unix.Msghdr{Name: &l.from[i].b[0], Namelen: unix.SizeofSockaddrInet6, Iov: &l.iovs[i], Control: &l.oob[i][0]}
		h.SetIovlen(1)
		h.SetControllen(len(l.oob[i]))
	}
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&l.msgs[0])), rxBuffers, unix.MSG_DONTWAIT, 0, 0)
		switch e {
		case 0:
			return int(n), nil
		case syscall.EINTR, syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH:
			continue // ICMP errors of what was sent
		case syscall.EAGAIN:
			return 0, nil
		}
		return 0, e
	}
}

// message gives what was received: where it came from, its bytes, and how long each datagram in there is.
func (l *listener) message(i int) (from netip.AddrPort, b []byte, seg int) {
	m := &l.msgs[i]
	b = l.bufs[i][:m.n]
	seg = len(b)
	oob := l.oob[i][:m.hdr.Controllen]
	for len(oob) >= unix.CmsgLen(0) {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&oob[0]))
		n := int(h.Len)
		if n < unix.CmsgLen(0) || n > len(oob) {
			break
		}
		if h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_GRO && n >= unix.CmsgLen(2) {
			if v := int(binary.NativeEndian.Uint16(oob[unix.CmsgLen(0):])); v > 0 {
				seg = v
			}
		}
		oob = oob[min(unix.CmsgSpace(n-unix.CmsgLen(0)), len(oob)):]
	}
	return l.from[i].addrPort(), b, seg
}
