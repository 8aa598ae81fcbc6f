package api

import (
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"skerry.dev/skerry"
)

// Limits bound what users and addresses may ask for. Zero means the default, a negative rate means none.
type Limits struct {
	UserRate    float64 // requests per second of one user; default 100, in bursts of four times as many
	AddressRate float64 // of one address; default 200
	Streams     int     // logs, terminals, forwards and watches of one user at a time; default 64
	AllStreams  int     // of all users; default 1,024
}

func (l Limits) fill() Limits {
	if l.UserRate == 0 {
		l.UserRate = 100
	}
	if l.AddressRate == 0 {
		l.AddressRate = 200
	}
	if l.Streams == 0 {
		l.Streams = 64
	}
	if l.AllStreams == 0 {
		l.AllStreams = 1024
	}
	return l
}

// maxBuckets bounds the users and addresses that are remembered; beyond it all begin anew.
const maxBuckets = 4096

type limits struct {
	Limits
	mu      sync.Mutex
	users   map[string]*rate.Limiter
	failed  map[string]*rate.Limiter // users and addresses whose failures are audited
	failing *rate.Limiter
	addrs   map[string]*rate.Limiter
	repeats map[string]*repeat       // what reads are in the audit, by who, what and where
	readers map[string]*rate.Limiter // users whose readings are audited
	reading *rate.Limiter
	streams map[string]int
	open    int
}

func newLimits(l Limits) *limits {
	return &limits{Limits: l.fill(), users: map[string]*rate.Limiter{}, addrs: map[string]*rate.Limiter{}, failed: map[string]*rate.Limiter{},
		repeats: map[string]*repeat{}, readers: map[string]*rate.Limiter{},
		reading: rate.NewLimiter(rate.Every(failureEvery), auditedReadings),
		failing: rate.NewLimiter(rate.Every(failureEvery), auditedFailures), streams: map[string]int{}}
}

func (l *limits) user(name string) bool { return l.take(&l.users, name, l.UserRate) }
func (l *limits) addr(a string) bool    { return l.take(&l.addrs, a, l.AddressRate) }

// Failures in the audit: this many at once, then one in a while, of all; of one user or address a tenth of them at once.
const (
	auditedFailures = 300
	failureEvery    = time.Minute
)

// failure reports whether a failure of a user or an address may come into the audit, which must not be flooded.
func (l *limits) failure(who string) bool {
	l.mu.Lock()
	b := l.failed[who]
	if b == nil {
		if len(l.failed) >= maxBuckets {
			l.failed = map[string]*rate.Limiter{}
		}
		b = rate.NewLimiter(rate.Every(failureEvery), auditedFailures/10)
		l.failed[who] = b
	}
	l.mu.Unlock()
	return b.Allow() && l.failing.Allow()
}

// The audit keeps that a user reads the same again after repeatsEvery, and then after twice as long each time, up to longestRepeat. Of all
// it keeps this many readings at once and then one in failureEvery, of one user half as many at once.
const (
	repeatsEvery    = 10 * time.Minute
	longestRepeat   = 24 * time.Hour
	auditedReadings = 1000
)

// repeat is a reading that the audit has.
type repeat struct {
	at    time.Time
	every time.Duration
	told  map[skerry.Code]bool // how it has ended since
}

// reads reports whether a reading of a user may be answered: the audit has it from a while ago, or has room for it. So it is not flooded,
// and lacks nothing.
func (l *limits) reads(who, key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, every := time.Now(), repeatsEvery
	if k := l.repeats[key]; k != nil {
		age := now.Sub(k.at)
		if age < k.every {
			return true
		}
		if age < 2*longestRepeat {
			every = min(longestRepeat, 2*k.every)
		}
	}
	own := l.readers[who]
	if own == nil {
		if len(l.readers) >= maxBuckets {
			l.readers = map[string]*rate.Limiter{}
		}
		own = rate.NewLimiter(rate.Every(failureEvery), auditedReadings/2)
		l.readers[who] = own
	}
	if !own.AllowN(now, 1) || !l.reading.AllowN(now, 1) {
		return false
	}
	if len(l.repeats) >= maxBuckets {
		l.repeats = map[string]*repeat{}
	}
	l.repeats[key] = &repeat{at: now, every: every, told: map[skerry.Code]bool{}}
	return true
}

// read reports whether the end of a reading is news to the audit. One that ends now so and now so is none.
func (l *limits) read(key string, code skerry.Code) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.repeats[key]
	if k == nil {
		return true
	}
	news := !k.told[code]
	k.told[code] = true
	return news
}

func (l *limits) take(m *map[string]*rate.Limiter, key string, r float64) bool {
	if r < 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := (*m)[key]
	if b == nil {
		if len(*m) >= maxBuckets {
			*m = map[string]*rate.Limiter{}
		}
		b = rate.NewLimiter(rate.Limit(r), max(int(4*r), 1))
		(*m)[key] = b
	}
	return b.AllowN(time.Now(), 1)
}

// stream takes one of the user's streams.
func (l *limits) stream(user string) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A user has at most as many as are still free, so that there always are some for others.
	if l.streams[user] >= min(l.Streams, l.AllStreams-l.open) {
		return nil, skerry.Errorf(skerry.CodeRateLimited, "too many logs, terminals and watches are open (%d of user %s)", l.streams[user], user).
			WithHint("close some of them")
	}
	l.streams[user]++
	l.open++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open--
		if l.streams[user]--; l.streams[user] == 0 {
			delete(l.streams, user)
		}
	}, nil
}

// address is where a request comes from, without the port.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
