package link

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/wire"
)

// Reason says in a word why a connection ended or was turned away; counters are kept by it.
type Reason string

// Reasons. Those of a refusal are "refused-" and the code.
const (
	ReasonClosed    Reason = "closed"     // in order, by either side
	ReasonReset     Reason = "reset"      // the transport failed
	ReasonSilent    Reason = "silent"     // nothing heard for three keepalive intervals, or a write did not get through
	ReasonMalformed Reason = "malformed"  // a frame did not parse, or made no sense there
	ReasonTooLarge  Reason = "too-large"  // a frame above the limit
	ReasonQueueFull Reason = "queue-full" // the peer does not read
	ReasonReplaced  Reason = "replaced"   // the same agent connected again
	ReasonHandshake Reason = "handshake"  // TLS or Hello did not complete
	ReasonEvicted   Reason = "evicted"    // too many connections were shaking hands
)

// Error is why a connection ended.
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return "link " + string(e.Reason)
	}
	return fmt.Sprintf("link %s: %v", e.Reason, e.Err)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// classify turns what a read or write gave into an Error.
func classify(err error) *Error {
	var le *Error
	var refuse *wire.Refuse
	switch {
	case errors.As(err, &le):
		return le
	case errors.As(err, &refuse):
		return &Error{"refused-" + Reason(refuse.Code), refuse}
	case errors.Is(err, frame.ErrTooLarge):
		return &Error{ReasonTooLarge, err}
	case errors.Is(err, frame.ErrMalformed):
		return &Error{ReasonMalformed, err}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{ReasonSilent, err}
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe):
		return &Error{ReasonClosed, err}
	}
	return &Error{ReasonReset, err}
}

// Stats counts what happened on the links of one Server or Client. It is safe for concurrent use.
type Stats struct {
	Accepted, Live                              atomic.Int64
	FramesIn, FramesOut, BytesIn, BytesOut      atomic.Int64 // of frames, before TLS
	UnknownFrames, StreamsOpened, StreamsServed atomic.Int64

	mu   sync.Mutex
	ends map[Reason]int64
}

func (s *Stats) end(r Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends == nil {
		s.ends = make(map[Reason]int64)
	}
	s.ends[r]++
}

// Ends gives how many connections ended or were turned away, by reason.
func (s *Stats) Ends() map[Reason]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ends)
}
