package reconcile

import (
	"fmt"
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

// TestOutboxKeepsWhatIsNotAcknowledged: of events within the limits none is lost: whatever was acknowledged, on this connection or the
// one before, the next is sent again, also by another life of the process.
func TestOutboxKeepsWhatIsNotAcknowledged(t *testing.T) {
	const all = 5
	now := time.Unix(1000, 0)
	for acked := range uint64(all + 1) {
		o := NewOutbox("x", "p/", OutboxLimits{}, Options{})
		disk := map[string][]byte{}
		for i := range all {
			if _, err := o.Append(fmt.Append(nil, i+1)); err != nil {
				t.Fatal(err)
			}
		}
		persist(disk, o.Flush())
		o.Connect(wire.EventsAck{})
		o.Next(now)
		o.Ack(now, &wire.EventsAck{Stream: "x", Seq: acked})
		persist(disk, o.Flush())
		again, err := LoadOutbox("y", "p/", disk, OutboxLimits{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for life, o := range map[string]*Outbox{"this": o, "the next": again} {
			if o.Len() != all-int(acked) || o.Lost() != 0 {
				t.Errorf("%d acknowledged, %s life: %d are kept, %d lost", acked, life, o.Len(), o.Lost())
			}
			in := NewInbox("q/")
			in.Accept(&wire.Events{Stream: "x", First: 1, Floor: 1, Items: make([][]byte, acked)})
			o.Connect(in.State())
			var got []string
			for _, m := range o.Next(now) {
				events, lost, _ := in.Accept(m.(*wire.Events))
				if lost > 0 {
					t.Errorf("%d acknowledged, %s life: %d were lost", acked, life, lost)
				}
				for _, e := range events {
					got = append(got, string(e))
				}
			}
			if want := all - int(acked); len(got) != want || want > 0 && got[0] != fmt.Sprint(acked+1) {
				t.Errorf("%d acknowledged, %s life: %v comes", acked, life, got)
			}
		}
	}
}
