package members

import (
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/wire"
)

// Parent is the neighbour above, seen from the child.
type Parent struct {
	Desired   *reconcile.Replica
	Observed  *reconcile.Source
	Events    *reconcile.Outbox
	Connected bool
	Since     time.Time
	Heard     time.Time
	Ignored   Ignored // what the parent sent that had no effect
	records   map[string][]byte
	inc       skerry.Incarnation
	opt       reconcile.Options
}

const prefixParent = "parent/"

// maxDesired bounds what a parent has kept, in bytes: the services of a large site.
const maxDesired = 1 << 30

// DesiredRecords begins the keys of the records that a child keeps of its desired set. They are whole or worth nothing: what is missing
// there would look like what the parent does not want.
const DesiredRecords = prefixParent + Desired + "/"

// NewParent makes the child's side of a link. inc names this life of what the child reports; it must be new at each
// start, because reported state is not kept.
func NewParent(inc skerry.Incarnation, opt reconcile.Options) *Parent {
	if opt.MaxSet == 0 {
		opt.MaxSet = maxDesired
	}
	p := &Parent{records: map[string][]byte{}, inc: inc, opt: opt}
	p.Desired = reconcile.NewReplica(Desired, prefixParent+Desired+"/", opt)
	p.Observed = reconcile.NewSource(Observed, prefixParent+Observed+"/", inc, opt)
	p.Events = reconcile.NewOutbox(string(inc), prefixParent+"events/", reconcile.OutboxLimits{}, opt)
	return p
}

// Load takes a record of the store and reports whether it is one of ours. Finish must follow.
func (p *Parent) Load(key string, value []byte) bool {
	if !strings.HasPrefix(key, prefixParent) {
		return false
	}
	p.records[key] = value
	return true
}

// Finish rebuilds the desired set and the outbox. A damaged desired set is an error that the caller names; the set then
// starts empty and the parent sends it whole.
func (p *Parent) Finish() error {
	const prefix = prefixParent + Desired + "/"
	desired, err := reconcile.LoadReplica(Desired, prefix, p.records, p.opt)
	if err != nil {
		delete(p.records, prefix+"meta") // what is left belongs to nothing, and goes with the first change
		desired, _ = reconcile.LoadReplica(Desired, prefix, p.records, p.opt)
	}
	p.Desired = desired
	if out, oerr := reconcile.LoadOutbox(string(p.inc), prefixParent+"events/", p.records, reconcile.OutboxLimits{}, p.opt); oerr == nil {
		p.Events = out
	} else if err == nil {
		err = oerr
	}
	p.records = nil
	return err
}

// Hello gives what the Hello must say: what is held of the desired set, and how far the reported one has come.
func (p *Parent) Hello() []wire.SetAck {
	return []wire.SetAck{p.Desired.State(), {Set: Observed, Incarnation: p.Observed.Incarnation(), Gen: p.Observed.Gen(),
		Digest: p.Observed.Digest()}}
}

// Up begins a connection.
func (p *Parent) Up(now time.Time, w *wire.Welcome) {
	p.Connected, p.Since, p.Heard = true, now, now
	held := wire.SetAck{Set: Observed}
	for _, s := range w.Sets {
		if s.Set == Observed {
			held = s
		}
	}
	p.Observed.Connect(now, held)
	p.Events.Connect(w.Events)
}

// Down ends a connection.
func (p *Parent) Down(now time.Time) {
	if p.Connected {
		p.Connected, p.Since = false, now
		p.Observed.Disconnect()
		p.Events.Disconnect()
	}
}

// Frame takes a message of the parent and gives what changed in the desired set. Replies that acknowledge must be sent
// after what the changes lead to was reported, so they are returned for the caller to add after Flush.
func (p *Parent) Frame(now time.Time, m wire.Message) (changed, deleted []string, replies []wire.Message) {
	p.Heard = now
	switch m := m.(type) {
	case *wire.SetDelta, *wire.SetChunk, *wire.SetHeldWant:
		out := p.Desired.Apply(m)
		p.Ignored.Count(out.Refused)
		return append(out.Changed, out.Adopted...), out.Deleted, out.Reply
	case *wire.SetAck, *wire.SetWant, *wire.SetHeld:
		p.Ignored.Count(p.Observed.Handle(now, m))
	case *wire.EventsAck:
		p.Events.Ack(now, m)
	default:
		p.Ignored.Count(IgnoredUnexpected)
	}
	return nil, nil, nil
}

// Flush adds what must be persisted and sent. Reported state is sent but not kept.
func (p *Parent) Flush(now time.Time, fx *wire.Effects, replies []wire.Message) {
	fx.Writes = append(fx.Writes, p.Desired.Flush()...)
	fx.Writes = append(fx.Writes, p.Events.Flush()...)
	p.Observed.Flush()
	if p.Connected {
		send(fx, "", p.Observed.Next(now))
		send(fx, "", p.Events.Next(now))
	}
	send(fx, "", replies)
}

// Due gives the time of the next resend, or the zero time.
func (p *Parent) Due() time.Time {
	if !p.Connected {
		return time.Time{}
	}
	a, b := p.Observed.Due(), p.Events.Due()
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
