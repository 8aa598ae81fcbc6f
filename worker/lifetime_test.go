//go:build linux

package worker

import (
	"context"
	"testing"

	"skerry.dev/skerry/internal/tier"
)

// A request that comes before the first life, or between two, has a context that ends with the one that it came in.
func TestLifetime(t *testing.T) {
	s := &Server{}
	if err := s.lifetime().Err(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.work.Store(tier.NewWork(ctx))
	was := s.lifetime()
	s.work.Load().End()
	s.work.Store(tier.NewWork(ctx))
	if was.Err() == nil || s.lifetime().Err() != nil {
		t.Errorf("%v, %v", was.Err(), s.lifetime().Err())
	}
	cancel()
	if s.lifetime().Err() == nil {
		t.Error("it outlives its server")
	}
}
