package wireguard

import (
	"fmt"
	"net/netip"
	"time"
)

// Times of questions; see the drawing in doc.go.
const (
	askIdle  = 20 * time.Second
	askBusy  = 5 * time.Second
	askSoon  = 500 * time.Millisecond // while it is in doubt whether the way works
	askLater = 10 * time.Second       // when it has not worked for a while
	silence  = time.Second            // from what is sent until something comes back
	waitFor  = 600 * time.Millisecond // for an answer, or four round trips if that is longer
	deadAt   = 4                      // questions in a row without an answer
	quickFor = 10                     // questions that are asked soon before it is later
	needMost = 48                     // answers in a row before a way that broke again and again is used
	proven   = 5 * time.Minute        // after which a way that works is trusted like a new one
	// sessionLife is how old the last handshake of a session in use may be: WireGuard ends one after three minutes.
	sessionLife = 3 * time.Minute
	maxAsked    = 8
	// restAfter is how long a way without traffic is kept: as long as the datapath keeps a session. Whoever pays by the byte is then
	// asked nothing more.
	restAfter = 3 * time.Minute
	// quiesce is how long a peer to which nothing is sent is asked after something came from it: it is about to use this way.
	quiesce = 15 * time.Second
	// traffic is how many bytes between two looks, or in askIdle, are more than questions, answers and handshakes.
	traffic = 1024
)

// peerReading is what the kernel tells of a peer.
type peerReading struct {
	at        netip.AddrPort // the zero value: it knows none
	handshake time.Time      // the zero value: there was none
	rx, tx    int64          // bytes
}

// asked is a question without an answer yet.
type asked struct {
	number uint64
	at     time.Time
	late   bool // it counted as lost; an answer may still come
}

// judge decides whether a peer is reached by WireGuard. It has no clock of its own.
type judge struct {
	up      bool
	resting bool   // it was up and not used; nothing is asked until there is reason for hope, or traffic
	why     string // why it is not up
	rtt     time.Duration
	loss    float64
	last    peerReading
	waits   []asked
	asked   time.Time // the last question; the zero value: the next one is due
	tries   int       // questions since there was an answer, or reason for hope
	misses  int       // in a row
	answers int       // in a row while down
	need    int       // answers in a row that bring it up
	since   time.Time // up
	used    time.Time // when there was traffic last
	mark    time.Time // from when bytes are counted for that
	marked  int64
	rxAt    time.Time // when something came last
	txAt    time.Time // when something was sent last, after something had come
}

// newJudge takes up what an earlier agent left: a session that lives is used until it proves dead.
func newJudge(now time.Time, r peerReading) *judge {
	j := &judge{last: r, need: 1, rxAt: now, used: now, mark: now, marked: r.rx + r.tx, why: "it was not tried yet"}
	if !r.handshake.IsZero() && now.Sub(r.handshake) < sessionLife {
		j.up, j.since = true, now
	}
	return j
}

// hope has a peer asked soon, because it may be where it was not before.
func (j *judge) hope(now time.Time) {
	if !j.up {
		j.tries, j.asked, j.resting = 0, time.Time{}, false
	}
}

// step looks at what the kernel tells now, and says whether the peer is to be asked. wanted: the datapath reaches it, because
// something is sent there.
func (j *judge) step(now time.Time, r peerReading, wanted bool) (ask bool) {
	if r.rx > j.last.rx {
		j.rxAt = now
		j.txAt = time.Time{}
	} else if r.tx > j.last.tx && j.txAt.IsZero() {
		j.txAt = now
	}
	busy := r.tx+r.rx > j.last.tx+j.last.rx+traffic
	j.last = r
	j.uses(now, busy)
	limit := max(waitFor, 4*j.rtt)
	for i := range j.waits {
		if q := &j.waits[i]; !q.late && now.Sub(q.at) > limit {
			q.late = true
			j.misses++
			j.answers = 0
			j.loss = j.loss*0.9 + 0.1
		}
	}
	if j.up && j.misses >= deadAt {
		j.fall(now)
	}
	if j.up && !j.since.IsZero() && now.Sub(j.since) > proven {
		j.need = 1
	}
	if j.resting {
		return false
	}
	if !j.up && !r.at.IsValid() {
		j.why = "no direct path to it is known"
		return false
	}
	if !j.up && j.misses > 0 && j.need == 1 {
		j.why = fmt.Sprintf("nothing answers by it at %s", r.at)
	}
	if !j.up && !wanted && now.Sub(j.rxAt) > quiesce {
		j.tries = quickFor // there is no hurry any more
		return false
	}
	doubt := j.misses > 0 || !j.txAt.IsZero() && now.Sub(j.txAt) >= silence
	pending := len(j.waits) > 0 && !j.waits[len(j.waits)-1].late
	switch {
	case pending:
		return false
	case j.up && doubt:
		return j.due(now, askSoon)
	case j.up && busy:
		return j.due(now, askBusy)
	case j.up:
		return j.due(now, askIdle)
	case j.tries < quickFor || j.answers > 0:
		return j.due(now, askSoon)
	}
	return j.due(now, askLater)
}

// uses looks whether there is traffic: the way rests when there was none for long, and wakes when there is.
func (j *judge) uses(now time.Time, busy bool) {
	if all := j.last.rx + j.last.tx; now.Sub(j.mark) >= askIdle {
		busy = busy || all > j.marked+traffic
		j.mark, j.marked = now, all
	}
	switch {
	case busy:
		j.used = now
		if j.resting {
			j.hope(now)
		}
	case j.up && now.Sub(j.used) >= restAfter:
		j.up, j.resting, j.answers, j.misses, j.waits = false, true, 0, 0, nil
		j.why = "it was not used for a while"
	}
}

// due reports whether a question is due when they are to be asked so often.
func (j *judge) due(now time.Time, every time.Duration) bool { return now.Sub(j.asked) >= every }

// asks notes that a question was sent.
func (j *judge) asks(now time.Time, number uint64) {
	if len(j.waits) == maxAsked {
		j.waits = append(j.waits[:0], j.waits[1:]...)
	}
	j.waits = append(j.waits, asked{number: number, at: now})
	j.asked = now
	j.tries++
}

// answered takes an answer, and reports whether it was to a question of this peer's.
func (j *judge) answered(now time.Time, number uint64) bool {
	for i, q := range j.waits {
		if q.number != number {
			continue
		}
		switch took := max(now.Sub(q.at), 1); {
		case !j.up: // it may have waited for a handshake
		case j.rtt == 0:
			j.rtt = took
		default:
			j.rtt += (took - j.rtt) / 8
		}
		if q.late {
			j.loss = max(0, j.loss-0.1) // it was not lost after all
		} else {
			j.loss *= 0.9
		}
		j.waits = append(j.waits[:0], j.waits[i+1:]...) // those before it will hardly come
		j.misses, j.tries, j.txAt, j.rxAt = 0, 0, time.Time{}, now
		if !j.up {
			if j.answers++; j.answers >= j.need {
				j.up, j.why, j.since, j.used, j.loss, j.rtt = true, "", now, now, 0, 0
				j.asked = time.Time{} // how long an answer takes is wanted, too
			}
		}
		return true
	}
	return false
}

// fall has the way count as broken.
func (j *judge) fall(now time.Time) {
	j.up, j.answers, j.tries = false, 0, 0
	j.need = min(needMost, max(3, 2*j.need))
	j.why = fmt.Sprintf("nothing answers by it any more since %s", j.rxAt.UTC().Format("15:04:05 UTC"))
	if h := j.last.handshake; !h.IsZero() {
		j.why += fmt.Sprintf(" (last handshake %s)", h.UTC().Format("15:04:05"))
	}
}

// quiet reports whether nothing is to be expected soon.
func (j *judge) quiet() bool {
	if j.resting {
		return true
	}
	if len(j.waits) > 0 && !j.waits[len(j.waits)-1].late {
		return false
	}
	return j.up && j.misses == 0 && j.txAt.IsZero() || !j.up && j.answers == 0 && (j.tries >= quickFor || !j.last.at.IsValid())
}
