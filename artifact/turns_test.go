package artifact

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTurns: one at a time has a key, others are not held up by it, and nothing is kept of what has ended.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts turns
		first := ts.take("a")
		ts.take("b")()
		second := false
		go func() {
			end := ts.take("a")
			second = true
			time.Sleep(time.Second)
			end()
		}()
		synctest.Wait()
		if second {
			t.Error("two have the same key")
		}
		began, awaited := time.Now(), make(chan time.Duration, 1)
		go func() {
			ts.await()
			awaited <- time.Since(began)
		}()
		synctest.Wait()
		select {
		case <-awaited:
			t.Error("it did not wait for those that have a turn")
		default:
		}
		time.Sleep(time.Second)
		first()
		if took := <-awaited; took != 2*time.Second {
			t.Errorf("it waited for %s, want 2s: one had its turn for a second more, and the next for one", took)
		}
		synctest.Wait()
		if len(ts.taken) > 0 {
			t.Errorf("%d keys are kept, want none", len(ts.taken))
		}
	})
}
