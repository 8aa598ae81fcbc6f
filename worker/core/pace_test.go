package core

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// paced is a core that is connected, and what it reports over time.
type paced struct {
	t   *testing.T
	c   *Core
	now time.Time
	at  []time.Duration // of reports, since the beginning
	got []wire.WorkerReport
	act []any
	t0  time.Time
}

func newPaced(t *testing.T, opt Options, pace *wire.Pace) *paced {
	opt.Name = "w"
	p := &paced{t: t, c: New(opt), t0: time.Unix(1e9, 0)}
	p.now = p.t0
	p.c.Start(p.now)
	p.c.Step(p.now, Reattach{})
	p.take(p.c.Step(p.now, ParentUp{Welcome: &wire.Welcome{Pace: pace}}))
	p.take(p.c.Step(p.now, Facts{Facts: wire.WorkerFacts{Arch: "amd64"}}))
	return p
}

func (p *paced) take(fx wire.Effects) {
	for _, s := range fx.Sends {
		if r, ok := s.Msg.(*wire.Report); ok {
			var x wire.WorkerReport
			if err := wire.New().Unmarshal(r.Payload, &x); err != nil {
				p.t.Fatal(err)
			}
			p.at, p.got = append(p.at, p.now.Sub(p.t0)), append(p.got, x)
		}
	}
	p.act = append(p.act, fx.Actions...)
}

// run lets time pass, as a server does: a tick when the core asks for it, and use measured every so often.
func (p *paced) run(d, every time.Duration, use func(at time.Duration) Usage) {
	end, next := p.now.Add(d), p.now
	for p.now.Before(end) {
		wake := p.c.NextWake()
		if wake.IsZero() || next.Before(wake) {
			wake = next
		}
		if wake.After(end) {
			break
		}
		if wake.Before(p.now) {
			p.t.Fatalf("it wants to be called at %s, before now", wake)
		}
		p.now = wake
		if p.now.Equal(next) {
			next = next.Add(every)
			p.take(p.c.Step(p.now, use(p.now.Sub(p.t0))))
		} else {
			before := len(p.at)
			p.take(p.c.Tick(p.now))
			if len(p.at) == before && p.c.NextWake().Equal(p.now) {
				p.t.Fatal("it wakes without end")
			}
		}
	}
	p.now = end
}

// since counts the reports of the last while and gives the longest and shortest gap between two.
func (p *paced) since(d time.Duration) (n int, least, most time.Duration) {
	from := p.now.Sub(p.t0) - d
	least = time.Hour
	for i, at := range p.at {
		if at < from {
			continue
		}
		if n++; i > 0 && p.at[i-1] >= from {
			least, most = min(least, at-p.at[i-1]), max(most, at-p.at[i-1])
		}
	}
	return n, least, most
}

func cpu(v skerry.MilliCPU) Usage {
	return Usage{Instances: map[skerry.InstanceID]wire.QoS{"a": {CPU: v}}}
}

func constant(v skerry.MilliCPU) func(time.Duration) Usage {
	return func(time.Duration) Usage { return cpu(v) }
}

// What the interval comes to, from a minute where nothing changes to a second where everything does.
func TestIntervalFollowsChange(t *testing.T) {
	for _, c := range []struct {
		name        string
		use         func(at time.Duration) Usage
		least, most int // reports in ten minutes
		why         string
	}{
		{"nothing changes", constant(100), 10, 11, wire.PaceIdle},
		{"a little noise", func(at time.Duration) Usage { return cpu(100 + skerry.MilliCPU(at/time.Second)%2*5) }, 10, 18, wire.PaceIdle},
		{"slow drift", func(at time.Duration) Usage { return cpu(skerry.MilliCPU(at / time.Second)) }, 20, 60, wire.PaceChange},
		{"fast drift", func(at time.Duration) Usage { return cpu(50 * skerry.MilliCPU(at/time.Second)) }, 150, 400, wire.PaceChange},
		{"jumps", func(at time.Duration) Usage { return cpu(2000 * (skerry.MilliCPU(at/time.Second) % 2)) }, 290, 600, wire.PaceChange},
	} {
		p := newPaced(t, Options{}, nil)
		p.run(time.Minute, time.Second, c.use)
		p.run(10*time.Minute, time.Second, c.use)
		n, least, most := p.since(10 * time.Minute)
		last := p.got[len(p.got)-1]
		if n < c.least || n > c.most || least < time.Second || most > time.Minute+time.Millisecond {
			t.Errorf("%s: %d reports, %s to %s apart", c.name, n, least, most)
		}
		if last.Pace == nil || last.Pace.Why != c.why || last.Pace.Every == 0 {
			t.Errorf("%s: told %+v", c.name, last.Pace)
		}
	}
}

// A jump is told within a second or two, not after the interval that held before; and once, if it stays.
func TestJumpIsToldAtOnce(t *testing.T) {
	p := newPaced(t, Options{}, nil)
	p.run(5*time.Minute, 10*time.Second, constant(100))
	n := len(p.at)
	p.run(10*time.Second, 10*time.Second, constant(1100))
	if len(p.at) != n+1 || p.at[n] > 301*time.Second {
		t.Fatalf("reports at %v", p.at[n:])
	}
	p.run(50*time.Second, 10*time.Second, constant(1100))
	if got := len(p.at) - n; got > 2 {
		t.Errorf("it is told %d times", got)
	}
}

// The slower and the worse the link, the longer between two reports, whatever changes; and a metered site's word holds.
func TestLinkAndProfileBoundTheInterval(t *testing.T) {
	wild := func(link Usage) func(at time.Duration) Usage {
		return func(at time.Duration) Usage {
			u := cpu(2000 * (skerry.MilliCPU(at/time.Second) % 2))
			u.RTT, u.Loss = link.RTT, link.Loss
			return u
		}
	}
	for _, c := range []struct {
		link  Usage
		least time.Duration
		why   string
	}{{Usage{}, time.Second, wire.PaceChange}, {Usage{RTT: 100 * time.Millisecond}, time.Second, wire.PaceChange},
		{Usage{RTT: 500 * time.Millisecond, Loss: 0.36}, 3125 * time.Millisecond, wire.PaceLink},
		{Usage{RTT: time.Hour, Loss: 7}, time.Minute, wire.PaceLink}} {
		p := newPaced(t, Options{}, nil)
		p.run(10*time.Minute, time.Second, wild(c.link))
		_, least, _ := p.since(9 * time.Minute)
		if last := p.got[len(p.got)-1]; least < c.least || least > c.least+time.Second || last.Pace.Why != c.why {
			t.Errorf("%+v: %s, because of %s", c.link, least, last.Pace.Why)
		}
	}
	pace := &wire.Pace{Report: 60_000, ReportIdle: 300_000}
	p := newPaced(t, Options{}, pace)
	p.run(time.Hour, time.Second, wild(Usage{}))
	if n, least, _ := p.since(30 * time.Minute); least < time.Minute || n < 25 || p.got[len(p.got)-1].Pace.Why != wire.PaceMetered {
		t.Errorf("metered, much changes: %d reports, %s", n, least)
	}
	p = newPaced(t, Options{}, pace)
	p.run(time.Hour, 10*time.Second, constant(100))
	if n, least, most := p.since(30 * time.Minute); n > 7 || least < 5*time.Minute || most > 5*time.Minute+time.Second {
		t.Errorf("metered, nothing changes: %d reports, %s to %s", n, least, most)
	}
	p = newPaced(t, Options{ReportFixed: 15 * time.Second}, nil)
	p.run(10*time.Minute, time.Second, wild(Usage{}))
	if n, least, most := p.since(9 * time.Minute); least != most || least != 15*time.Second || n < 35 {
		t.Errorf("fixed: %d reports, %s to %s", n, least, most)
	}
}

// Near a limit changes count for more, and use is measured more often; nonsense of the cluster is bounded; a new connection
// begins without.
func TestUrgency(t *testing.T) {
	urge := func(p *paced, payload []byte) {
		p.take(p.c.Step(p.now, ParentFrame{Msg: &wire.Report{Kind: wire.ReportUrgency, Payload: payload}}))
	}
	told := func(gain uint32) []byte {
		return wire.New().Marshal(&wire.Urgency{Gain: gain})
	}
	calm := newPaced(t, Options{}, nil)
	calm.run(10*time.Minute, time.Second, constant(100))
	usual, _, _ := calm.since(9 * time.Minute)
	for gain, most := range map[uint32]time.Duration{2: 30 * time.Second, 8: 7500 * time.Millisecond, 1 << 30: 7500 * time.Millisecond} {
		p := newPaced(t, Options{}, nil)
		urge(p, told(gain))
		p.run(10*time.Minute, time.Second, constant(100))
		n, _, gap := p.since(9 * time.Minute)
		if n <= usual || gap > most+time.Second || p.got[len(p.got)-1].Pace.Why != wire.PaceLimit {
			t.Errorf("gain %d: %d reports, up to %s apart, for %s", gain, n, gap, p.got[len(p.got)-1].Pace.Why)
		}
		measured := time.Duration(0)
		for _, a := range p.act {
			if m, ok := a.(MeasureEvery); ok {
				measured = m.Every
			}
		}
		if measured < measureLeast || measured >= UsualMeasure {
			t.Errorf("gain %d: use is measured every %s", gain, measured)
		}
		p.take(p.c.Step(p.now, ParentDown{}))
		p.take(p.c.Step(p.now, ParentUp{Welcome: &wire.Welcome{}}))
		if p.c.reports.gain != 1 || p.act[len(p.act)-1] != (MeasureEvery{}) {
			t.Errorf("after a new connection: %g, %v", p.c.reports.gain, p.act[len(p.act)-1])
		}
	}
	p := newPaced(t, Options{}, nil)
	before := p.c.Up.Ignored.All()["unreadable"]
	urge(p, []byte{0xff, 0x00})
	if p.c.Up.Ignored.All()["unreadable"] != before+1 || p.c.reports.gain > 1 {
		t.Error("what cannot be read has an effect, or is not counted")
	}
}

// A clock that jumps back or far ahead neither stops the reports nor floods the cluster.
func TestReportsAndTheClock(t *testing.T) {
	for _, jump := range []time.Duration{-365 * 24 * time.Hour, 365 * 24 * time.Hour} {
		p := newPaced(t, Options{}, nil)
		p.run(time.Minute, time.Second, constant(100))
		p.now, p.t0 = p.now.Add(jump), p.t0.Add(jump)
		n := len(p.at)
		p.take(p.c.Step(p.now, ParentDown{}))
		p.take(p.c.Step(p.now, ParentUp{Welcome: &wire.Welcome{}})) // as after such a jump
		p.run(10*time.Minute, time.Second, constant(100))
		if got := len(p.at) - n; got < 9 || got > 13 {
			t.Errorf("%s: %d reports in ten minutes", jump, got)
		}
	}
}

// FuzzUrgency gives the core what a cluster may say of limits: it never panics, and reports as often as it may and no more.
func FuzzUrgency(f *testing.F) {
	f.Add(wire.New().Marshal(&wire.Urgency{Gain: 8}))
	f.Add(wire.New().Marshal(&wire.Urgency{Gain: 1 << 31}))
	f.Add([]byte(`{"gain":3}`))
	f.Add([]byte{0xa1, 0x01, 0x20})
	f.Fuzz(func(t *testing.T, payload []byte) {
		p := newPaced(t, Options{}, nil)
		p.take(p.c.Step(p.now, ParentFrame{Msg: &wire.Report{Kind: wire.ReportUrgency, Payload: payload}}))
		if g := p.c.reports.gain; g < 0 || g > mostGain {
			t.Fatalf("gain %g", g)
		}
		p.run(3*time.Minute, 10*time.Second, constant(100))
		if n, least, most := p.since(2 * time.Minute); n < 1 || least < leastReport || most > mostReport+time.Second {
			t.Errorf("%d reports, %s to %s apart", n, least, most)
		}
	})
}
