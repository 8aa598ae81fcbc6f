package reconcile

import "skerry.dev/skerry/wire"

// Inbox is the receiving side of one peer's outbox: each event once, in order.
type Inbox struct {
	prefix string
	stream string
	seq    uint64
	lost   uint64
	meta   bool
}

// NewInbox starts an inbox that knows nothing.
func NewInbox(prefix string) *Inbox { return &Inbox{prefix: prefix} }

// State is what the inbox has kept, for Welcome.
func (i *Inbox) State() wire.EventsAck { return wire.EventsAck{Stream: i.stream, Seq: i.seq} }

// Lost counts the events that the peer dropped before they could be received.
func (i *Inbox) Lost() uint64 { return i.lost }

// Accept gives the events that are new, how many before them were lost, and the answer to send once the events and the
// records that Flush gives are kept.
func (i *Inbox) Accept(m *wire.Events) (events [][]byte, lost uint64, reply wire.Message) {
	if m.Stream == "" || len(m.Stream) > maxLife || m.Floor == 0 || m.First < m.Floor || m.First+uint64(len(m.Items)) < m.First {
		return nil, 0, nil
	}
	if m.Stream != i.stream {
		i.stream, i.seq, i.meta = m.Stream, 0, true
	}
	if m.Floor > i.seq+1 {
		lost = m.Floor - i.seq - 1
		i.lost += lost
		i.seq, i.meta = m.Floor-1, true
	}
	if m.First <= i.seq+1 {
		if skip := i.seq + 1 - m.First; skip < uint64(len(m.Items)) {
			events = m.Items[skip:]
			i.seq += uint64(len(events))
			i.meta = true
		}
	}
	return events, lost, &wire.EventsAck{Stream: i.stream, Seq: i.seq}
}

// Flush gives the record to persist together with the events, if it changed.
func (i *Inbox) Flush() []wire.Write {
	if !i.meta {
		return nil
	}
	i.meta = false
	return []wire.Write{{Key: i.prefix + "meta", Value: newRecord().str(i.stream).num(i.seq).num(i.lost).b}}
}

// LoadInbox restores an inbox from the records under prefix.
func LoadInbox(prefix string, records map[string][]byte) (*Inbox, error) {
	i := NewInbox(prefix)
	meta, ok := records[prefix+"meta"]
	if !ok {
		return i, nil
	}
	m := readRecord(meta)
	i.stream, i.seq, i.lost = m.str(), m.num(), m.num()
	if m.err != nil {
		return nil, &DamagedError{prefix + "meta", m.err}
	}
	return i, nil
}
