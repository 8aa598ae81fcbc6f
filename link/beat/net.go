package beat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"skerry.dev/skerry/internal/panics"
)

// Listener answers beats at the parent and tells who falls silent.
type Listener struct {
	conn  *net.UDPConn
	log   *slog.Logger
	tell  func(name string, heard time.Time, alive bool)
	mu    sync.Mutex
	watch *Watch
	stats Stats
	wake  chan struct{}
}

// Stats counts what a Listener took.
type Stats struct {
	Beats, Malformed, Unknown, Forged, Replayed uint64
}

// Listen takes beats at an address, host:port. A child is quiet after quietAfter without one. tell is called, from one
// goroutine at a time and never for long, when a child becomes quiet and when it is heard (again).
func Listen(addr string, quietAfter time.Duration, log *slog.Logger, tell func(name string, heard time.Time, alive bool)) (*Listener,
	error) {
	a, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("address for beats: %w", err)
	}
	conn, err := net.ListenUDP("udp", a)
	if err != nil {
		return nil, fmt.Errorf("listen for beats: %w", err)
	}
	return &Listener{conn: conn, log: log, tell: tell, watch: NewWatch(quietAfter), wake: make(chan struct{}, 1)}, nil
}

// Add begins a child's session. moved, if it is not nil, is called as tell is, when its beats come from another address than
// before: its connection, which came the same way, may lead nowhere.
func (l *Listener) Add(name string, s Session, moved func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch.Add(name, s, moved)
}

// Mute answers a session's beats no longer, though they count: its connection is gone, and the child is to look after it.
func (l *Listener) Mute(s Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch.Mute(s)
}

// Remove forgets a child.
func (l *Listener) Remove(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch.Remove(name)
}

// Heard is when a child was heard last by its present session; ok is false for one that does not beat.
func (l *Listener) Heard(name string) (at time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watch.Heard(name)
}

// Stats gives the counters.
func (l *Listener) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// Run works until ctx ends, and closes the socket.
func (l *Listener) Run(ctx context.Context) (err error) {
	stop := context.AfterFunc(ctx, func() { l.conn.Close() })
	defer stop()
	told := make(chan func(), 1024)
	var wg sync.WaitGroup
	wg.Go(func() { panics.Again(l.log, "silent children", func() { l.quiet(ctx, told) }) })
	wg.Go(func() {
		panics.Again(l.log, "what beats tell", func() {
			for {
				select {
				case <-ctx.Done():
					return
				case f := <-told:
					f()
				}
			}
		})
	})
	defer wg.Wait()
	panics.Again(l.log, "beats", func() { err = l.read(ctx, told) })
	return err
}

// read takes beats and answers them until ctx ends.
func (l *Listener) read(ctx context.Context, told chan<- func()) error {
	var in [Size + 1]byte
	var out []byte
	for {
		n, from, err := l.conn.ReadFromUDPAddrPort(in[:])
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("listen for beats: %w", err)
		case err != nil:
			l.log.Debug("read a beat", "err", err)
			continue
		}
		now := time.Now()
		answer, name, back, moved, err := l.take(now, in[:n], out[:0], from)
		if err != nil {
			continue // nobody is told anything
		}
		if answer != nil {
			out = answer
			_, _ = l.conn.WriteToUDPAddrPort(answer, from)
		}
		if moved != nil {
			select {
			case told <- moved:
			case <-ctx.Done():
			}
		}
		if back {
			select {
			case told <- func() { l.tell(name, now, true) }:
			case <-ctx.Done():
			}
			select {
			case l.wake <- struct{}{}:
			default:
			}
		}
	}
}

func (l *Listener) take(now time.Time, in, out []byte, from netip.AddrPort) (answer []byte, name string, back bool, moved func(),
	err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	answer, name, back, err = l.watch.Take(now, in, out)
	l.stats.count(err)
	if err == nil {
		moved = l.watch.Came(name, from)
	}
	return answer, name, back, moved, err
}

func (s *Stats) count(err error) {
	switch {
	case err == nil:
		s.Beats++
	case errors.Is(err, ErrUnknown):
		s.Unknown++
	case errors.Is(err, ErrForged):
		s.Forged++
	case errors.Is(err, ErrReplayed):
		s.Replayed++
	default:
		s.Malformed++
	}
}

// quiet tells who has fallen silent.
func (l *Listener) quiet(ctx context.Context, told chan<- func()) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		silent, due := l.silent(time.Now())
		for _, s := range silent {
			select {
			case told <- func() { l.tell(s.Name, s.Heard, false) }:
			case <-ctx.Done():
				return
			}
		}
		wait := time.Hour
		if !due.IsZero() {
			wait = max(time.Until(due), time.Millisecond)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-l.wake:
		}
	}
}

func (l *Listener) silent(now time.Time) ([]Silent, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watch.Quiet(now), l.watch.Due()
}

// Sender beats for a child.
type Sender struct {
	log   *slog.Logger
	mu    sync.Mutex
	pulse *Pulse
}

// NewSender makes a sender.
func NewSender(log *slog.Logger) *Sender { return &Sender{log: log} }

// Loss is the share of beats, or of answers to them, that are lost of late, from 0 to 1.
func (s *Sender) Loss() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pulse == nil {
		return 0
	}
	return s.pulse.Loss()
}

// Contact is when the last beat was sent that reached the parent, or the zero time.
func (s *Sender) Contact() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pulse == nil {
		return time.Time{}
	}
	return s.pulse.Contact()
}

// Run beats for one session until ctx ends. alive is called when beats begin or cease to be answered, unsure some beats before
// they cease (see Pulse.Unsure). Neither may block.
func (s *Sender) Run(ctx context.Context, to netip.AddrPort, session Session, interval time.Duration, alive func(ok bool),
	unsure func()) error {
	way, err := dial(to)
	if err != nil {
		return fmt.Errorf("send beats: %w", err)
	}
	defer way.close()
	p := NewPulse(interval, time.Now())
	s.mu.Lock()
	s.pulse = p
	s.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	// One goroutine both waits for answers and for the next beat: each wake-up of an idle worker counts.
	was := false
	var quick haste
	var in [Size + 1]byte
	for ctx.Err() == nil {
		now := time.Now()
		s.mu.Lock()
		seq, ok := p.Send(now)
		due, is, deaf, doubt, rtt, answered := p.Due(), p.Alive(now), p.Deaf(now), ok && p.Unsure(), p.rtt, p.answered
		s.mu.Unlock()
		got := 0
		if ok {
			kind := byte(kindBeat)
			if deaf {
				kind = kindDeaf
			}
			out := session.append(nil, kind, seq)
			if quick.on(rtt) {
				got, err = way.exchange(out, in[:], 2*rtt)
				quick.waited(got > 0)
			} else {
				err = way.send(out)
			}
			if err != nil {
				s.log.Debug("send a beat", "err", err) // such as a port that is closed; it is tried again
			}
		}
		if doubt {
			unsure()
		}
		if is != was {
			was = is
			alive(is)
		}
		if answered { // nothing is to come: who only waits leaves the socket alone
			timer.Reset(time.Until(due))
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			continue
		}
		if got == 0 {
			if got, err = way.receive(ctx, in[:], due); err != nil {
				continue // it is time, or an ICMP error came, which says no more than that no answer does
			}
		}
		kind, id, of, err := parse(in[:got])
		if err != nil || kind != kindAnswer || id != session.ID || !session.valid(in[:got]) {
			continue
		}
		s.mu.Lock()
		p.Answer(time.Now(), of)
		s.mu.Unlock()
	}
	return nil
}
