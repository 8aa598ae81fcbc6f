package plugin

import (
	"fmt"
	"time"
)

// A plugin that fails again and again rests, so that it does not take the time of placements that go on without it:
//
//	works --failure--> works (1, 2) --3rd in a row--> rests 1 s --trial fails--> rests 2 s ... 5 min
//	  ^--------------------- any good answer --------------------'
const (
	restAfter = 3
	restFirst = time.Second
	restMost  = 5 * time.Minute
)

// breaker counts failures in a row. The zero value works.
type breaker struct {
	failures int
	last     string
	until    time.Time
}

// resting tells why the plugin is not asked now; empty when it is.
func (b *breaker) resting(now time.Time) string {
	if !now.Before(b.until) {
		return ""
	}
	return fmt.Sprintf("it rests for %s after %d failures in a row, the last: %s", b.until.Sub(now).Round(100*time.Millisecond), b.failures,
		b.last)
}

func (b *breaker) ok() { *b = breaker{} }

// fail counts a failure. It reports whether the plugin rests from now on. Calls that were under way when the rest began do
// not prolong it.
func (b *breaker) fail(now time.Time, why string) bool {
	if now.Before(b.until) {
		return false
	}
	b.failures++
	b.last = why
	if b.failures < restAfter {
		return false
	}
	rest := restMost
	if n := b.failures - restAfter; n < 16 {
		rest = min(restMost, restFirst<<n)
	}
	b.until = now.Add(rest)
	return true
}
