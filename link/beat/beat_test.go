package beat

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

var testSession = Session{ID: [4]byte{1, 2, 3}, Key: [32]byte{4, 5, 6}} // of every test

// wire is a network between one child and its parent on a simulated clock.
type wire struct {
	now   time.Time
	pulse *Pulse
	watch *Watch
	rng   *rand.Rand
	loss  float64
	delay time.Duration
	due   []arrival
	quiet []Silent
	back  int
	sent  int // datagrams, both ways

	unsure []time.Time
}

type arrival struct {
	at time.Time
	b  []byte
	up bool
}

func newWire(seed uint64, interval, quietAfter time.Duration) *wire {
	w := &wire{now: time.Unix(1_000_000, 0), watch: NewWatch(quietAfter), rng: rand.New(rand.NewPCG(seed, 1))}
	w.pulse = NewPulse(interval, w.now)
	w.watch.Add("w1", testSession, nil)
	return w
}

func (w *wire) put(b []byte, up bool) {
	w.sent++
	if w.rng.Float64() >= w.loss {
		w.due = append(w.due, arrival{w.now.Add(w.delay), b, up})
	}
}

// run lets time pass, in steps of a millisecond.
func (w *wire) run(t *testing.T, d time.Duration, dead bool) {
	t.Helper()
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(time.Millisecond) {
		if seq, ok := w.pulse.Send(w.now); ok && !dead {
			w.put(testSession.append(nil, kindBeat, seq), true)
		} else if ok && w.pulse.Unsure() {
			w.unsure = append(w.unsure, w.now)
		}
		for len(w.due) > 0 && !w.due[0].at.After(w.now) {
			a := w.due[0]
			w.due = w.due[1:]
			if a.up {
				answer, name, back, err := w.watch.Take(w.now, a.b, nil)
				if err != nil || name != "w1" {
					t.Fatalf("%s: %v", name, err)
				}
				if back {
					w.back++
				}
				w.put(answer, false)
			} else if _, _, seq, err := parse(a.b); err == nil {
				w.pulse.Answer(w.now, seq)
			}
		}
		w.quiet = append(w.quiet, w.watch.Quiet(w.now)...)
	}
}

// On a network without loss a beat goes out at each interval, and no more.
func TestIdleTraffic(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, 30 * time.Second} {
		w := newWire(1, interval, 2*interval)
		w.delay = 5 * time.Millisecond
		w.run(t, 100*interval, false)
		if w.sent < 198 || w.sent > 202 {
			t.Errorf("%s: %d datagrams in 100 intervals, want 200", interval, w.sent)
		}
		if len(w.quiet) != 0 || w.back != 1 {
			t.Errorf("%s: quiet %v, heard anew %d times", interval, w.quiet, w.back)
		}
		if !w.pulse.Alive(w.now) {
			t.Error("the child does not know that it is heard")
		}
		if len(w.unsure) != 0 {
			t.Errorf("unsure at %v", w.unsure)
		}
	}
}

// A network that loses a fifth and takes a quarter of a second is not taken for death within the time of the fast profile.
func TestLossIsNoDeath(t *testing.T) {
	lost := 0
	for seed := range uint64(20) {
		w := newWire(seed, time.Second, 1650*time.Millisecond)
		w.loss, w.delay = 0.2, 250*time.Millisecond
		at := time.Time{}
		for range 600 { // ten minutes each
			before := len(w.quiet)
			w.run(t, time.Second, false)
			if len(w.quiet) > before {
				at = w.quiet[len(w.quiet)-1].Heard
			}
			heard, _ := w.watch.Heard("w1")
			if !at.IsZero() && heard.Equal(at) && w.now.Sub(at) >= 3*time.Second {
				lost++
			}
		}
	}
	if lost > 0 {
		t.Errorf("%d false alarms in 200 minutes", lost)
	}
}

// Death is noticed after the time given, to the millisecond, and told once.
func TestDeathIsNoticed(t *testing.T) {
	w := newWire(1, time.Second, 1650*time.Millisecond)
	w.run(t, 10*time.Second+500*time.Millisecond, false)
	heard, ok := w.watch.Heard("w1")
	if !ok {
		t.Fatal("not heard")
	}
	w.run(t, time.Minute, true)
	if len(w.quiet) != 1 || !w.quiet[0].Heard.Equal(heard) {
		t.Fatalf("quiet: %v, heard last at %v", w.quiet, heard)
	}
	if w.pulse.Alive(w.now) {
		t.Error("the child believes that it is heard")
	}
	// The child is unsure before it is missed, and once.
	if len(w.unsure) != 1 || w.unsure[0].Sub(heard) > 1650*time.Millisecond {
		t.Errorf("unsure at %v, heard last at %v", w.unsure, heard)
	}
	w.run(t, 2*time.Second, false)
	if w.back != 2 {
		t.Errorf("heard anew %d times, want twice", w.back)
	}
}

// A parent that is gone is not flooded.
func TestNoFlood(t *testing.T) {
	w := newWire(1, 30*time.Second, time.Minute)
	w.run(t, time.Minute, false)
	w.loss = 1
	before := w.sent
	w.run(t, 10*time.Minute, false)
	if n := w.sent - before; n > 40 {
		t.Errorf("%d datagrams in ten minutes without an answer", n)
	}
	deaf := newWire(1, time.Second, time.Minute)
	deaf.loss = 1
	deaf.run(t, 10*time.Minute, false)
	if deaf.sent > 40 {
		t.Errorf("%d datagrams in ten minutes through a firewall", deaf.sent)
	}
}

// What is recorded and played again keeps nobody alive, and what others make is not answered.
func TestReplaysAndForgeries(t *testing.T) {
	w := NewWatch(2 * time.Second)
	w.Add("w1", testSession, nil)
	now := time.Unix(1_000_000, 0)
	old := testSession.append(nil, kindBeat, 7)
	if _, _, _, err := w.Take(now, old, nil); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		now = now.Add(500 * time.Millisecond)
		_, _, _, _ = w.Take(now, old, nil)
	}
	if len(w.Quiet(now)) != 1 {
		t.Error("an old beat keeps the child alive")
	}
	if _, _, _, err := w.Take(now, testSession.append(nil, kindBeat, 6), nil); err != ErrReplayed {
		t.Errorf("an older beat: %v", err)
	}
	forged := testSession.append(nil, kindBeat, 9)
	forged[8] ^= 1
	if _, _, _, err := w.Take(now, forged, nil); err != ErrForged {
		t.Errorf("a changed beat: %v", err)
	}
	if _, _, _, err := w.Take(now, testSession.append(nil, kindAnswer, 9), nil); err != ErrMalformed {
		t.Errorf("an answer: %v", err)
	}
	other := Session{ID: [4]byte{9}}
	if _, _, _, err := w.Take(now, other.append(nil, kindBeat, 9), nil); err != ErrUnknown {
		t.Errorf("an unknown session: %v", err)
	}
	w.Remove("w1")
	if _, _, _, err := w.Take(now, testSession.append(nil, kindBeat, 10), nil); err != ErrUnknown {
		t.Errorf("a session that has ended: %v", err)
	}
}

// A child that can be heard and cannot be told anything is out of touch.
func TestDeafChild(t *testing.T) {
	w := NewWatch(2 * time.Second)
	w.Add("w1", testSession, nil)
	now := time.Unix(1_000_000, 0)
	if _, _, back, err := w.Take(now, testSession.append(nil, kindBeat, 1), nil); err != nil || !back {
		t.Fatal(back, err)
	}
	for seq := range uint32(5) {
		now = now.Add(time.Second)
		if answer, _, back, err := w.Take(now, testSession.append(nil, kindDeaf, 2+seq), nil); err != nil || back || len(answer) != Size {
			t.Fatal(answer, back, err)
		}
	}
	if len(w.Quiet(now)) != 1 {
		t.Error("it counts as in touch")
	}
	if _, _, back, err := w.Take(now, testSession.append(nil, kindBeat, 9), nil); err != nil || !back {
		t.Errorf("it is not heard again: %v", err)
	}
	p := NewPulse(time.Second, now)
	seq, _ := p.Send(now)
	if p.Deaf(now.Add(time.Hour)) {
		t.Error("deaf, and it never heard anything")
	}
	p.Answer(now, seq)
	if p.Deaf(now) || !p.Deaf(now.Add(time.Hour)) {
		t.Error("deafness is not noticed")
	}
}

// A child whose beats come from elsewhere is told of, and one that is mute is alive and gets no answers.
func TestMovedChild(t *testing.T) {
	w := NewWatch(2 * time.Second)
	moves := 0
	w.Add("w1", testSession, func() { moves++ })
	now := time.Unix(1_000_000, 0)
	a, b := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.1:2")
	for i, from := range []netip.AddrPort{a, a, b, b, a} {
		if _, _, _, err := w.Take(now, testSession.append(nil, kindBeat, uint32(i+1)), nil); err != nil {
			t.Fatal(err)
		}
		if moved := w.Came("w1", from); moved != nil {
			moved()
		}
	}
	if moves != 2 {
		t.Errorf("it moved %d times, not twice", moves)
	}
	if w.Came("w2", a) != nil {
		t.Error("one that nobody watches moved")
	}
	other := testSession
	other.Key[0]++
	w.Mute(other)
	if answer, _, _, _ := w.Take(now, testSession.append(nil, kindBeat, 6), nil); len(answer) != Size {
		t.Error("another session's end took the answers")
	}
	w.Mute(testSession)
	now = now.Add(time.Second)
	for i, kind := range []byte{kindBeat, kindDeaf} {
		if answer, name, _, err := w.Take(now, testSession.append(nil, kind, uint32(7+i)), nil); answer != nil || name != "w1" || err != nil {
			t.Errorf("%v, %s, %v", answer, name, err)
		}
	}
	if at, ok := w.Heard("w1"); !ok || !at.Equal(now) {
		t.Error("it is not heard")
	}
	w.Add("w1", testSession, nil)
	if answer, _, _, _ := w.Take(now, testSession.append(nil, kindBeat, 1), nil); len(answer) != Size {
		t.Error("its next session is mute")
	}
}

// Over real sockets: heard, silent when the child ends, heard again under a new session.
func TestSockets(t *testing.T) {
	type word struct {
		name  string
		alive bool
	}
	words := make(chan word, 16)
	log := slog.New(slog.DiscardHandler)
	l, err := Listen("127.0.0.1:0", 400*time.Millisecond, log, func(name string, _ time.Time, alive bool) { words <- word{name, alive} })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	to := l.conn.LocalAddr().(*net.UDPAddr).AddrPort()
	expect := func(alive bool) {
		t.Helper()
		select {
		case w := <-words:
			if w.name != "w1" || w.alive != alive {
				t.Fatalf("%+v, want alive %v", w, alive)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("nothing was told, want alive %v", alive)
		}
	}
	s := NewSender(log)
	for n := range 2 {
		session := Session{ID: [4]byte{byte(n)}, Key: [32]byte{byte(n)}}
		l.Add("w1", session, nil)
		sctx, stop := context.WithCancel(ctx)
		answered := make(chan bool, 16)
		var beats sync.WaitGroup
		beats.Go(func() {
			if err := s.Run(sctx, to, session, 100*time.Millisecond, func(ok bool) { answered <- ok }, func() {}); err != nil {
				t.Error(err)
			}
		})
		expect(true)
		if !<-answered {
			t.Error("not answered")
		}
		if s.Contact().IsZero() {
			t.Error("no contact")
		}
		stop()
		beats.Wait()
		expect(false)
	}
	if st := l.Stats(); st.Beats < 2 {
		t.Errorf("%+v", st)
	}
}

func FuzzTake(f *testing.F) {
	f.Add(testSession.append(nil, kindBeat, 1))
	f.Add(testSession.append(nil, kindAnswer, 1))
	f.Add([]byte("B"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		w := NewWatch(time.Second)
		w.Add("w1", testSession, nil)
		answer, name, _, err := w.Take(time.Unix(1, 0), b, nil)
		if err != nil {
			if len(answer) > 0 {
				t.Error("an answer to what was refused")
			}
			return
		}
		if len(b) != Size || len(answer) != Size || name != "w1" || !testSession.valid(b) {
			t.Errorf("%x was taken for a beat", b)
		}
	})
}

// What is lost is seen at the child: both ways of a try count.
func TestLossIsMeasured(t *testing.T) {
	for _, loss := range []float64{0, 0.05, 0.2} {
		w := newWire(1, time.Second, 3*time.Second)
		w.delay, w.loss = 5*time.Millisecond, loss
		sum, n := 0.0, 0.0
		for range 20 {
			w.run(t, 30*time.Second, false)
			sum, n = sum+w.pulse.Loss(), n+1
		}
		if want := 1 - (1-loss)*(1-loss); sum/n < want*0.7 || sum/n > want*1.3+0.01 {
			t.Errorf("%g each way: measured %.3f, want about %.3f", loss, sum/n, want)
		}
	}
	if w := NewPulse(time.Second, time.Unix(1_000_000, 0)); w.Loss() != 0 {
		t.Error("loss before anything was heard")
	}
}
