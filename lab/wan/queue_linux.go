package wan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Messages and attributes of nfnetlink_queue. Headers are in the machine's byte order, what is inside attributes in the
// network's.
const (
	msgPacket  = unix.NFNL_SUBSYS_QUEUE << 8
	msgVerdict = unix.NFNL_SUBSYS_QUEUE<<8 | 1
	msgConfig  = unix.NFNL_SUBSYS_QUEUE<<8 | 2

	cfgCommand   = 1
	cfgParams    = 2
	cfgMaxLen    = 3
	cfgMask      = 4
	cfgFlags     = 5
	cmdBind      = 1
	copyPacket   = 2
	flagGSO      = 1 << 2 // a large segment is queued as one packet
	attrPacket   = 1
	attrVerdict  = 2
	attrPayload  = 10
	verdictDrop  = 0
	verdictGo    = 1
	copyBytes    = 20 // of each packet: the addresses of IPv4
	nlmsgHeader  = 16
	genHeader    = 4
	recvBuffer   = 8 << 20
	batchPackets = 256
)

// message builds a netlink message for a queue.
func message(to []byte, typ, flags, queue uint16, attrs ...[]byte) []byte {
	n := nlmsgHeader + genHeader
	for _, a := range attrs {
		n += len(a)
	}
	ne := binary.NativeEndian
	to = ne.AppendUint32(to, uint32(n))
	to = ne.AppendUint16(to, typ)
	to = ne.AppendUint16(to, unix.NLM_F_REQUEST|flags)
	to = ne.AppendUint32(to, 0) // sequence
	to = ne.AppendUint32(to, 0) // port
	to = append(to, unix.AF_UNSPEC, unix.NFNETLINK_V0)
	to = binary.BigEndian.AppendUint16(to, queue)
	for _, a := range attrs {
		to = append(to, a...)
	}
	return to
}

func attribute(typ uint16, value ...byte) []byte {
	n := 4 + len(value)
	b := binary.NativeEndian.AppendUint16(make([]byte, 0, align(n)), uint16(n))
	b = binary.NativeEndian.AppendUint16(b, typ)
	return append(b, value...)[:n:align(n)][:align(n)]
}

func align(n int) int { return (n + 3) &^ 3 }

func be32(vs ...uint32) (b []byte) {
	for _, v := range vs {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

// appendVerdict adds the message that lets a packet go on or drops it.
func appendVerdict(to []byte, queue uint16, v verdict) []byte {
	word := uint32(verdictGo)
	if v.drop {
		word = verdictDrop
	}
	return message(to, msgVerdict, 0, queue, attribute(attrVerdict, be32(word, v.id)...))
}

// errTruncated says that the kernel's message does not add up.
var errTruncated = errors.New("netlink message is cut off")

// parse calls packet for each packet in what the kernel sent, and fails for an error that the kernel reports. A packet
// that is not IPv4 has a zero pair.
func parse(b []byte, packet func(id uint32, pair Pair)) error {
	for len(b) > 0 {
		if len(b) < nlmsgHeader {
			return errTruncated
		}
		n := int(binary.NativeEndian.Uint32(b))
		if n < nlmsgHeader || n > len(b) {
			return errTruncated
		}
		m := b[:n]
		b = b[min(align(n), len(b)):]
		switch binary.NativeEndian.Uint16(m[4:]) {
		case unix.NLMSG_ERROR:
			if len(m) < nlmsgHeader+4 {
				return errTruncated
			}
			if code := int32(binary.NativeEndian.Uint32(m[nlmsgHeader:])); code != 0 {
				return syscall.Errno(-code)
			}
		case msgPacket:
			if len(m) < nlmsgHeader+genHeader {
				return errTruncated
			}
			id, pair, ok, err := parsePacket(m[nlmsgHeader+genHeader:])
			if err != nil {
				return err
			}
			if ok {
				packet(id, pair)
			}
		}
	}
	return nil
}

func parsePacket(b []byte) (id uint32, pair Pair, ok bool, err error) {
	for len(b) >= 4 {
		n := int(binary.NativeEndian.Uint16(b))
		typ := binary.NativeEndian.Uint16(b[2:]) & 0x3fff
		if n < 4 || n > len(b) {
			return 0, Pair{}, false, errTruncated
		}
		v := b[4:n]
		b = b[min(align(n), len(b)):]
		switch typ {
		case attrPacket:
			if len(v) < 4 {
				return 0, Pair{}, false, errTruncated
			}
			id, ok = binary.BigEndian.Uint32(v), true
		case attrPayload:
			if len(v) >= 20 && v[0]>>4 == 4 {
				pair = Pair{netip.AddrFrom4([4]byte(v[12:16])), netip.AddrFrom4([4]byte(v[16:20]))}
			}
		}
	}
	return id, pair, ok, nil
}

// queue is a netlink socket that is bound to a queue.
type queue struct {
	fd  int
	num uint16
	buf []byte
}

// openQueue binds to a queue of the calling thread's network namespace.
func openQueue(num uint16) (*queue, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netfilter socket: %w", err)
	}
	q := &queue{fd, num, make([]byte, 1<<16)}
	if err := q.setUp(); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("packet queue %d: %w", num, err)
	}
	return q, nil
}

func (q *queue) setUp() error {
	if err := unix.Bind(q.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	if unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, recvBuffer) != nil {
		_ = unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, recvBuffer) // smaller, but works
	}
	// A burst that does not fit is dropped by the kernel like on a real wire; the socket goes on.
	if err := unix.SetsockoptInt(q.fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1); err != nil {
		return err
	}
	for _, attrs := range [][][]byte{
		{attribute(cfgCommand, cmdBind, 0, 0, 0)},
		{attribute(cfgParams, append(be32(copyBytes), copyPacket)...), attribute(cfgMaxLen, be32(maxWaiting+batchPackets)...)},
		{attribute(cfgFlags, be32(flagGSO)...), attribute(cfgMask, be32(flagGSO)...)},
	} {
		if err := q.send(message(nil, msgConfig, unix.NLM_F_ACK, q.num, attrs...)); err != nil {
			return err
		}
		n, _, err := unix.Recvfrom(q.fd, q.buf, 0)
		if err != nil {
			return err
		}
		if err := parse(q.buf[:n], func(uint32, Pair) {}); err != nil {
			return err
		}
	}
	return unix.SetNonblock(q.fd, true)
}

func (q *queue) send(b []byte) error {
	for {
		err := unix.Sendto(q.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err != unix.EINTR && err != unix.EAGAIN {
			return err
		}
	}
}

func (q *queue) close() error { return unix.Close(q.fd) }
