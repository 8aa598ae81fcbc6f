//go:build linux

package worker

import (
	"context"
	"sync"
	"testing"
)

// What a loop still wants when a life is over does not run, and what runs has ended then.
func TestLife(t *testing.T) {
	for range 200 {
		l := newLife(t.Context())
		var running sync.WaitGroup
		ended := make(chan struct{})
		running.Go(func() { // the loop
			for range 50 {
				l.Go(func() {
					<-l.ctx.Done()
					select {
					case <-ended:
						t.Error("it acts in the next life")
					default:
					}
				})
			}
		})
		l.end()
		close(ended)
		running.Wait()
	}
	l := newLife(t.Context())
	l.end()
	l.Go(func() { t.Error("a life that is over began something") })
}

// A request that comes before the first life, or between two, has a context that ends with the one that it came in.
func TestLifetime(t *testing.T) {
	s := &Server{}
	if err := s.lifetime().Err(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.life.Store(newLife(ctx))
	was := s.lifetime()
	s.life.Load().end()
	s.life.Store(newLife(ctx))
	if was.Err() == nil || s.lifetime().Err() != nil {
		t.Errorf("%v, %v", was.Err(), s.lifetime().Err())
	}
	cancel()
	if s.lifetime().Err() == nil {
		t.Error("it outlives its server")
	}
}
