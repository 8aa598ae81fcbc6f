package ingress

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"
)

// carry connects a TCP client with its service, until both directions have ended.
func (d *listener) carry(client net.Conn) {
	t := d.table.Load()
	conn, name := client, ""
	if t.peek {
		if client.SetReadDeadline(time.Now().Add(d.in.opt.HeaderTimeout)) != nil {
			return
		}
		seen, sni, err := peekHello(client)
		if err != nil && !errors.Is(err, errNoHello) {
			return
		}
		name, _ = cleanHost(sni)
		conn = &replayed{Conn: client, seen: seen}
	}
	rt := t.match(name, nil)
	if rt == nil {
		return
	}
	c := rt.counters
	defer c.begin()()
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	if rt.config != nil {
		tc := tls.Server(conn, rt.config)
		hctx, stop := context.WithTimeout(ctx, d.in.opt.HeaderTimeout)
		err := tc.HandshakeContext(hctx)
		stop()
		if err != nil || tc.ConnectionState().NegotiatedProtocol == protocolALPN { // an authority wants no more
			return
		}
		conn = tc
	}
	if client.SetReadDeadline(time.Time{}) != nil {
		return
	}
	give, ok := d.in.lead(rt, client.RemoteAddr().String(), t.trusted)
	if !ok {
		c.status[0].Add(1)
		return
	}
	defer give()
	_, rt = d.hold(ctx, t, rt, func(t *table) *route { return t.match(name, nil) })
	service, _, err := d.in.dial(ctx, rt.Net, rt.Targets)
	if err != nil {
		c.status[0].Add(1)
		d.in.opt.Log.Debug("connection failed", "service", rt.Name, "err", err)
		return
	}
	defer service.Close()
	if rt.ProxyProtocol {
		if _, err := service.Write(proxyHeader(client.RemoteAddr(), client.LocalAddr())); err != nil {
			c.status[0].Add(1)
			return
		}
	}
	// A direction that ends is passed on; one that breaks ends both.
	back := make(chan error, 1)
	go func() {
		n, err := io.Copy(conn, service)
		c.out.Add(n)
		if err != nil || closeWrite(conn) != nil {
			_, _ = client.Close(), service.Close()
		}
		back <- err
	}()
	n, err := io.Copy(service, conn)
	c.in.Add(n)
	if err != nil || closeWrite(service) != nil {
		_, _ = client.Close(), service.Close()
	}
	<-back
}

// closeWrite ends one direction; a connection that cannot do that is closed.
func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return c.Close()
}

// errNoHello says that a connection does not begin with TLS.
var errNoHello = errors.New("no TLS hello")

// maxHello is the longest TLS hello that is looked at.
const maxHello = 64 << 10

// peekHello reads the first message of a TLS client and gives the name that it asks for, with the bytes read. The parser
// is that of crypto/tls, on a connection that never answers.
func peekHello(c net.Conn) (seen []byte, name string, err error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(c, first); err != nil {
		return nil, "", err
	}
	if first[0] != 22 { // a handshake record
		return first, "", errNoHello
	}
	p := &peeked{r: io.MultiReader(bytes.NewReader(first), io.LimitReader(c, maxHello))}
	found := false
	_ = tls.Server(p, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		found, name = true, h.ServerName
		return nil, errNoHello // stop here
	}}).Handshake()
	if !found {
		return p.seen.Bytes(), "", errors.New("the TLS hello is broken")
	}
	return p.seen.Bytes(), name, nil
}

// peeked reads from r, keeps what it read, and writes nothing.
type peeked struct {
	r    io.Reader
	seen bytes.Buffer
}

func (p *peeked) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.seen.Write(b[:n])
	return n, err
}

func (*peeked) Write(b []byte) (int, error)      { return len(b), nil }
func (*peeked) Close() error                     { return nil }
func (*peeked) LocalAddr() net.Addr              { return nil }
func (*peeked) RemoteAddr() net.Addr             { return nil }
func (*peeked) SetDeadline(time.Time) error      { return nil }
func (*peeked) SetReadDeadline(time.Time) error  { return nil }
func (*peeked) SetWriteDeadline(time.Time) error { return nil }

// replayed gives what was read before, then what comes.
type replayed struct {
	net.Conn
	seen []byte
}

func (c *replayed) Read(b []byte) (int, error) {
	if len(c.seen) > 0 {
		n := copy(b, c.seen)
		c.seen = c.seen[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// WriteTo lets the kernel move the rest where it can.
func (c *replayed) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(c.seen)
	c.seen = c.seen[n:]
	if err != nil {
		return int64(n), err
	}
	m, err := io.Copy(w, c.Conn)
	return int64(n) + m, err
}

func (c *replayed) CloseWrite() error { return closeWrite(c.Conn) }

// proxyHeader is the header of the PROXY protocol, version 2, for a TCP connection; "local" where the addresses are not
// known.
func proxyHeader(from, to net.Addr) []byte {
	out := []byte("\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00")
	src, err1 := netip.ParseAddrPort(from.String())
	dst, err2 := netip.ParseAddrPort(to.String())
	s, d := src.Addr().Unmap().WithZone(""), dst.Addr().Unmap().WithZone("")
	if err1 != nil || err2 != nil || s.Is4() != d.Is4() {
		return out
	}
	out[12], out[13] = 0x21, 0x11
	if s.Is6() {
		out[13] = 0x21
	}
	out = append(append(out, s.AsSlice()...), d.AsSlice()...)
	out = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(out, src.Port()), dst.Port())
	binary.BigEndian.PutUint16(out[14:], uint16(len(out)-16))
	return out
}
