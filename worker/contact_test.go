//go:build linux

package worker

import (
	"testing"
	"time"
)

// The clock of what was heard stands still while the machine sleeps; a lease does not.
func TestSlept(t *testing.T) {
	var s slept
	now, boot := time.Unix(1_700_000_000, 0), time.Hour
	pass := func(awake, asleep time.Duration) { now, boot = now.Add(awake), boot+awake+asleep }
	expect := func(ago, want time.Duration) {
		t.Helper()
		if got := s.real(now, boot, ago); got != want {
			t.Errorf("%v ago is %v, want %v", ago, got, want)
		}
	}
	expect(time.Second, time.Second)
	pass(time.Second, 0)
	expect(2*time.Second, 2*time.Second)
	pass(time.Second, time.Hour)
	expect(3*time.Second, time.Hour+3*time.Second) // heard before it slept
	pass(time.Second, 0)
	expect(4*time.Second, time.Hour+4*time.Second)
	expect(time.Second/2, time.Second/2) // heard since
}
