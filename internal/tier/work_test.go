package tier

import (
	"sync"
	"testing"
)

// What a loop still wants when work is over does not run, and what runs has ended then.
func TestWork(t *testing.T) {
	for range 200 {
		l := NewWork(t.Context())
		var running sync.WaitGroup
		ended := make(chan struct{})
		running.Go(func() { // the loop
			for range 50 {
				l.Go(func() {
					<-l.Ctx.Done()
					select {
					case <-ended:
						t.Error("it goes on when all has ended")
					default:
					}
				})
			}
		})
		l.End()
		close(ended)
		running.Wait()
	}
	l := NewWork(t.Context())
	l.End()
	l.Go(func() { t.Error("work that is over began something") })
}
