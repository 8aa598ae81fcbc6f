package beat

import "time"

const (
	// firstWait is how long the answer to a beat is waited for while the round trip is not known.
	firstWait = 300 * time.Millisecond
	// leastWait bounds the wait on quick networks.
	leastWait = 100 * time.Millisecond
	// urgentWait is between further tries: on a network that loses much, it takes many to be heard in time.
	urgentWait = 200 * time.Millisecond
	// urgentTries are sent so before the wait doubles each time, up to the interval.
	urgentTries = 12
	// deafTries beats without any answer since the session began mean that datagrams do not get through at all; one is then
	// tried every deafEvery.
	deafTries = 8
	deafEvery = time.Minute
	// unsureTries in a row without an answer are hardly lost one by one: the way to the parent may have changed.
	unsureTries = 3
)

// Pulse is the child's side of one session: when to send which beat. It is not safe for concurrent use.
type Pulse struct {
	interval time.Duration
	seq      uint32
	first    time.Time // when the beat of this number was sent first
	next     time.Time
	answered bool      // the present beat
	heard    bool      // ever
	tries    int       // of the present beat
	missed   int       // tries since the last answer
	contact  time.Time // the sending of the last beat that was answered
	rtt      time.Duration
	loss     float64      // of tries, smoothed
	sent     [8]time.Time // of the present beat, by try
}

// NewPulse begins a session whose beats are sent at an interval, at least 100 ms.
func NewPulse(interval time.Duration, now time.Time) *Pulse {
	return &Pulse{interval: max(interval, leastWait), next: now, answered: true}
}

// Due is when Send has something to do.
func (p *Pulse) Due() time.Time { return p.next }

// Send gives the number of the beat to send now; ok is false before Due. A beat without an answer is sent again after
// one and a half round trips, then quickly, and then with growing waits up to the interval.
func (p *Pulse) Send(now time.Time) (seq uint32, ok bool) {
	if now.Before(p.next) {
		return 0, false
	}
	if p.answered || p.tries >= len(p.sent) || now.Sub(p.first) >= p.interval && p.tries > 2 {
		p.lose(p.tries, p.answered)
		p.seq++
		p.first, p.answered, p.tries = now, false, 0
	}
	p.sent[p.tries] = now
	p.tries++
	p.missed++
	p.next = now.Add(p.wait())
	return p.seq, true
}

func (p *Pulse) wait() time.Duration {
	if !p.heard && p.seq > deafTries {
		return deafEvery
	}
	w := firstWait
	switch {
	case p.missed > 1:
		w = urgentWait
	case p.rtt > 0:
		w = max(leastWait, p.rtt*3/2)
	}
	if p.missed > urgentTries { // the parent is gone, or the way to it: no flood for that
		w <<= min(p.missed-urgentTries, 16)
	}
	return min(w, p.interval)
}

// Answer takes the answer to a beat; late ones and those of other beats are no news. It reports whether it was one.
func (p *Pulse) Answer(now time.Time, seq uint32) bool {
	if seq != p.seq || p.answered || p.tries == 0 {
		return false
	}
	p.answered, p.heard, p.missed = true, true, 0
	// Which of the tries was answered is not known: for contact the first counts, which is surely not too late; for the round
	// trip only a beat that was sent once (Karn's algorithm).
	p.contact = p.sent[0]
	if p.tries == 1 {
		if rtt := now.Sub(p.sent[0]); p.rtt == 0 {
			p.rtt = rtt
		} else {
			p.rtt += (rtt - p.rtt) / 8
		}
	}
	p.next = maxTime(p.first.Add(p.interval), now)
	return true
}

// lossShare is how much one try counts in what is known of loss.
const lossShare = 1.0 / 32

// lose counts the tries of a beat that is over.
func (p *Pulse) lose(tries int, answered bool) {
	if !p.heard {
		return // datagrams may not get through at all
	}
	for n := range tries {
		lost := 1.0
		if answered && n == tries-1 {
			lost = 0
		}
		p.loss += (lost - p.loss) * lossShare
	}
}

// Loss is the share of tries that got no answer of late, from 0 to 1: the beat or its answer was lost, or late.
func (p *Pulse) Loss() float64 { return p.loss }

// Contact is when the last beat was sent that reached the parent, or the zero time.
func (p *Pulse) Contact() time.Time { return p.contact }

// Alive reports whether beats are answered at present.
func (p *Pulse) Alive(now time.Time) bool {
	return p.heard && now.Sub(p.contact) < 2*p.interval+time.Second
}

// Unsure reports whether the beat just sent is the one in a row without an answer at which the child ought to look whether its
// connection still leads to the parent: once for each silence, and only if beats were answered before.
func (p *Pulse) Unsure() bool { return p.heard && p.missed == unsureTries }

// Deaf reports whether beats were answered and no longer are.
func (p *Pulse) Deaf(now time.Time) bool { return p.heard && !p.Alive(now) }

// haste says which beats wait for their answers in the thread that sends them. The zero value is for the first.
type haste struct{ rest int }

// hasteRest is how many beats after one that waited in vain do not. Where the parent is in this process, as with "skerry up", and there
// is one processor, none is answered while a beat waits, and the round trip that is then measured has the wait in it.
const hasteRest = 16

// on asks for the next beat, with the round trip of late; 0: not known.
func (h *haste) on(rtt time.Duration) bool {
	if h.rest > 0 {
		h.rest--
		return false
	}
	return rtt > 0 && rtt <= quickRTT
}

func (h *haste) waited(answered bool) {
	if !answered {
		h.rest = hasteRest
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
