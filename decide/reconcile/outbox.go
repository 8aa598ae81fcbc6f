package reconcile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry/wire"
)

// OutboxLimits bound an outbox; the oldest events go first and are counted. Zero means the defaults.
type OutboxLimits struct {
	Events int // default 10,000
	Bytes  int // default 8 MiB
}

// Outbox keeps events in order until the peer has acknowledged them. Sequence numbers start at 1 and never repeat
// within one stream.
type Outbox struct {
	stream, prefix string
	limits         OutboxLimits
	opt            Options

	floor  uint64   // the oldest kept; everything below is acknowledged or lost
	events [][]byte // floor, floor+1, ...
	size   int
	lost   uint64

	added   uint64   // first sequence not yet flushed
	removed []uint64 // flushed events to delete from the records
	meta    bool

	connected bool
	sent      uint64 // the last sent on this connection
	acked     uint64 // the last acknowledged on this connection
	lastSend  time.Time
	tries     int
}

// NewOutbox starts an empty outbox. The stream name must be new for each new outbox, for example random.
func NewOutbox(stream, prefix string, limits OutboxLimits, opt Options) *Outbox {
	if limits.Events <= 0 {
		limits.Events = 10_000
	}
	if limits.Bytes <= 0 {
		limits.Bytes = 8 << 20
	}
	return &Outbox{stream: stream, prefix: prefix, limits: limits, opt: opt.withDefaults(), floor: 1, added: 1, meta: true}
}

// Len is the number of events kept, Lost how many were dropped unacknowledged over the outbox's life.
func (o *Outbox) Len() int       { return len(o.events) }
func (o *Outbox) Lost() uint64   { return o.lost }
func (o *Outbox) Stream() string { return o.stream }

func (o *Outbox) last() uint64 { return o.floor + uint64(len(o.events)) - 1 }

// Append adds an event and gives its sequence number. It drops the oldest when the limits are reached. An event larger
// than Options.MaxItem is refused.
func (o *Outbox) Append(event []byte) (uint64, error) {
	if len(event) > o.opt.MaxItem {
		return 0, &TooLargeError{"event", len(event), o.opt.MaxItem}
	}
	o.events = append(o.events, event)
	o.size += len(event)
	o.meta = true
	seq := o.last()
	for len(o.events) > 1 && (len(o.events) > o.limits.Events || o.size > o.limits.Bytes) {
		o.drop(1)
		o.lost++
	}
	return seq, nil
}

func (o *Outbox) drop(n int) {
	for i := range n {
		o.size -= len(o.events[i])
		if seq := o.floor + uint64(i); seq < o.added {
			o.removed = append(o.removed, seq)
		}
		o.events[i] = nil
	}
	o.events = o.events[n:]
	o.floor += uint64(n)
	o.added = max(o.added, o.floor)
	o.meta = true
}

// Connect begins a connection with what the peer has kept; a zero ack if it knows nothing.
func (o *Outbox) Connect(ack wire.EventsAck) {
	o.connected, o.tries = true, 0
	o.sent, o.acked = o.floor-1, o.floor-1
	o.Ack(time.Time{}, &ack)
	o.sent = max(o.acked, o.floor-1)
}

// Disconnect ends the connection.
func (o *Outbox) Disconnect() { o.connected = false }

// Ack forgets what the peer has kept. Answers for other streams and absurd numbers have no effect.
func (o *Outbox) Ack(now time.Time, a *wire.EventsAck) {
	if a.Stream != o.stream || a.Seq > o.last() || a.Seq < o.floor {
		return
	}
	o.drop(int(a.Seq - o.floor + 1))
	o.acked, o.tries, o.lastSend = a.Seq, 0, now
	o.sent = max(o.sent, a.Seq)
}

// Next gives the frames to send now: at most a window of unanswered frames, again from the oldest after Resend.
func (o *Outbox) Next(now time.Time) []wire.Message {
	if !o.connected || len(o.events) == 0 {
		return nil
	}
	o.sent = max(o.sent, o.floor-1)
	if o.sent >= o.floor && now.Sub(o.lastSend) >= backoff(o.opt, o.tries) {
		o.sent = o.floor - 1
		o.tries++
	}
	var out []wire.Message
	budget := o.opt.Chunk * o.opt.Window
	for seq := o.floor; seq <= o.sent; seq++ {
		budget -= len(o.events[seq-o.floor]) + 8
	}
	for o.sent < o.last() && budget > 0 {
		m := &wire.Events{Stream: o.stream, First: o.sent + 1, Floor: o.floor}
		for n := 0; o.sent < o.last(); o.sent++ {
			e := o.events[o.sent+1-o.floor]
			if n > 0 && n+len(e)+8 > o.opt.Chunk {
				break
			}
			m.Items = append(m.Items, e)
			n += len(e) + 8
			budget -= len(e) + 8
		}
		out = append(out, m)
	}
	if len(out) > 0 {
		o.lastSend = now
	}
	return out
}

// Due gives the time of the next resend, zero when nothing waits for an answer.
func (o *Outbox) Due() time.Time {
	if !o.connected || o.sent < o.floor {
		return time.Time{}
	}
	return o.lastSend.Add(backoff(o.opt, o.tries))
}

func (o *Outbox) key(seq uint64) string { return fmt.Sprintf("%se/%016x", o.prefix, seq) }

// Flush gives the records changed since the last Flush.
func (o *Outbox) Flush() []wire.Write {
	if !o.meta {
		return nil
	}
	out := []wire.Write{{Key: o.prefix + "meta", Value: newRecord().str(o.stream).num(o.floor).num(o.lost).b}}
	for _, seq := range o.removed {
		out = append(out, wire.Write{Key: o.key(seq)})
	}
	for seq := max(o.added, o.floor); seq <= o.last(); seq++ {
		out = append(out, wire.Write{Key: o.key(seq), Value: newRecord().bytes(o.events[seq-o.floor]).b})
	}
	o.added, o.removed, o.meta = o.last()+1, nil, false
	return out
}

// LoadOutbox restores an outbox from the records under prefix. Without records it starts a new one named stream.
func LoadOutbox(stream, prefix string, records map[string][]byte, limits OutboxLimits, opt Options) (*Outbox, error) {
	o := NewOutbox(stream, prefix, limits, opt)
	meta, ok := records[prefix+"meta"]
	if !ok {
		return o, nil
	}
	m := readRecord(meta)
	o.stream, o.floor, o.lost = m.str(), m.num(), m.num()
	if m.err != nil || o.floor == 0 {
		return nil, &DamagedError{prefix + "meta", errRecord}
	}
	type event struct {
		seq   uint64
		value []byte
	}
	var all []event
	for full, b := range records {
		hex, ok := strings.CutPrefix(full, prefix+"e/")
		if !ok {
			continue
		}
		seq, err := strconv.ParseUint(hex, 16, 64)
		r := readRecord(b)
		value := slices.Clone(r.bytes())
		if err != nil || r.err != nil {
			return nil, &DamagedError{full, errRecord}
		}
		all = append(all, event{seq, value})
	}
	slices.SortFunc(all, func(a, b event) int { return int(a.seq - b.seq) })
	for i, e := range all {
		if e.seq != o.floor+uint64(i) {
			return nil, &DamagedError{o.key(o.floor + uint64(i)), fmt.Errorf("event is missing")}
		}
		o.events = append(o.events, e.value)
		o.size += len(e.value)
	}
	o.added, o.meta = o.last()+1, false
	return o, nil
}
