// Package journal keeps the newest events of a role and tells subscribers of events and changes as they happen. Role
// servers own one each; it writes nothing itself but says what to write.
package journal

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry/wire"
)

// Limits bound what is kept. Zero means the default.
type Limits struct {
	Events int           // default 2,000
	Age    time.Duration // default 7 days
}

// subscriberBuffer is how many notices wait for a slow subscriber before it is told to look at everything again.
const subscriberBuffer = 256

// maxDrop is how many old events one Record deletes beside as many as it adds, so that its writes fit into a commit; the
// rest goes with the next.
const maxDrop = 256

const prefix = "event/"

// Records are the kind of records of a journal, with a new value of the type that they are read into.
func Records() map[string]func() any {
	return map[string]func() any{prefix: func() any { return new(wire.Event) }}
}

// Journal is safe for concurrent use.
type Journal struct {
	limits Limits

	mu     sync.Mutex
	events []wire.Event // oldest first
	seq    uint64
	steady Steady
	subs   map[*Subscription]bool
}

// New makes an empty journal.
func New(l Limits) *Journal {
	if l.Events <= 0 {
		l.Events = 2000
	}
	if l.Age <= 0 {
		l.Age = 7 * 24 * time.Hour
	}
	return &Journal{limits: l, subs: map[*Subscription]bool{}}
}

// Fresh makes an empty journal with the same limits, to be filled by Load and taken over by Replace.
func (j *Journal) Fresh() *Journal { return New(j.limits) }

// Load takes a record of the store and reports whether it is one of ours. Records come in key order, oldest first.
func (j *Journal) Load(key string, value []byte) (bool, error) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return false, nil
	}
	var e wire.Event
	seq, err := strconv.ParseUint(rest, 10, 64)
	if err == nil {
		err = json.Unmarshal(value, &e)
	}
	if err != nil {
		return true, fmt.Errorf("record %s: %w", key, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Seq = seq
	j.events = append(j.events, e)
	j.seq = max(j.seq, seq)
	return true, nil
}

func key(seq uint64) string { return fmt.Sprintf("%s%020d", prefix, seq) }

// Record numbers events, keeps them, and gives the writes that make that durable, those that delete old ones included.
func (j *Journal) Record(now time.Time, events []wire.Event) []wire.Write {
	if len(events) == 0 {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	var writes []wire.Write
	for i := range events {
		j.seq++
		events[i].Seq = j.seq
		events[i].Bound() // here they count by their number alone
		data, err := json.Marshal(events[i])
		if err != nil {
			panic("events always marshal: " + err.Error())
		}
		writes = append(writes, wire.Write{Key: key(j.seq), Value: data})
		j.events = append(j.events, events[i])
	}
	most := min(maxDrop+len(events), len(j.events))
	gone := j.crowdOut(min(max(len(j.events)-j.limits.Events, 0), most))
	drop, steady := 0, j.steady.Enough(now)
	for steady && len(gone)+drop < most && drop < len(j.events) && now.Sub(j.events[drop].At) > j.limits.Age {
		drop++
	}
	for _, e := range append(gone, j.events[:drop]...) {
		writes = append(writes, wire.Write{Key: key(e.Seq)})
	}
	j.events = append(j.events[:0], j.events[drop:]...)
	return writes
}

// crowdOut takes out so many events: of whoever has more than half of all that are kept, its own oldest, and else the oldest. So nobody who
// has much to tell pushes out what others told.
func (j *Journal) crowdOut(n int) (gone []wire.Event) {
	if n == 0 {
		return nil
	}
	count := map[source]int{}
	var nobody, hog source
	for i := range j.events {
		from := teller(&j.events[i])
		if count[from]++; count[from] > j.limits.Events/2 && from != nobody && (hog == nobody || count[from] > count[hog]) {
			hog = from
		}
	}
	over := 0
	if hog != nobody {
		over = min(n, count[hog]-j.limits.Events/2)
	}
	rest := n - over
	kept := j.events[:0]
	for _, e := range j.events {
		switch {
		case over > 0 && teller(&e) == hog:
			over--
			gone = append(gone, e)
		case rest > 0:
			rest--
			gone = append(gone, e)
		default:
			kept = append(kept, e)
		}
	}
	clear(j.events[len(kept):])
	j.events = kept
	return gone
}

// source is whose an event is, by cluster and worker: a worker's, at the root a site's, or nobody's. Each batch with events counts those of
// all.
type source [2]string

func teller(e *wire.Event) source { return source{string(e.Cluster), string(e.Worker)} }

// List gives the kept events for which keep is true, oldest first; at most limit of the newest if limit > 0.
func (j *Journal) List(limit int, keep func(*wire.Event) bool) []wire.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := []wire.Event{}
	for i := range j.events {
		if keep == nil || keep(&j.events[i]) {
			out = append(out, j.events[i])
		}
	}
	if limit > 0 && len(out) > limit {
		out = out[len(out)-limit:]
	}
	return out
}

// Notice is what a subscriber receives: an event or a change, or that it missed some and must look at everything again.
type Notice struct {
	Event  *wire.Event
	Change *wire.Change
	Missed bool
}

// Subscription receives notices on C until Close.
type Subscription struct {
	C      chan Notice
	j      *Journal
	missed bool // the last notice in line, or the last one read, says so
}

// Subscribe begins to receive notices.
func (j *Journal) Subscribe() *Subscription {
	s := &Subscription{C: make(chan Notice, subscriberBuffer), j: j}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.subs[s] = true
	return s
}

// Close ends a subscription. It is idempotent; C is not closed.
func (s *Subscription) Close() {
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	delete(s.j.subs, s)
}

// Announce tells the subscribers. It never waits: one that is too slow misses notices and is told so.
func (j *Journal) Announce(events []wire.Event, changed []wire.Change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.subs) == 0 {
		return
	}
	for s := range j.subs {
		for i := range events {
			e := events[i]
			s.offer(Notice{Event: &e})
		}
		for i := range changed {
			c := changed[i]
			s.offer(Notice{Change: &c})
		}
	}
}

// offer is called with the journal's lock held, so nobody else sends.
func (s *Subscription) offer(n Notice) {
	if s.missed {
		if len(s.C) > 0 {
			return // that something was missed is still the last word in line; who reads it looks at everything
		}
		s.missed = false
	}
	if len(s.C) == cap(s.C)-1 {
		n = Notice{Missed: true}
	}
	s.missed = n.Missed
	s.C <- n
}

// Replace takes over what another journal holds, as after reading the store again. Subscribers stay, and are told to look
// at everything again.
func (j *Journal) Replace(from *Journal) {
	from.mu.Lock()
	events, seq := from.events, from.seq
	from.mu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events, j.seq = events, seq
	for s := range j.subs {
		s.offer(Notice{Missed: true})
	}
}
