package loop

import (
	"cmp"
	"fmt"
	"reflect"
	"sync"
	"time"

	"skerry.dev/skerry"
)

// PanicError says that the core panicked while it took a message. Its memory may be half changed: it must be built anew from the store.
type PanicError struct {
	Value   any
	Message string // its type
	Sender  string // how the log and the event call who sent it
	Stack   []byte
	Held    time.Duration // how long no message of the sender is taken; 0: all but this one are
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("the core panicked on %s from %s: %v", e.Message, e.Sender, e.Value)
}

// Unwrap gives the error that it panicked with, or nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Sent is a message that came over a link.
type Sent interface {
	// Sender is the name of a child, or "" for the parent.
	Sender() string
}

// Limits of what is remembered of panics.
const (
	maxRefused  = 1024      // messages, then the oldest is forgotten
	maxSenders  = 256       // senders, then the one that was quiet for longest is forgotten
	forgetAfter = time.Hour // a panic may have come of a state that the core is not in any more
	firstHold   = time.Minute
	maxHold     = time.Hour
)

// Refusals remembers the messages on which a core panicked, by digests of what they hold, so that none of them is tried twice. It
// outlives the core and its loop, and not the process. A sender whose messages go on to cause panics is not listened to for a while,
// longer each time: it would send the same in other frames. It may be used by several goroutines.
type Refusals struct {
	mu      sync.Mutex
	digests map[digest]time.Time // when it caused a panic
	order   []digest             // oldest first
	types   map[reflect.Type]bool
	senders map[string]*sender
}

type sender struct {
	panics int
	last   time.Time
	until  time.Time // held
}

// NewRefusals makes an empty memory.
func NewRefusals() *Refusals {
	return &Refusals{digests: map[digest]time.Time{}, types: map[reflect.Type]bool{}, senders: map[string]*sender{}}
}

// add remembers a message with its digest, and gives how long its sender is held.
func (r *Refusals) add(now time.Time, msg any, d digest) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.types[reflect.TypeOf(msg)] = true
	if _, ok := r.digests[d]; !ok {
		if r.order = append(r.order, d); len(r.order) > maxRefused {
			delete(r.digests, r.order[0])
			r.order = r.order[1:]
		}
	}
	r.digests[d] = now
	m, ok := msg.(Sent)
	if !ok {
		return 0
	}
	s := r.senders[m.Sender()]
	if s == nil || now.Sub(s.last) > forgetAfter+maxHold {
		s = &sender{}
		r.senders[m.Sender()] = s
		r.forgetSender()
	}
	s.panics++
	s.last = now
	if s.panics < 2 {
		return 0
	}
	hold := min(firstHold<<min(s.panics-2, 10), maxHold)
	s.until = now.Add(hold)
	return hold
}

func (r *Refusals) forgetSender() {
	if len(r.senders) <= maxSenders {
		return
	}
	oldest, at := "", time.Time{}
	for name, s := range r.senders {
		if !s.last.IsZero() && (at.IsZero() || s.last.Before(at)) {
			oldest, at = name, s.last
		}
	}
	delete(r.senders, oldest)
}

// Held is for how long from now on a sender is not listened to.
func (r *Refusals) Held(now time.Time, name string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.senders[name]
	if s == nil || now.Add(maxHold).Before(s.until) { // the clock was set back
		return 0
	}
	return max(s.until.Sub(now), 0)
}

// check gives the error for a message that is not to be tried.
func (r *Refusals) check(now time.Time, msg any) error {
	if m, ok := msg.(Sent); ok {
		if d := r.Held(now, m.Sender()); d > 0 {
			return skerry.Errorf(skerry.CodeInternal, "messages of %s caused panics here again and again; none is taken for %s", called(msg),
				d.Round(time.Second))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.digests) == 0 || !r.types[reflect.TypeOf(msg)] {
		return nil
	}
	if at, ok := r.digests[digestOf(msg)]; !ok || now.Sub(at).Abs() > forgetAfter {
		return nil
	}
	return refusal()
}

// refusal is what a sender is told, at the first time and later ones.
func refusal() error {
	return skerry.Errorf(skerry.CodeInternal, "this request makes the role panic, which is a bug; it was refused, and is not tried again").
		WithHint("the role's log has the stack; please report it")
}

// called names who sent a message.
func called(msg any) string {
	m, ok := msg.(Sent)
	if !ok {
		return "the API or this machine"
	}
	return cmp.Or(m.Sender(), "the parent")
}
