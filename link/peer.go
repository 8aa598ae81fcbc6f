package link

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/wire"
)

// Handler takes what happens on a connection. The calls for one peer come one after another, Up first, Down last; a slow
// Frame slows that peer down and nobody else. They must not wait for the peer's own Down.
type Handler interface {
	Up(p *Peer)
	Frame(p *Peer, m wire.Message)
	Down(p *Peer, err error)
}

// Peer is one live control connection, as either side sees it.
type Peer struct {
	id      wire.PeerIdentity // the other side
	hello   *wire.Hello
	welcome *wire.Welcome
	conn    net.Conn
	raw     net.Conn // below TLS, closed without a farewell
	codec   *frame.Codec
	stats   *Stats

	keepAlive time.Duration
	beating   atomic.Bool   // beats come, or are answered: the connection need not show that the other side lives
	hasty     chan struct{} // of capacity 1: patience has changed; nil: this side does not keep the connection
	maxQueue  int
	began     time.Time
	lastSent  atomic.Int64 // nanoseconds since it began, by a clock that nobody can set
	lastRecv  atomic.Int64
	rtt       atomic.Int64
	down      chan struct{} // closed after Down was delivered
	ready     atomic.Bool   // welcome is set

	mu      sync.Mutex
	queue   [][]byte
	queued  int
	writing bool
	err     *Error // why it is closed; nil while open
	pings   pings

	streams streamSide
}

// pings are the questions for a sign of life.
type pings struct {
	open  map[uint64]chan struct{} // by nonce; closed when it is answered
	nonce uint64                   // of the last one
	at    time.Time
}

// Identity is who the other side is. On the child's side it is the parent.
func (p *Peer) Identity() wire.PeerIdentity { return p.id }

// Name is the other side's name.
func (p *Peer) Name() string { return p.id.Name }

// Hello is what the child said, Welcome what the parent answered. Neither may be changed.
func (p *Peer) Hello() *wire.Hello     { return p.hello }
func (p *Peer) Welcome() *wire.Welcome { return p.welcome }

// Addr is the other side's address.
func (p *Peer) Addr() net.Addr { return p.raw.RemoteAddr() }

// RTT is the last round trip measured, zero before the first.
func (p *Peer) RTT() time.Duration { return time.Duration(p.rtt.Load()) }

// Heard is how long ago the last frame of the other side came.
func (p *Peer) Heard() time.Duration {
	return time.Since(p.began) - time.Duration(p.lastRecv.Load())
}

// relaxed is how many times longer a connection may be quiet while beats come.
const relaxed = 15

// patience is the keepalive interval that holds now.
func (p *Peer) patience() time.Duration {
	if p.beating.Load() {
		return relaxed * p.keepAlive
	}
	return p.keepAlive
}

// SetBeating says whether beats come. When they cease, the connection must show again that the other side lives.
func (p *Peer) SetBeating(ok bool) {
	if p.beating.Swap(ok) != ok {
		p.conn.SetReadDeadline(time.Now().Add(3 * p.patience()))
		select {
		case p.hasty <- struct{}{}:
		default: // an earlier change was not seen yet
		}
	}
}

// Feature reports whether both sides offered a feature.
func (p *Peer) Feature(name string) bool {
	for _, f := range p.welcome.Features {
		if f == name {
			return true
		}
	}
	return false
}

// Send puts a message in line and never blocks. A peer that does not read loses its connection when the line is
// full; what is level-triggered recovers on the next one. An error means that the connection is closed, or that the
// message is too large to be sent at all.
func (p *Peer) Send(msg wire.Message) error {
	b, err := p.codec.Encode(msg)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if p.queued+len(b) > p.maxQueue {
		p.closeLocked(&Error{Reason: ReasonQueueFull})
		return p.err
	}
	p.queue = append(p.queue, b)
	p.queued += len(b)
	if !p.writing {
		p.writing = true
		go p.write()
	}
	return nil
}

// write empties the line and ends; an idle connection has no writer.
func (p *Peer) write() {
	const coalesce = 16 << 10
	for {
		p.mu.Lock()
		frames := p.queue
		p.queue = nil
		if len(frames) == 0 || p.err != nil {
			p.writing = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		for len(frames) > 0 {
			out, n := frames[0], 1
			for n < len(frames) && len(out)+len(frames[n]) <= coalesce {
				out = append(out, frames[n]...)
				n++
			}
			p.conn.SetWriteDeadline(time.Now().Add(3 * p.keepAlive))
			if _, err := p.conn.Write(out); err != nil {
				p.fail(classify(err))
				return
			}
			p.lastSent.Store(int64(time.Since(p.began)))
			p.stats.FramesOut.Add(int64(n))
			p.stats.BytesOut.Add(int64(len(out)))
			frames = frames[n:]
			p.mu.Lock()
			p.queued -= len(out)
			p.mu.Unlock()
		}
	}
}

// Close ends the connection. Down follows from the peer's own goroutine.
func (p *Peer) Close() { p.fail(&Error{Reason: ReasonClosed}) }

func (p *Peer) fail(err *Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeLocked(err)
}

func (p *Peer) closeLocked(err *Error) {
	if p.err != nil {
		return
	}
	p.err = err
	p.queue = nil
	p.raw.Close()
	p.streams.close()
}

// Done is closed when the connection has ended and Down was delivered.
func (p *Peer) Done() <-chan struct{} { return p.down }

// read takes frames until the connection ends and says why.
func (p *Peer) read(h Handler, rate int) *Error {
	in := frame.NewReader(p.conn, p.codec, frame.MaxFrame)
	start, n := time.Now(), 0
	for {
		p.conn.SetReadDeadline(time.Now().Add(3 * p.patience()))
		msg, size, err := in.Next()
		if err != nil {
			e := classify(err)
			p.fail(e)
			p.mu.Lock()
			e = p.err // the first reason counts
			p.mu.Unlock()
			return e
		}
		now := time.Now()
		p.lastRecv.Store(int64(now.Sub(p.began)))
		p.stats.FramesIn.Add(1)
		p.stats.BytesIn.Add(int64(size))
		switch m := msg.(type) {
		case nil:
			p.stats.UnknownFrames.Add(1)
		case *wire.Ping:
			if m.RTT > 0 {
				p.rtt.Store(int64(m.RTT) * int64(time.Microsecond))
			}
			p.Send(&wire.Pong{Nonce: m.Nonce})
		case *wire.Pong:
			p.pong(m.Nonce, now)
		case *wire.Hello, *wire.Welcome, *wire.StreamHello, *wire.StreamHeader, *wire.StreamOpened,
			*wire.Join, *wire.Renew, *wire.Joined:
			p.fail(&Error{Reason: ReasonMalformed, Err: errOutOfPlace})
		case *wire.Refuse:
			p.fail(classify(m))
		case *wire.OpenStreams:
			p.streams.asked(p)
		default:
			h.Frame(p, m)
		}
		// A flood is slowed down to the rate by not reading, which TCP passes on to the sender.
		if n++; n == 256 {
			if ahead := 256*time.Second/time.Duration(rate) - time.Since(start); ahead > 0 {
				time.Sleep(ahead)
			}
			start, n = time.Now(), 0
		}
	}
}

// Ask asks for a sign of life, for which nobody waits.
func (p *Peer) Ask() { p.ping() }

// ping asks for a sign of life; the channel is closed when it comes.
func (p *Peer) ping() <-chan struct{} {
	done := make(chan struct{})
	p.mu.Lock()
	if p.pings.open == nil {
		p.pings.open = make(map[uint64]chan struct{})
	}
	if len(p.pings.open) > 4 {
		clear(p.pings.open) // never answered; they only cost memory
	}
	p.pings.nonce++
	nonce := p.pings.nonce
	p.pings.open[nonce] = done
	p.pings.at = time.Now()
	p.mu.Unlock()
	p.Send(&wire.Ping{Nonce: nonce, RTT: uint32(p.RTT() / time.Microsecond)})
	return done
}

func (p *Peer) pong(nonce uint64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := p.pings.open[nonce]
	if done == nil {
		return
	}
	delete(p.pings.open, nonce)
	if nonce == p.pings.nonce {
		p.rtt.Store(int64(now.Sub(p.pings.at)))
	}
	close(done)
}

// Ping measures the round trip. The error is that of ctx or says that the connection is closed.
func (p *Peer) Ping(ctx context.Context) (time.Duration, error) {
	done := p.ping()
	select {
	case <-done:
		return p.RTT(), nil
	case <-p.down:
		return 0, io.ErrClosedPipe
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
