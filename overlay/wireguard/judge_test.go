package wireguard

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// play runs a judge for a while, in steps of 100 ms. answers says whether a question of now is answered, after took.
type play struct {
	j    *judge
	now  time.Time
	r    peerReading
	took time.Duration

	number uint64
	due    map[uint64]time.Time
	asked  []time.Duration // since the beginning
	began  time.Time
	falls  int
	// unwanted: nothing is sent to it.
	unwanted bool
}

func newPlay(r peerReading) *play {
	p := &play{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), r: r, took: 20 * time.Millisecond, due: map[uint64]time.Time{}}
	p.began = p.now
	p.j = newJudge(p.now, r)
	return p
}

func (p *play) run(d time.Duration, answers func() bool) {
	for end := p.now.Add(d); p.now.Before(end); p.now = p.now.Add(100 * time.Millisecond) {
		for n, at := range p.due {
			if !at.After(p.now) {
				p.r.rx += 96
				p.j.answered(at, n)
				delete(p.due, n)
			}
		}
		was := p.j.up
		ask := p.j.step(p.now, p.r, !p.unwanted)
		if was && !p.j.up {
			p.falls++
		}
		if ask {
			p.number++
			p.r.tx += 96
			p.asked = append(p.asked, p.now.Sub(p.began))
			p.j.asks(p.now, p.number)
			if answers() {
				p.due[p.number] = p.now.Add(p.took)
			}
		}
	}
}

func yes() bool { return true }
func no() bool  { return false }

var there = netip.MustParseAddrPort("192.0.2.2:51820")

func TestJudge(t *testing.T) {
	t.Run("nobody knows where it is", func(t *testing.T) {
		p := newPlay(peerReading{})
		p.run(time.Minute, yes)
		if p.j.up || len(p.asked) != 0 || p.j.why != "no direct path to it is known" {
			t.Errorf("up %v, asked %v: %s", p.j.up, p.asked, p.j.why)
		}
	})
	t.Run("it answers", func(t *testing.T) {
		p := newPlay(peerReading{at: there})
		p.run(time.Second, yes)
		if !p.j.up || p.j.loss != 0 {
			t.Fatalf("up %v after %v, round trip %s, loss %g: %s", p.j.up, p.asked, p.j.rtt, p.j.loss, p.j.why)
		}
		// Without traffic it is asked now and then, and that is no traffic; then it rests.
		p.asked = nil
		p.run(2*time.Minute, yes)
		if n := len(p.asked); n != 6 || p.j.rtt != p.took {
			t.Errorf("asked %d times in two minutes, round trip %s", n, p.j.rtt)
		}
		p.run(2*time.Minute, yes)
		p.asked = nil
		p.run(time.Hour, yes)
		if len(p.asked) != 0 || p.j.up || p.j.why != "it was not used for a while" || !p.j.quiet() {
			t.Errorf("asked %d times, up %v: %s", len(p.asked), p.j.up, p.j.why)
		}
		// The datapath has found it again.
		p.j.hope(p.now)
		p.run(time.Second, yes)
		if !p.j.up {
			t.Errorf("not up: %s", p.j.why)
		}
		// A little now and then keeps it.
		for range 60 {
			p.r.tx, p.r.rx = p.r.tx+400, p.r.rx+400
			p.run(10*time.Second, yes)
		}
		if !p.j.up {
			t.Errorf("not up with traffic: %s", p.j.why)
		}
		p.run(10*time.Minute, yes)
		// What comes by itself wakes it.
		p.r.rx += 5000
		p.run(time.Second, yes)
		if !p.j.up {
			t.Errorf("not up when something comes: %s", p.j.why)
		}
	})
	t.Run("it does not", func(t *testing.T) {
		p := newPlay(peerReading{at: there})
		p.run(10*time.Minute, no)
		if n := len(p.asked); p.j.up || n < 60 || n > 75 || !strings.Contains(p.j.why, "nothing answers by it at 192.0.2.2:51820") {
			t.Errorf("up %v, asked %d times: %s", p.j.up, n, p.j.why)
		}
		// Nothing is sent to it any more.
		p.unwanted, p.asked = true, nil
		p.run(10*time.Minute, no)
		if len(p.asked) != 0 || !p.j.quiet() {
			t.Errorf("asked %d times though nobody wants it", len(p.asked))
		}
		// It begins by itself.
		p.r.rx += 96
		p.run(11*time.Second, no)
		if n := len(p.asked); n == 0 {
			t.Error("it is not asked when something came")
		}
		p.unwanted = false
		// It has got another address.
		p.j.hope(p.now)
		p.run(time.Second, yes)
		if !p.j.up {
			t.Error("not up")
		}
	})
	t.Run("an earlier agent's session", func(t *testing.T) {
		p := newPlay(peerReading{at: there})
		p = newPlay(peerReading{at: there, handshake: p.now.Add(-2 * time.Minute)})
		if !p.j.up {
			t.Fatal("it is not used")
		}
		p.run(5*time.Second, no)
		if p.j.up {
			t.Error("it is used though it is dead")
		}
		if p = newPlay(peerReading{at: there, handshake: p.now.Add(-4 * time.Minute)}); p.j.up {
			t.Error("one that has ended is used")
		}
	})
	t.Run("it breaks with traffic", func(t *testing.T) {
		p := newPlay(peerReading{at: there})
		p.run(time.Minute, yes)
		p.r.handshake = p.now
		from := p.now
		for p.j.up && p.now.Sub(from) < time.Minute {
			p.r.tx += 5000
			p.run(100*time.Millisecond, no)
		}
		// A second of silence, then four questions.
		if d := p.now.Sub(from); p.j.up || d > 4500*time.Millisecond {
			t.Errorf("up %v after %s", p.j.up, d)
		}
		if !strings.Contains(p.j.why, "nothing answers by it any more since 03:04:45") || !strings.Contains(p.j.why, "last handshake 03:05:05") {
			t.Error(p.j.why)
		}
		// One answer by chance brings nothing back.
		one := true
		p.run(30*time.Second, func() bool { was := one; one = false; return was })
		if p.j.up {
			t.Error("up after one answer")
		}
		p.run(15*time.Second, yes)
		if !p.j.up {
			t.Errorf("not up again: %s", p.j.why)
		}
	})
	t.Run("only what is sent is lost", func(t *testing.T) {
		p := newPlay(peerReading{at: there})
		p.run(time.Minute, yes)
		from := p.now
		for p.j.up && p.now.Sub(from) < time.Minute {
			p.r.tx, p.r.rx = p.r.tx+5000, p.r.rx+5000
			p.run(100*time.Millisecond, no)
		}
		if d := p.now.Sub(from); p.j.up || d > askBusy+4*time.Second {
			t.Errorf("up %v after %s", p.j.up, d)
		}
	})
	t.Run("it breaks without traffic", func(t *testing.T) {
		p := newPlay(peerReading{at: there})
		p.run(time.Minute, yes)
		p.run(askIdle+4*time.Second, no)
		if p.j.up {
			t.Error("still up")
		}
	})
	t.Run("one in five is lost", func(t *testing.T) {
		p := newPlay(peerReading{at: there})
		n := 0
		for range 1800 {
			p.r.tx, p.r.rx = p.r.tx+5000, p.r.rx+5000
			p.run(time.Second, func() bool { n++; return n%5 != 0 })
		}
		if !p.j.up || p.j.loss < 0.05 || p.j.loss > 0.5 {
			t.Errorf("up %v, loss %g: %s", p.j.up, p.j.loss, p.j.why)
		}
	})
	t.Run("it is slow", func(t *testing.T) {
		p := newPlay(peerReading{at: there})
		p.took = 900 * time.Millisecond // longer than what is waited for at first
		for range 1800 {
			p.r.tx, p.r.rx = p.r.tx+5000, p.r.rx+5000
			p.run(time.Second, yes)
		}
		if !p.j.up || p.j.rtt < 800*time.Millisecond || p.j.need != 1 {
			t.Errorf("up %v, round trip %s, need %d: %s", p.j.up, p.j.rtt, p.j.need, p.j.why)
		}
	})
	t.Run("it flaps", func(t *testing.T) {
		p := newPlay(peerReading{at: there})
		for range 180 {
			p.run(10*time.Second, yes)
			p.r.tx += 5000
			p.run(10*time.Second, no)
		}
		if p.falls == 0 || p.falls > 6 {
			t.Errorf("%d changes in an hour", p.falls)
		}
	})
}
