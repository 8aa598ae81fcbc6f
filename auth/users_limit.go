package auth

import (
	"cmp"
	"sync"
	"time"

	"skerry.dev/skerry"
)

// Failed logins are slowed down by user and address: the first few cost nothing, then the wait doubles. An address that
// fails for many users waits as well. A user cannot be locked out from elsewhere, because the address counts.
const (
	freeFailures    = 5
	freeAddress     = 30
	maxLoginWait    = 5 * time.Minute
	forgetAfter     = 15 * time.Minute
	maxLoginEntries = 4096
)

type loginEntry struct {
	failures int
	last     time.Time
	until    time.Time
}

// loginLimit remembers failed logins. It is safe for concurrent use.
type loginLimit struct {
	mu sync.Mutex
	m  map[string]*loginEntry
	// most is how long a wait gets, and forget how long failures count; 0: maxLoginWait and forgetAfter.
	most, forget time.Duration
}

func loginKeys(user, addr string) [2]string { return [2]string{user + "\x00" + addr, "\x00" + addr} }

// check gives an error while a wait is due.
func (l *loginLimit) check(now time.Time, user, addr string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range loginKeys(user, addr) {
		if e := l.m[k]; e != nil && now.Before(e.until) && !madeAhead(now, e.last) {
			wait := e.until.Sub(now).Round(time.Second) + time.Second
			return skerry.Errorf(skerry.CodeRateLimited, "too many failed logins").WithHint("try again in %s", wait)
		}
	}
	return nil
}

func (l *loginLimit) failed(now time.Time, user, addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[string]*loginEntry{}
	}
	for i, k := range loginKeys(user, addr) {
		e := l.m[k]
		if e == nil || now.Sub(e.last) > cmp.Or(l.forget, forgetAfter) || madeAhead(now, e.last) {
			if len(l.m) >= maxLoginEntries {
				l.forgetLocked(now)
			}
			e = &loginEntry{}
			l.m[k] = e
		}
		e.failures++
		e.last = now
		free := freeFailures
		if i == 1 {
			free = freeAddress
		}
		if n := e.failures - free; n >= 0 {
			e.until = now.Add(min(time.Second<<min(n, 20), cmp.Or(l.most, maxLoginWait)))
		}
	}
}

// forgetLocked drops what is old, or else what is oldest.
func (l *loginLimit) forgetLocked(now time.Time) {
	oldest := ""
	for k, e := range l.m {
		if now.Sub(e.last) > cmp.Or(l.forget, forgetAfter) {
			delete(l.m, k)
		} else if oldest == "" || e.last.Before(l.m[oldest].last) {
			oldest = k
		}
	}
	if len(l.m) >= maxLoginEntries {
		delete(l.m, oldest)
	}
}

func (l *loginLimit) passed(user, addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.m, loginKeys(user, addr)[0])
}

// clear forgets all failures of a user at an address, and those of the address.
func (l *loginLimit) clear(user, addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range loginKeys(user, addr) {
		delete(l.m, k)
	}
}
