package resolver

import (
	"net/netip"
	"sync"
	"time"
)

// verdict says what becomes of an answer.
type verdict int

const (
	pass verdict = iota
	slip         // say that TCP has the answer: who forges an address gets nothing out of it, who does not gets through
	drop
)

// maxBuckets is the number of networks whose rate is remembered.
const maxBuckets = 1 << 16

// limiter bounds the answers to each network of askers, by token buckets.
type limiter struct {
	rate float64

	mu      sync.Mutex
	buckets map[netip.Prefix]*bucket
}

type bucket struct {
	tokens float64
	at     time.Time
	over   int // answers withheld since the last that was not
}

func newLimiter(rate float64) *limiter {
	return &limiter{rate: rate, buckets: map[netip.Prefix]*bucket{}}
}

// take counts an answer to a network. Every second one above the rate slips.
func (l *limiter) take(p netip.Prefix, now time.Time) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[p]
	if b == nil {
		if len(l.buckets) >= maxBuckets {
			l.sweep(now)
		}
		b = &bucket{tokens: l.rate, at: now}
		l.buckets[p] = b
	}
	b.tokens = min(l.rate, b.tokens+now.Sub(b.at).Seconds()*l.rate)
	b.at = now
	if b.tokens >= 1 {
		b.tokens--
		b.over = 0
		return pass
	}
	if b.over++; b.over%2 == 0 {
		return slip
	}
	return drop
}

// sweep forgets the networks that would have a full bucket, and if there are none, all: that many networks at once are
// forged, and a limit for each of them is no limit.
func (l *limiter) sweep(now time.Time) {
	for p, b := range l.buckets {
		if b.tokens+now.Sub(b.at).Seconds()*l.rate >= l.rate {
			delete(l.buckets, p)
		}
	}
	if len(l.buckets) >= maxBuckets {
		clear(l.buckets)
	}
}
