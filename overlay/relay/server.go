package relay

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/overlay/relay/frame"
	"skerry.dev/skerry/wire"
)

// Protocol is what workers and relays agree on in TLS (ALPN).
const Protocol = "skerry-relay-1"

// Options set up a Server.
type Options struct {
	// Name is this relay's to other relays; needed only with those.
	Name string
	// UDP is where datagrams come in; TLS where streams do (TCP), the zero value: nowhere.
	UDP, TLS netip.AddrPort
	// Certificate is that of the TLS end. Workers pin its key.
	Certificate tls.Certificate
	// Rate is how many bytes a second one worker may send by the relay; 1 GiB when 0.
	Rate int64
	// Probe takes what measures round trips; nil: that is dropped. It must not block, and not keep what it is given.
	Probe func(b []byte, from netip.AddrPort)
	Log   *slog.Logger // nil: nothing is logged
}

// Server is a relay. Set says whom it serves.
type Server struct {
	log   *slog.Logger
	rate  int64
	probe func(b []byte, from netip.AddrPort)
	table table
	calls calls
	udp   *net.UDPConn
	tcp   net.Listener
	tls   *tls.Config
	gso   atomic.Bool
	wg    sync.WaitGroup
	end   chan struct{}
	once  sync.Once

	mu      sync.Mutex
	streams map[*stream]bool

	count struct {
		forwarded, bytes, malformed, stranger, forged, noRoute, away, rate, send, streams atomic.Int64
	}
}

const (
	socketBytes = 4 << 20
	// maxStreams is how many TLS connections there may be beside one for each worker.
	maxStreams = 64
)

// New makes a relay and opens its ports.
func New(opt Options) (*Server, error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Rate == 0 {
		opt.Rate = 1 << 30
	}
	if !opt.UDP.IsValid() {
		return nil, errors.New("relay: no UDP address is given")
	}
	server := &Server{log: opt.Log, rate: opt.Rate, probe: opt.Probe, end: make(chan struct{}), streams: map[*stream]bool{}}
	server.table.name = opt.Name
	server.calls.wake = make(chan struct{}, 1)
	server.table.set(wire.RelayConfig{}, opt.Rate)
	var err error
	if server.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(opt.UDP)); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	_ = server.udp.SetReadBuffer(socketBytes)
	_ = server.udp.SetWriteBuffer(socketBytes)
	server.gso.Store(tune(server.udp))
	if opt.TLS.IsValid() {
		if server.tcp, err = net.Listen("tcp", opt.TLS.String()); err != nil {
			server.udp.Close()
			return nil, fmt.Errorf("relay: %w", err)
		}
		server.tls = &tls.Config{Certificates: []tls.Certificate{opt.Certificate}, MinVersion: tls.VersionTLS13, NextProtos: []string{Protocol}}
		server.wg.Go(server.accept)
	}
	for _, f := range []func(){server.receive, server.sweep, server.call} {
		server.wg.Go(func() { panics.Again(server.log, "the relay", f) })
	}
	return server, nil
}

// UDP and TLS are the addresses that are listened on.
func (s *Server) UDP() netip.AddrPort { return s.udp.LocalAddr().(*net.UDPAddr).AddrPort() }

// TLS is the zero value when there is none.
func (s *Server) TLS() netip.AddrPort {
	if s.tcp == nil {
		return netip.AddrPort{}
	}
	return s.tcp.Addr().(*net.TCPAddr).AddrPort()
}

// Send sends a datagram that measures a round trip.
func (s *Server) Send(b []byte, to netip.AddrPort) error {
	_, err := s.udp.WriteToUDPAddrPort(b, to)
	return err
}

// Set says whom the relay serves. Workers that are no longer named are cut off.
func (s *Server) Set(c wire.RelayConfig) error {
	if err := c.Check(); err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	s.table.set(c, s.rate)
	s.calls.set(s.table.name, c.Relays)
	return nil
}

// Stats tells what was done.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	n := len(s.streams)
	s.mu.Unlock()
	c := &s.count
	return Stats{Registered: s.table.sweep(time.Now()), Streams: n, Counters: map[string]int64{
		"forwarded": c.forwarded.Load(), "bytes": c.bytes.Load(), "drop-malformed": c.malformed.Load(), "drop-stranger": c.stranger.Load(),
		"drop-forged": c.forged.Load(), "drop-no-route": c.noRoute.Load(), "drop-away": c.away.Load(), "drop-rate": c.rate.Load(),
		"drop-send": c.send.Load(), "drop-streams": c.streams.Load(),
	}}
}

// Close ends the relay.
func (s *Server) Close() error {
	s.once.Do(func() {
		close(s.end)
		s.udp.Close()
		if s.tcp != nil {
			s.tcp.Close()
		}
		s.mu.Lock()
		for st := range s.streams {
			st.close()
		}
		s.mu.Unlock()
	})
	s.wg.Wait()
	return nil
}

func (s *Server) sweep() {
	t := time.NewTicker(life / 2)
	defer t.Stop()
	for {
		select {
		case <-s.end:
			return
		case now := <-t.C:
			s.table.sweep(now)
		}
	}
}

// receive forwards what comes by UDP.
func (s *Server) receive() {
	buf, oob := make([]byte, 1<<16), make([]byte, 128)
	f := s.newForwarder()
	for {
		n, on, _, from, err := s.udp.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			select {
			case <-s.end:
				return
			default:
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // of something that was sent
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		seg := segment(oob[:on])
		if seg <= 0 || seg > n {
			seg = n
		}
		f.message(from, buf[:n], seg)
	}
}

// forwarder forwards datagrams where they lie. Those that follow each other to the same place go with one system call.
type forwarder struct {
	s       *Server
	scratch frame.Scratch
	to      *member
	place   *place
	run     []byte
	seg     int
	oob     []byte
	now     time.Time
	t       *table
}

func (s *Server) newForwarder() *forwarder { return &forwarder{s: s, t: &s.table} }

// message takes what came from an address: datagrams of seg bytes each, the last of which may be shorter.
func (f *forwarder) message(from netip.AddrPort, data []byte, seg int) {
	f.now = time.Now()
	for begin, o := 0, 0; o < len(data); {
		end := min(o+seg, len(data))
		kind := data[o]
		probe := kind == frame.TypeProbe && f.s.probe != nil
		if kind != frame.TypeRegister && kind != frame.TypeRegistered && !probe {
			if o = end; o == len(data) {
				f.data(from, data[begin:], seg)
			}
			continue
		}
		// The kernel joins what comes together and has one length, the last may be shorter: registrations are among data.
		if begin < o {
			f.data(from, data[begin:o], seg)
		}
		if probe {
			f.s.probe(data[o:end], from)
		} else if kind == frame.TypeRegistered {
			f.answered(from, data[o:end])
		} else if a := f.t.register(data[o:end], from, nil, f.now); a != nil {
			_, _ = f.s.udp.WriteToUDPAddrPort(a, from)
		} else {
			f.s.count.forged.Add(1)
		}
		begin, o = end, end
	}
}

// answered takes another relay's answer to a registration there.
func (f *forwarder) answered(from netip.AddrPort, b []byte) {
	m, again, ok := f.s.calls.answered(b, from, f.now, f.s.own)
	if !ok {
		f.s.count.forged.Add(1)
	}
	if again {
		_, _ = f.s.udp.WriteToUDPAddrPort(m.b, m.to)
	}
}

// data takes those that are no registrations.
func (f *forwarder) data(from netip.AddrPort, b []byte, seg int) {
	f.t.RLock()
	defer f.t.RUnlock()
	m := f.t.at[from]
	if m == nil {
		f.s.count.stranger.Add(1)
		return
	}
	p := m.place(f.now)
	if p == nil || p.addr != from {
		f.s.count.stranger.Add(1)
		return
	}
	for o := 0; o < len(b); o += seg {
		f.datagram(m, p, b, o, min(o+seg, len(b)))
	}
	f.flush()
}

// datagram forwards b[from:to]. The table is locked.
func (f *forwarder) datagram(m *member, at *place, data []byte, from, to int) {
	c := &f.s.count
	d := data[from:to:to]
	hops, dst, src, ok := frame.Parse(d)
	if !ok {
		c.malformed.Add(1)
		return
	}
	if !m.keys[at.key].in.Check(d, &f.scratch) {
		c.forged.Add(1)
		return
	}
	next, dst, src, ok := f.t.next(m, hops, dst, src)
	if !ok {
		c.noRoute.Add(1)
		return
	}
	if !m.bucket.take(f.now, float64(len(d)), m.rate) {
		c.rate.Add(1)
		return
	}
	if f.to != next || len(f.run) == 0 || len(f.run)%f.seg != 0 || len(d) > f.seg || &f.run[:len(f.run)+1][len(f.run)] != &data[from] {
		f.flush()
		p := next.place(f.now)
		if p == nil {
			c.away.Add(1)
			return
		}
		f.to, f.place, f.run, f.seg = next, p, data[from:from], len(d)
	}
	next.keys[f.place.key].out.Put(d, hops+1, dst, src, &f.scratch)
	f.run = f.run[:len(f.run)+len(d)]
	c.forwarded.Add(1)
	c.bytes.Add(int64(len(d)))
}

// flush sends the run.
func (f *forwarder) flush() {
	run, p := f.run, f.place
	f.run, f.to, f.place = nil, nil, nil
	if len(run) == 0 {
		return
	}
	if p.out != nil {
		if !p.out.put(run, f.seg) {
			f.s.count.send.Add(1)
		}
		return
	}
	if len(run) > f.seg && f.s.gso.Load() {
		f.oob = appendSegment(f.oob[:0], f.seg)
		_, _, err := f.s.udp.WriteMsgUDPAddrPort(run, f.oob, p.addr)
		if err == nil {
			return
		}
		// A link that cannot cut them, or has a smaller MTU.
	}
	for len(run) > 0 {
		n := min(f.seg, len(run))
		if _, err := f.s.udp.WriteToUDPAddrPort(run[:n], p.addr); err != nil {
			f.s.count.send.Add(1)
		}
		run = run[n:]
	}
}
