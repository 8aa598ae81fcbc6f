package mqtt

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/wire"
)

// Limits of a connection.
const (
	maxPacket   = frame.MaxText + 1024 // bytes of one packet from a device
	maxGreeting = frame.MaxGreeting    // the same before it is admitted
	maxInFlight = 16                   // messages that a device sends before it has heard of the first
	maxPending  = 256                  // connections that are not admitted
	packetRate  = 2000                 // a second, before reading slows down
	greetTime   = 20 * time.Second     // from the connection to Hello
	writeTime   = 30 * time.Second     // for one packet to get through
)

// DefaultKeepAlive is what most clients use. Those of MQTT 3.1.1 cannot be told to use less.
const DefaultKeepAlive = time.Minute

// Config says how to listen. All but KeepAlive and Log are needed.
type Config struct {
	// TLS verifies clients: one without a certificate passes, one with a certificate of another site does not.
	TLS *tls.Config
	// Identify reads a verified certificate.
	Identify func(tls.ConnectionState) (wire.PeerIdentity, error)
	// Answer answers Join and Renew.
	Answer func(ctx context.Context, m wire.Message, cs tls.ConnectionState, addr string) wire.Message
	// Carry takes the connection of a device as one that carries frames, see link.Server.Carry.
	Carry func(conn net.Conn, id wire.PeerIdentity, carrier string, keepAlive time.Duration)
	// KeepAlive is the longest keep-alive; a device that asks for more, or for none, is held to it. Default DefaultKeepAlive.
	KeepAlive time.Duration
	Log       *slog.Logger
}

// Listener takes devices.
type Listener struct {
	cfg   Config
	codec *frame.Codec
	stats Stats

	mu      sync.Mutex
	conns   map[*session]struct{}
	pending []*session // oldest first
	closed  bool
	wg      sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
}

// New makes a listener; Serve starts it.
func New(cfg Config) (*Listener, error) {
	if cfg.TLS == nil || cfg.Identify == nil || cfg.Answer == nil || cfg.Carry == nil {
		return nil, errors.New("mqtt: TLS, Identify, Answer and Carry are needed")
	}
	if cfg.KeepAlive <= 0 {
		cfg.KeepAlive = DefaultKeepAlive
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l := &Listener{cfg: cfg, codec: frame.NewCodec(), conns: map[*session]struct{}{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l, nil
}

// Stats gives the listener's counters.
func (l *Listener) Stats() *Stats { return &l.stats }

// Serve accepts devices until ln or the listener is closed.
func (l *Listener) Serve(ln net.Listener) error {
	stop := context.AfterFunc(l.ctx, func() { ln.Close() })
	defer stop()
	for {
		raw, err := ln.Accept()
		if err != nil {
			if l.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			l.cfg.Log.Warn("mqtt accept", "err", err) // for example no descriptors left
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-l.ctx.Done():
				return nil
			}
		}
		l.stats.Accepted.Add(1)
		s := &session{l: l, raw: raw, from: sourceOf(raw), tls: tls.Server(raw, l.cfg.TLS)}
		if !l.begin(s) {
			raw.Close()
			return nil
		}
		go l.run(s)
	}
}

// begin takes a connection in. When too many are not admitted yet, the oldest goes of those of the address that has
// most of them: one machine that connects again and again leaves devices on slow lines the time that they take.
func (l *Listener) begin(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if len(l.pending) >= maxPending {
		l.stats.count("evicted")
		i := crowd(l.pending, s)
		l.pending[i].raw.Close()
		l.pending = slices.Delete(l.pending, i, i+1)
	}
	l.pending = append(l.pending, s)
	l.conns[s] = struct{}{}
	l.wg.Add(1)
	return true
}

// crowd gives the oldest of the connections from the address that has most, with one that comes.
func crowd(pending []*session, next *session) (oldest int) {
	n := map[string]int{next.from: 1}
	for _, p := range pending {
		n[p.from]++
	}
	for i, p := range pending {
		if n[p.from] > n[pending[oldest].from] {
			oldest = i
		}
	}
	return oldest
}

// sourceOf names where a connection comes from: an address, or a network of IPv6 that one machine has.
func sourceOf(conn net.Conn) string {
	a, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return ""
	}
	ip := a.Addr().Unmap().WithZone("")
	if p, err := ip.Prefix(64); err == nil && ip.Is6() {
		return p.String()
	}
	return ip.String()
}

// greeted takes a session off those that are not admitted.
func (l *Listener) greeted(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range l.pending {
		if p == s {
			l.pending = append(l.pending[:i], l.pending[i+1:]...)
			return
		}
	}
}

func (l *Listener) run(s *session) {
	defer l.wg.Done()
	defer func() {
		if v := recover(); v != nil { // one device's bad luck must not end everybody's
			l.cfg.Log.Error("mqtt panic", "panic", v, "stack", string(debug.Stack()))
		}
		s.end()
		l.greeted(s)
		l.mu.Lock()
		delete(l.conns, s)
		l.mu.Unlock()
	}()
	err := s.serve()
	l.stats.count(reasonOf(err))
	l.cfg.Log.Debug("mqtt", "addr", s.raw.RemoteAddr(), "name", s.id.Name, "err", err)
}

// Close ends all connections and waits for them. It is idempotent.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	for s := range l.conns {
		s.raw.Close()
	}
	l.mu.Unlock()
	l.cancel()
	l.wg.Wait()
	return nil
}

// Stats counts what happened. It is safe for concurrent use.
type Stats struct {
	Accepted, Live, In, Out atomic.Int64 // connections, those admitted now, messages

	mu sync.Mutex
	n  map[string]int64
}

func (s *Stats) count(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == nil {
		s.n = map[string]int64{}
	}
	s.n[reason]++
}

// Reasons gives how often a connection ended, or something that a device sent had no effect, by reason:
//
//	closed, silent, reset    the connection
//	handshake                no TLS of this site
//	malformed, too-large     a packet or message that does not parse
//	version                  neither MQTT 3.1.1 nor 5
//	will                     a last will, which is not served
//	topic                    a topic that is not the device's
//	unsubscribed             a message from a device that does not listen
//	order                    a message that has no place there
//	unknown-type             a message of a later version; ignored
//	late, evicted            it did not come to the point
//	answered                 a join, with its answer or refusal
func (s *Stats) Reasons() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.n)
}

// endError ends a connection for a reason that counts, with a word for the device.
type endError struct {
	reason string
	code   byte
	err    error
}

func (e *endError) Error() string { return fmt.Sprintf("%s: %v", e.reason, e.err) }

func (e *endError) Unwrap() error { return e.err }
