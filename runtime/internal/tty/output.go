//go:build linux

package tty

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// silence is how long more output of what a process left behind is waited for, and patience for how long in all: a background process
	// may never be silent.
	silence, patience = time.Second, 3 * time.Second
	// most is what is read after the end of a process: more than a pipe or a terminal holds.
	most = 1 << 20
	// reopened is how often it is looked whether a process has opened a terminal again that it had closed.
	reopened = 20 * time.Millisecond
)

// PassOn copies the output of a process. All that was written before its end is passed on, however slow the reader is. It
// returns when nobody can write any more or, since background processes may hold the output open, after a silence, and when its
// patience is exhausted.
func PassOn(to io.Writer, from *os.File, ended <-chan struct{}) {
	if to == nil {
		to = io.Discard
	}
	done, woken := make(chan struct{}), make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-ended:
			_ = from.SetReadDeadline(time.Unix(1, 0)) // the reader looks whether that is all
			close(woken)
		case <-done:
		}
	}()
	buf := make([]byte, 32<<10)
	rest := patience // only waiting is counted, and not how slow the reader is
	for left := most; left > 0; {
		over, began := closed(woken), time.Now()
		if over {
			_ = from.SetReadDeadline(began.Add(min(silence, rest)))
		}
		got, err := from.Read(buf)
		if over {
			rest -= time.Since(began)
		}
		if got > 0 {
			if _, err := to.Write(buf[:got]); err != nil {
				to = io.Discard // the process need not wait for a reader that is gone
			}
		}
		switch {
		case over && err != nil:
			return
		case over:
			left -= got
		case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
		case errors.Is(err, unix.EIO): // the process has closed its terminal, and may open it again
			select {
			case <-woken:
			case <-time.After(reopened):
			}
		default:
			return
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
