package testenv

import "time"

// Pause waits before a test asks again for what it has awaited since began: the longer it has waited, the longer, so that asking
// does not keep the processors from what is awaited. It is 10 ms at first and 100 ms at most.
func Pause(began time.Time) {
	time.Sleep(min(max(time.Since(began)/20, 10*time.Millisecond), 100*time.Millisecond))
}
