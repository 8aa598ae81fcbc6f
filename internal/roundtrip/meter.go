// Package roundtrip measures round trips among machines that know of each other and share a key: workers of a site, and the gateways of a
// federation. A question is one datagram, and so is its answer; times stay with who asks. From workers' round trips it works out a
// coordinate. It decides nothing of who measures to whom; worker and cluster import it.
package roundtrip

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"skerry.dev/skerry/decide/coord"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

const (
	// defaultProbeEvery is the time from one question to the next once a place is found. With 72 bytes on the wire a
	// datagram, and as many questions from others, that is 288 bit/s.
	defaultProbeEvery = 8 * time.Second
	// eagerEvery is that time while a place is being found, for eagerCount questions, and for surpriseCount after a round
	// trip that was not to be expected twice in a row.
	eagerEvery    = 250 * time.Millisecond
	eagerCount    = 160
	surpriseCount = 32
	surpriseRest  = 5 * time.Minute // between two surprises
	// answerTime is how long an answer is waited for.
	answerTime = 5 * time.Second
	// After silentTries questions without an answer a peer is left alone for silentRest, which doubles up to silentMost.
	silentTries = 3
	silentRest  = time.Minute
	silentMost  = 10 * time.Minute
	// tellEvery is how often a coordinate that moved a little is told.
	tellEvery = 30 * time.Second
	// answersPerSecond bounds what others can make this worker send.
	answersPerSecond = 200
	// saveEvery is how often the place is written down, so that an agent that starts again need not look for it.
	saveEvery = 10 * time.Minute
)

// Meter measures round trips to other workers, answers when they do, and keeps the coordinate.
type Meter struct {
	conn  *net.UDPConn // nil: another's, which send is for
	send  func(b []byte, to netip.AddrPort) error
	every time.Duration // now
	// usualEvery is that time where the cluster does not ask for a slower pace.
	usualEvery time.Duration
	file       string // where the place is kept
	log        *slog.Logger
	found      func() // called when the place is found; must not block
	limit      *rate.Limiter

	mu       sync.Mutex
	viv      *coord.Vivaldi
	set      *wire.Peers // nil: the cluster has not said
	peers    []*ping
	turn     int
	asked    map[uint64]asked
	eager    int
	surprise time.Time
	saved    time.Time
	known    bool
	told     *spec.Coordinate // what place gave last
	toldAt   time.Time
	tellTurn int // the peer that heard gives next
	wake     chan struct{}
}

// ping is a peer that is asked.
type ping struct {
	name   string
	addr   netip.AddrPort
	silent int // questions since the last answer
	rest   time.Time
	usual  float64 // round trip, in milliseconds; a single odd one leaves it
	odd    int     // round trips in a row that were not to be expected
}

type asked struct {
	peer *ping
	at   time.Time
	got  chan<- struct{} // of a witness, who does not measure: an answer came
}

// New listens. An address that is not this machine's own, behind a NAT that forwards, is listened for on its port.
func New(listen string, every time.Duration, file string, log *slog.Logger, found func()) (*Meter, error) {
	if listen == "" {
		listen = ":0"
	}
	a, err := net.ResolveUDPAddr("udp", listen)
	if err != nil {
		return nil, fmt.Errorf("probe address: %w", err)
	}
	conn, err := net.ListenUDP("udp", a)
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		conn, err = net.ListenUDP("udp", &net.UDPAddr{Port: a.Port})
	}
	if err != nil {
		return nil, fmt.Errorf("listen for round trips: %w", err)
	}
	if every <= 0 {
		every = defaultProbeEvery
	}
	var seed [8]byte
	crand.Read(seed[:])
	r := &Meter{conn: conn, every: every, usualEvery: every, file: file, log: log, found: found,
		limit: rate.NewLimiter(answersPerSecond, answersPerSecond),
		viv:   coord.NewVivaldi(binary.BigEndian.Uint64(seed[:])), asked: map[uint64]asked{}, eager: eagerCount, wake: make(chan struct{}, 1)}
	var at spec.Coordinate
	// After a while the others have moved on, and an old place among them is worse than none.
	if st, err := os.Stat(file); err == nil && time.Since(st.ModTime()) < 3*saveEvery {
		if data, err := os.ReadFile(file); err == nil && json.Unmarshal(data, &at) == nil && r.viv.Restore(at) {
			r.eager, r.known = surpriseCount, true
		}
	}
	r.send = func(b []byte, to netip.AddrPort) error {
		_, err := conn.WriteToUDPAddrPort(b, to)
		return err
	}
	return r, nil
}

// Share makes one that has no socket: it sends by another's, and Take is to be called with what comes there.
func Share(send func(b []byte, to netip.AddrPort) error, log *slog.Logger) *Meter {
	return &Meter{send: send, every: defaultProbeEvery, usualEvery: defaultProbeEvery, log: log, found: func() {},
		limit: rate.NewLimiter(answersPerSecond, answersPerSecond),
		viv:   coord.NewVivaldi(0), asked: map[uint64]asked{}, eager: eagerCount, wake: make(chan struct{}, 1)}
}

// Is reports whether a datagram looks like one of these.
func Is(b []byte) bool { return len(b) == datagramSize && b[0] == datagramMagic }

// Address is where others reach it: the host given, or else this worker's, and the port.
func (r *Meter) Address(listen, worker string) string {
	port := r.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	host, _, _ := net.SplitHostPort(listen)
	for _, h := range []string{host, worker} {
		if a, err := netip.ParseAddr(h); err == nil && !a.IsUnspecified() {
			return netip.AddrPortFrom(a.Unmap(), port).String()
		}
	}
	return ""
}

// SetPeers takes what the cluster says.
func (r *Meter) SetPeers(p wire.Peers) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.set != nil && len(r.set.List) == 0 && len(p.List) > 0 {
		r.eager = max(r.eager, eagerCount) // no longer alone
	}
	r.set = &p
	var list []*ping
	for _, name := range p.List {
		addr, err := netip.ParseAddrPort(name)
		if err != nil {
			continue
		}
		if i := slices.IndexFunc(r.peers, func(x *ping) bool { return x.name == name }); i >= 0 {
			list = append(list, r.peers[i])
		} else {
			list = append(list, &ping{name: name, addr: addr})
		}
	}
	r.peers = list
	r.viv.Keep(p.List)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run asks and answers until ctx ends.
func (r *Meter) Run(ctx context.Context) {
	var wg sync.WaitGroup
	if r.conn != nil {
		stop := context.AfterFunc(ctx, func() { r.conn.Close() })
		defer stop()
		wg.Go(func() { panics.Again(r.log, "round trips", func() { r.read(ctx) }) })
	}
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			if r.conn != nil {
				r.conn.Close()
			}
			wg.Wait()
			r.mu.Lock()
			r.saveLocked()
			r.mu.Unlock()
			return
		case <-r.wake:
		case <-t.C:
		}
		t.Reset(r.ask(time.Now()))
	}
}

// ask sends the next question, and gives the time until the one after it.
func (r *Meter) ask(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, a := range r.asked {
		if now.Sub(a.at) > answerTime {
			delete(r.asked, n)
		}
	}
	if r.known && now.Sub(r.saved) >= saveEvery {
		r.saved = now
		r.saveLocked()
	}
	if len(r.peers) == 0 { // a worker without peers sleeps; SetPeers wakes it
		return saveEvery
	}
	wait := r.every
	if r.eager > 0 {
		r.eager--
		wait = min(wait, eagerEvery)
	}
	for range r.peers {
		p := r.peers[r.turn%len(r.peers)]
		r.turn++
		if now.Before(p.rest) {
			continue
		}
		if p.silent++; p.silent >= silentTries {
			p.rest = now.Add(min(silentMost, silentRest<<min(p.silent-silentTries, 8)))
		}
		r.question(asked{peer: p})
		break
	}
	return wait
}

// witnessTries questions are sent to a worker that others are in doubt about, one after the other within the time given.
const witnessTries = 4

// Reach reports whether a worker answers within a time: what a witness is asked by the cluster.
func (r *Meter) Reach(ctx context.Context, addr netip.AddrPort, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	got := make(chan struct{}, 1)
	to := &ping{addr: addr}
	t := time.NewTicker(max(wait/witnessTries, time.Millisecond))
	defer t.Stop()
	for {
		r.mu.Lock()
		if r.set != nil {
			r.question(asked{peer: to, got: got})
		}
		r.mu.Unlock()
		select {
		case <-got:
			return true
		case <-ctx.Done():
			return false
		case <-t.C:
		}
	}
}

// question asks, with the lock held.
func (r *Meter) question(a asked) {
	var nonce [8]byte
	crand.Read(nonce[:])
	q := datagram{kind: question, keyID: r.set.KeyID, nonce: binary.BigEndian.Uint64(nonce[:])}
	b := q.append(nil, r.set.Key)
	a.at = time.Now()
	r.asked[q.nonce] = a
	if err := r.send(b, a.peer.addr); err != nil {
		delete(r.asked, q.nonce)
		r.log.Debug("ask for a round trip", "peer", a.peer.addr, "err", err)
	}
}

// SetPace takes the least time between questions that the cluster asks for; nil: none.
func (r *Meter) SetPace(p *wire.Pace) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.every = r.usualEvery; p != nil {
		r.every = max(r.every, time.Duration(p.Probe)*time.Millisecond)
	}
}

// read answers questions and takes answers until the socket is closed.
func (r *Meter) read(ctx context.Context) {
	var buf [datagramSize + 1]byte
	for {
		n, from, err := r.conn.ReadFromUDPAddrPort(buf[:])
		at := time.Now()
		switch {
		case err == nil:
			r.Take(at, buf[:n], netip.AddrPortFrom(from.Addr().Unmap(), from.Port()))
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default: // such as a port that is closed at the other side; never many in a row without a question of ours
			r.log.Debug("read a round trip", "err", err)
		}
	}
}

// Take handles one datagram from anybody.
func (r *Meter) Take(at time.Time, data []byte, from netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.set == nil {
		return
	}
	d, err := parseDatagram(data, r.set.KeyID, r.set.Key)
	if err != nil {
		return // nobody is told anything
	}
	if d.kind == question {
		if !r.limit.AllowN(at, 1) {
			return
		}
		a := datagram{kind: answer, keyID: r.set.KeyID, nonce: d.nonce, at: r.viv.Coordinate()}
		_ = r.send(a.append(nil, r.set.Key), from)
		return
	}
	q, ok := r.asked[d.nonce]
	if !ok || q.peer.addr != from {
		return // late, twice, or from somebody else
	}
	delete(r.asked, d.nonce)
	if q.got != nil {
		select {
		case q.got <- struct{}{}:
		default:
		}
		return
	}
	ms := float64(at.Sub(q.at)) / 1e6
	q.peer.silent, q.peer.rest = 0, time.Time{}
	if !slices.Contains(r.peers, q.peer) || !r.viv.Update(q.peer.name, d.at, ms) {
		return
	}
	// A way that has changed, twice in a row, is worth a closer look, now and then.
	switch was := q.peer.usual; {
	case was == 0 || math.Abs(ms-was) <= max(2, was/4):
		q.peer.odd = 0
	default:
		if q.peer.odd++; q.peer.odd < 2 {
			ms = was
		} else if q.peer.odd = 0; at.Sub(r.surprise) > surpriseRest {
			r.surprise, r.eager = at, max(r.eager, surpriseCount)
			r.viv.Hurry()
		}
	}
	q.peer.usual = ms
	if !r.known && r.viv.Known() {
		r.known = true
		r.found()
	}
}

// Place gives the coordinate, or nil while it is not known. A worker that has nobody to measure to is at the origin. A
// coordinate never stands still; it is told anew only when it has moved by a tenth of the usual round trip, and not too
// often, because each telling costs traffic and may move a judgement (Ledlie, section 5: application-level coordinates).
func (r *Meter) Place() *spec.Coordinate {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known && (r.set == nil || len(r.set.List) > 0) {
		return nil
	}
	now := r.viv.Coordinate()
	d, usual := 0.0, r.usualLocked()
	if r.told != nil {
		d = drift(*r.told, now)
	}
	if r.told == nil || d > max(2, usual/2) || d > max(1, usual/10) && (r.eager > 0 || time.Since(r.toldAt) > min(4*r.every, tellEvery)) {
		r.told, r.toldAt = &now, time.Now()
	}
	c := *r.told
	c.Error = now.Error
	return &c
}

// Heard gives the usual round trips to the next few peers, at most n.
func (r *Meter) Heard(n int) (out []wire.PeerRTT) {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for range r.peers {
		p := r.peers[r.tellTurn%len(r.peers)]
		r.tellTurn++
		if p.usual > 0 && p.silent < silentTries {
			out = append(out, wire.PeerRTT{Probe: p.name, Ms: math.Round(p.usual*10) / 10})
		}
		if len(out) == n {
			break
		}
	}
	return out
}

// usualLocked is the mean round trip to peers, in milliseconds.
func (r *Meter) usualLocked() float64 {
	sum, n := 0.0, 0.0
	for _, p := range r.peers {
		if p.usual > 0 {
			sum, n = sum+p.usual, n+1
		}
	}
	return sum / max(n, 1)
}

// drift is how far a coordinate has moved, in milliseconds.
func drift(a, b spec.Coordinate) float64 {
	up := math.Abs(a.Height - b.Height)
	a.Height, b.Height = 0, 0
	return a.RTT(b) + up
}

func (r *Meter) saveLocked() {
	if !r.known || r.file == "" {
		return
	}
	data, err := json.Marshal(r.viv.Coordinate())
	if err == nil {
		err = files.Swap(r.file, data, 0o644)
	}
	if err != nil {
		r.log.Warn("keep the place in the network", "err", err)
	}
}
