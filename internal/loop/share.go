package loop

import (
	"sync/atomic"
	"time"
)

// What one sender may have of a loop.
const (
	// lineLength is how many messages of one sender wait at a time.
	lineLength = 16
	// cheap is what a message may take without a pause after it; after one that took longer its sender rests for restFor times as long,
	// but no longer than longestRest: it is to answer signs of life.
	cheap       = 5 * time.Millisecond
	restFor     = 3
	longestRest = 5 * time.Second
)

// Share is what one of many senders has of a loop, so that whoever sends much, or what takes long to read, holds up itself: messages of
// others wait behind few of its own, and it has a quarter of the time.
type Share struct {
	line chan struct{}
	owed atomic.Int64 // nanoseconds of rest
}

// NewShare makes a share for one sender.
func NewShare() *Share { return &Share{line: make(chan struct{}, lineLength)} }

// PostShare is Post for a sender with a share, which it waits for. It is for one goroutine.
func (l *Loop) PostShare(share *Share, msg any) bool {
	if rest := time.Duration(share.owed.Swap(0)); rest > 0 {
		t := time.NewTimer(rest)
		defer t.Stop()
		select {
		case <-t.C:
		case <-l.done:
			return false
		}
	}
	select {
	case share.line <- struct{}{}:
	case <-l.done:
		return false
	}
	select {
	case l.in <- input{msg: msg, share: share}:
		return true
	case <-l.done:
		return false
	}
}

// took ends the wait of a message that was taken, which took so long. nil: its sender has no share.
func (s *Share) took(d time.Duration) {
	if s == nil {
		return
	}
	if d > cheap {
		s.owed.Store(min(s.owed.Load()+int64(restFor*d), int64(longestRest)))
	}
	<-s.line
}
