package node

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/runtime"
)

// meeting is a driver that has cleaned up once all others have begun to: as one that removes a group which others have tasks in.
type meeting struct {
	runtime.Driver
	all *sync.WaitGroup
}

func (m meeting) CleanUp(ctx context.Context) error {
	m.all.Done()
	met := make(chan struct{})
	go func() { m.all.Wait(); close(met) }()
	select {
	case <-met:
		return errors.New("met")
	case <-ctx.Done():
		return errors.New("the others have not begun")
	}
}

func (meeting) Close() error { return nil }

// With one driver after the other, each waited in vain for the tasks of those after it to leave the group that all share:
// "skerry worker cleanup" took half a minute.
func TestDriversCleanUpTogether(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var all sync.WaitGroup
	w := &Worker{}
	for range 4 {
		all.Add(1)
		w.Drivers = append(w.Drivers, meeting{all: &all})
	}
	if err := w.CleanUp(ctx); err == nil || err.Error() != "met\nmet\nmet\nmet" {
		t.Errorf("got %v, want that all four met", err)
	}
}
