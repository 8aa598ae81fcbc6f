package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Ports of a probeServer.
const (
	askPort      = 7000 // TCP: a size of 4 bytes, then messages of that size, which come back; UDP: datagrams come back
	shortPort    = 7001 // TCP: the same, for connections that do not last
	downloadPort = 7002 // TCP: a size of 8 bytes, which is answered by so many bytes
	sinkPort     = 7003 // UDP: datagrams are counted
)

// probeServer answers in a namespace. What lasts is served by threads that wait in the kernel, because that is how the time
// of a round trip has least of Go's in it.
type probeServer struct {
	closers []io.Closer
	wg      sync.WaitGroup
	end     atomic.Bool
	sunk    atomic.Int64 // datagrams
	asked   atomic.Int64 // connections at shortPort

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newProbeServer(ns *namespace) (*probeServer, error) {
	s := &probeServer{conns: map[net.Conn]bool{}}
	err := ns.do(func() error {
		for port, serve := range map[int]func(net.Conn){askPort: s.answer, shortPort: s.short, downloadPort: s.download} {
			ln, err := net.ListenTCP("tcp4", &net.TCPAddr{Port: port})
			if err != nil {
				return err
			}
			s.closers = append(s.closers, ln)
			s.wg.Go(func() { s.accept(ln, serve) })
		}
		for port, serve := range map[int]func(fd int){askPort: s.echo, sinkPort: s.sink} {
			c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
			if err != nil {
				return err
			}
			fd, err := blocking(c)
			if err != nil {
				return err
			}
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20)
			s.wg.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				defer unix.Close(fd)
				serve(fd)
			})
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *probeServer) close() error {
	s.end.Store(true)
	for _, c := range s.closers {
		c.Close()
	}
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	return nil
}

// patience is how long a thread waits in the kernel before it looks whether it is to end.
const patience = 200 * time.Millisecond

// blocking takes the socket away from Go's poller.
func blocking(c interface {
	SyscallConn() (syscall.RawConn, error)
}) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	fd := -1
	err = raw.Control(func(p uintptr) {
		if fd, err = unix.FcntlInt(p, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			if err = unix.SetNonblock(fd, false); err == nil {
				wait := unix.NsecToTimeval(patience.Nanoseconds())
				err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait)
			}
		}
	})
	c.(io.Closer).Close()
	return fd, err
}

func (s *probeServer) accept(ln *net.TCPListener, serve func(net.Conn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.wg.Go(func() {
			serve(c)
			c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

// wait says whether a thread is to try again.
func (s *probeServer) wait(err error) bool {
	return (err == unix.EAGAIN || err == unix.EINTR) && !s.end.Load()
}

func (s *probeServer) answer(c net.Conn) {
	fd, err := blocking(c.(*net.TCPConn))
	if err != nil {
		return
	}
	defer unix.Close(fd)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var size [4]byte
	if s.full(fd, size[:]) != nil {
		return
	}
	buf := make([]byte, min(binary.BigEndian.Uint32(size[:]), 1<<20))
	for len(buf) > 0 && s.full(fd, buf) == nil {
		if _, err := unix.Write(fd, buf); err != nil {
			return
		}
	}
}

func (s *probeServer) full(fd int, buf []byte) error {
	for len(buf) > 0 {
		n, err := unix.Read(fd, buf)
		if err != nil && s.wait(err) {
			continue
		}
		if err != nil || n <= 0 {
			return io.ErrUnexpectedEOF
		}
		buf = buf[n:]
	}
	return nil
}

func (s *probeServer) short(c net.Conn) {
	s.asked.Add(1)
	buf := make([]byte, 64)
	if _, err := io.ReadFull(c, buf); err == nil {
		_, _ = c.Write(buf)
		_, _ = c.Read(buf) // the client closes first
	}
}

func (s *probeServer) download(c net.Conn) {
	var size [8]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return
	}
	buf := make([]byte, 256<<10)
	for n := int64(binary.BigEndian.Uint64(size[:])); n > 0; {
		k, err := c.Write(buf[:min(n, int64(len(buf)))])
		if err != nil {
			return
		}
		n -= int64(k)
	}
}

func (s *probeServer) echo(fd int) {
	buf := make([]byte, 65536)
	for {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if err == nil {
			_ = unix.Sendto(fd, buf[:n], 0, from)
		} else if !s.wait(err) {
			return
		}
		if s.end.Load() {
			return
		}
	}
}

func (s *probeServer) sink(fd int) {
	buf := make([]byte, 65536)
	for !s.end.Load() {
		_, err := unix.Read(fd, buf)
		if err == nil {
			s.sunk.Add(1)
		} else if !s.wait(err) {
			return
		}
	}
}

// dialFor is how long a connection or an answer may take.
const dialFor = 5 * time.Second

// connect makes a connection whose reads and writes wait in the kernel.
func (n *namespace) connect(network string, to netip.AddrPort) (fd int, err error) {
	err = n.do(func() error {
		c, err := (&net.Dialer{Timeout: dialFor}).Dial(network, to.String())
		if err != nil {
			return err
		}
		fd, err = blocking(c.(interface {
			SyscallConn() (syscall.RawConn, error)
		}))
		return err
	})
	return fd, err
}

// ask sends messages of a size over one connection, one at a time, and gives the time of each round trip in microseconds.
func ask(from *namespace, network string, to netip.Addr, size int, d time.Duration) (list []float64, err error) {
	fd, err := from.connect(network, netip.AddrPortFrom(to, askPort))
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if network == "tcp4" {
		var head [4]byte
		binary.BigEndian.PutUint32(head[:], uint32(size))
		if _, err := unix.Write(fd, head[:]); err != nil {
			return nil, err
		}
	}
	buf := make([]byte, size)
	lost := 0
	end := time.Time{}
	for i := 0; ; i++ {
		start := time.Now()
		if i == 100 { // until here the way warmed up
			list, end = list[:0], start.Add(d)
		}
		if i > 100 && start.After(end) {
			return list, nil
		}
		if _, err := unix.Write(fd, buf); err != nil {
			return nil, fmt.Errorf("ask %s: %w", to, err)
		}
		for got := 0; got < size; {
			n, err := unix.Read(fd, buf[got:])
			if err == unix.EINTR {
				continue
			}
			if err == unix.EAGAIN {
				if lost++; time.Duration(lost)*patience < dialFor {
					if network == "udp4" {
						break // the datagram was lost
					}
					continue
				}
			}
			if err != nil {
				return nil, fmt.Errorf("ask %s: %w", to, err)
			}
			if n == 0 {
				return nil, fmt.Errorf("ask %s: %w", to, io.ErrUnexpectedEOF)
			}
			got += n
		}
		list = append(list, float64(time.Since(start).Nanoseconds())/1e3)
	}
}

// request connects, asks once and closes.
func request(d *net.Dialer, to string, buf []byte) error {
	c, err := d.Dial("tcp4", to)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(dialFor))
	if _, err := c.Write(buf); err != nil {
		return err
	}
	_, err = io.ReadFull(c, buf)
	return err
}

// requests gives the time of each of many short connections, one after the other, in microseconds; n 0: as many as fit.
func requests(from *namespace, to netip.Addr, d time.Duration, n int) (list []float64, err error) {
	err = from.do(func() error {
		dialer := &net.Dialer{Timeout: dialFor}
		at := netip.AddrPortFrom(to, shortPort).String()
		buf := make([]byte, 64)
		for end := time.Now().Add(d); n > 0 && len(list) < n || n == 0 && time.Now().Before(end); {
			start := time.Now()
			if err := request(dialer, at, buf); err != nil {
				return err
			}
			list = append(list, float64(time.Since(start).Nanoseconds())/1e3)
		}
		return nil
	})
	return list, err
}

// datagram is the size of those by which the rate is measured, in bytes; maxLoss is how many of them may be missing for the
// rate to count: a machine that others use drops some at any rate.
const (
	datagram = 1200
	maxLoss  = 0.001
)

// sinkRate searches for the highest rate in Gbit/s at which all datagrams arrive, by halving, each step as long as d.
func sinkRate(from *namespace, to netip.Addr, s *probeServer, d time.Duration, steps int) (float64, error) {
	fd, err := from.connect("udp4", netip.AddrPortFrom(to, sinkPort))
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	buf := make([]byte, datagram)
	// The way warms up.
	for range 10 {
		_, _ = unix.Write(fd, buf)
		time.Sleep(time.Millisecond)
	}
	run := func(rate float64) (sent, got float64) {
		before := s.sunk.Load()
		n, start := 0, time.Now()
		for {
			passed := time.Since(start)
			if passed >= d {
				break
			}
			// What is due by now goes at once; a large rate means: as fast as it goes.
			due := int(rate * passed.Seconds())
			if n >= due {
				time.Sleep(200 * time.Microsecond)
				continue
			}
			for range min(due-n, 64) {
				if _, err := unix.Write(fd, buf); err == nil || err == unix.ENOBUFS {
					n++
				}
			}
		}
		took := time.Since(start).Seconds()
		time.Sleep(20 * time.Millisecond) // what is on its way
		return float64(n) / took, float64(s.sunk.Load()-before) / took
	}
	const bits = datagram * 8 / 1e9
	sent, got := run(1e9)
	if got >= sent*(1-maxLoss) {
		return got * bits, nil
	}
	low, high := 0.0, min(sent, got*1.2)
	for range steps {
		try := (low + high) / 2
		if low == 0 {
			try = high * 0.75
		}
		if sent, got := run(try); got >= sent*(1-maxLoss) {
			low = max(low, sent)
		} else {
			high = try
		}
	}
	return low * bits, nil
}
