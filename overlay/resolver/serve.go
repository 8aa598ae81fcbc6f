package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"skerry.dev/skerry/internal/panics"
)

// handler answers a question that came from src: at once, or, when it has to wait for something, with a function that
// may be called once. Both nil: no answer. limit is the longest answer, 0 for UDP.
type handler interface {
	respond(src netip.AddrPort, msg []byte, limit int) ([]byte, func(context.Context) []byte)
}

// socket holds what a Resolver or an Authority listens on.
type socket struct {
	ctx    context.Context
	cancel context.CancelFunc
	log    *slog.Logger
	wg     sync.WaitGroup

	smu    sync.Mutex
	closed bool
	open   map[io.Closer]bool
	conns  int
}

func (s *socket) init(log *slog.Logger) {
	s.log = log
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.open = map[io.Closer]bool{}
}

// errClosed is given by Serve after Close.
var errClosed = net.ErrClosed

// enter registers something to be closed; conn says that it counts against maxConns. It gives false, and closes it,
// when there is no room or the end has come.
func (s *socket) enter(c io.Closer, conn bool) bool {
	s.smu.Lock()
	defer s.smu.Unlock()
	if s.closed || conn && s.conns >= maxConns {
		c.Close()
		return false
	}
	if conn {
		s.conns++
	}
	s.open[c] = true
	s.wg.Add(1)
	return true
}

func (s *socket) leave(c io.Closer, conn bool) {
	c.Close()
	s.smu.Lock()
	delete(s.open, c)
	if conn {
		s.conns--
	}
	s.smu.Unlock()
	s.wg.Done()
}

// spawn runs f unless the end has come.
func (s *socket) spawn(f func()) {
	s.smu.Lock()
	defer s.smu.Unlock()
	if !s.closed {
		s.wg.Go(f)
	}
}

func (s *socket) close() error {
	s.smu.Lock()
	s.closed = true
	s.cancel()
	for c := range s.open {
		c.Close()
	}
	s.smu.Unlock()
	s.wg.Wait()
	return nil
}

// serveUDP ends with an error of the socket, and when its owner sets a deadline for reading, which leaves what has come to others.
func (s *socket) serveUDP(pc net.PacketConn, h handler) error {
	if !s.enter(pc, false) {
		return errClosed
	}
	defer s.leave(pc, false)
	buf := make([]byte, 4096)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			if s.ctx.Err() != nil {
				return errClosed
			}
			// An error of one datagram, such as an answer that could not be delivered, is not one of the socket.
			if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
			select {
			case <-time.After(time.Millisecond):
			case <-s.ctx.Done():
			}
			continue
		}
		src := addrPort(from)
		resp, later := s.answer(h, src, buf[:n], 0)
		if resp != nil {
			_, _ = pc.WriteTo(resp, from) // a datagram may be lost
		}
		if later != nil {
			s.spawn(func() {
				defer panics.Catch(s.log, "an answer for a name")
				if resp := later(s.ctx); resp != nil {
					_, _ = pc.WriteTo(resp, from)
				}
			})
		}
	}
}

// answer has one datagram answered; one on which the handler panics gets no answer.
func (s *socket) answer(h handler, src netip.AddrPort, msg []byte, limit int) (resp []byte, later func(context.Context) []byte) {
	defer panics.Catch(s.log, "an answer for a name")
	return h.respond(src, msg, limit)
}

func addrPort(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.UDPAddr:
		return a.AddrPort()
	case *net.TCPAddr:
		return a.AddrPort()
	}
	p, _ := netip.ParseAddrPort(a.String())
	return p
}

func (s *socket) serveTCP(listener net.Listener, h handler) error {
	if !s.enter(listener, false) {
		return errClosed
	}
	defer s.leave(listener, false)
	for {
		conn, err := listener.Accept()
		if err != nil {
			if s.ctx.Err() != nil {
				return errClosed
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			select { // out of descriptors, or a client that left
			case <-time.After(10 * time.Millisecond):
			case <-s.ctx.Done():
			}
			continue
		}
		if s.enter(conn, true) {
			go func() {
				defer s.leave(conn, true)
				defer panics.Catch(s.log, "a connection of the name server")
				s.conn(conn, h)
			}()
		}
	}
}

// tcpIdle is how long a connection may stay without a question, and how long an answer may take to be sent.
const tcpIdle = 10 * time.Second

// conn answers the questions of one connection, one after the other (RFC 7766).
func (s *socket) conn(c net.Conn, h handler) {
	src := addrPort(c.RemoteAddr())
	for {
		if c.SetDeadline(time.Now().Add(tcpIdle)) != nil {
			return
		}
		msg, err := readMessage(c)
		if err != nil {
			return
		}
		resp, later := h.respond(src, msg, 65535)
		if later != nil {
			resp = later(s.ctx)
		}
		if resp == nil || c.SetDeadline(time.Now().Add(tcpIdle)) != nil || writeMessage(c, resp) != nil {
			return
		}
	}
}

func readMessage(r io.Reader) ([]byte, error) {
	var n [2]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	msg := make([]byte, binary.BigEndian.Uint16(n[:]))
	_, err := io.ReadFull(r, msg)
	return msg, err
}

func writeMessage(w io.Writer, msg []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(msg)), uint16(len(msg))), msg...))
	return err
}
