package sim

import (
	"maps"
	"slices"

	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/link/frame"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// injections are the kinds of bad messages that reach a node as if its neighbour had sent them.
var injections = []string{
	"replay", // a frame that came over this link before, from any time since the start
	"future", // what a later version might say: unknown sets, reports, kinds of messages, fields
	"half",   // a frame that ends too early: the connection is given up
	// A frame with a value inside changed. Whatever is changed on the line ends the connection (TLS), but not what is changed in the memory of
	// either end, where no hardware corrects it: if it can be read, it counts as said. What is implausible then is held against the sender
	// until an operator has it believed, as a lie would be.
	"garble",
	"stranger", // what is meant for another tier
}

// tape keeps frames of the past, some for each direction of each link.
type tape struct {
	frames map[taped][][]byte
	seen   map[taped]int
}

type taped struct {
	child string
	down  bool
}

// tapeLength is how many frames of a direction are kept; what comes later replaces one of them at random.
const tapeLength = 64

func newTape() *tape { return &tape{frames: map[taped][][]byte{}, seen: map[taped]int{}} }

func (t *tape) record(w *World, child *Node, down bool, data []byte) {
	at := taped{child.Name, down}
	t.seen[at]++
	if list := t.frames[at]; len(list) < tapeLength {
		t.frames[at] = append(list, data)
	} else if k := w.rng.IntN(t.seen[at]); k < tapeLength {
		list[k] = data
	}
}

// inject has a bad message of a kind arrive at one end of a node's link.
func (r *run) inject(n *Node, kind string, down bool) {
	w := r.w
	c := n.line.served
	to := w.parentOf(n)
	if down {
		c, to = n.line.cur, n
	}
	if c == nil || !to.Up || down && !c.up {
		return
	}
	list := w.net.tape.frames[taped{n.Name, down}]
	var old []byte
	if len(list) > 0 {
		old = list[w.rng.IntN(len(list))]
	}
	switch kind {
	case "replay":
		r.arrives(n, down, old)
	case "half":
		if len(old) > frame.HeaderSize+1 {
			r.arrives(n, down, old[:frame.HeaderSize+1+w.rng.IntN(len(old)-frame.HeaderSize-1)])
		}
	case "garble":
		if len(old) > frame.HeaderSize {
			bad := slices.Clone(old)
			for range 1 + w.rng.IntN(3) {
				bad[frame.HeaderSize+w.rng.IntN(len(bad)-frame.HeaderSize)] ^= 1 << w.rng.IntN(8)
			}
			if m, err := w.net.codec.Decode(wire.FrameType(bad[0]), bad[frame.HeaderSize:]); err == nil && !down {
				r.check.garbled[n] = true
				if report, ok := m.(*wire.Report); ok && report.Kind == wire.ReportWorker {
					var told wire.WorkerReport
					if wire.New().Unmarshal(report.Payload, &told) == nil && told.Facts != nil { // it is told once, and believed
						r.check.distrust(n)
					}
				}
			}
			r.arrives(n, down, bad)
		}
	case "future":
		for _, m := range future() {
			if data, err := w.net.codec.Encode(m); err == nil {
				r.arrives(n, down, data)
			}
		}
		r.arrives(n, down, []byte{200, 0, 0, 1, 0xa0}) // a type that nobody knows
	case "stranger":
		for _, m := range []wire.Message{&wire.Hello{Name: "x"}, &wire.Welcome{}, &wire.Joined{}, &wire.EventsAck{Stream: "x", Seq: 1 << 40},
			&wire.SetAck{Set: members.Desired, Incarnation: "x", Gen: 7}, &wire.SetAck{Set: members.Observed, Incarnation: "x", Gen: 7}} {
			if data, err := w.net.codec.Encode(m); err == nil {
				r.arrives(n, down, data)
			}
		}
	}
}

// future is what a later version might send.
func future() []wire.Message {
	return []wire.Message{
		&wire.SetDelta{Set: "dreams", Incarnation: "z", Base: 1, Gen: 2, Items: []wire.SetItem{{Key: "k", Value: []byte("v"), Gen: 2}}},
		&wire.SetChunk{Set: "dreams", Incarnation: "z", Gen: 2, Last: true},
		&wire.SetAck{Set: "dreams", Incarnation: "z", Gen: 2},
		&wire.SetWant{Set: "dreams", Incarnation: "z", Reason: "whim"},
		&wire.SetHeldWant{Set: "dreams"},
		&wire.Report{Kind: "mood", Payload: []byte{0xa1, 1, 2}},
		&wire.Events{Stream: "z"},
	}
}

// arrives hands bytes to the end of a link, as the link would: what does not parse ends the connection.
func (r *run) arrives(n *Node, down bool, data []byte) {
	w := r.w
	if len(data) < frame.HeaderSize {
		return
	}
	length := int(data[1])<<16 | int(data[2])<<8 | int(data[3])
	msg, err := wire.Message(nil), error(frame.ErrMalformed)
	if length == len(data)-frame.HeaderSize {
		msg, err = w.net.codec.Decode(wire.FrameType(data[0]), data[frame.HeaderSize:])
	}
	switch {
	case err != nil:
		w.net.ignored["frame"]++
		w.net.reset(n)
	case msg == nil:
		w.net.ignored["unknown-frame"]++
	case down && n.facts != nil:
		w.tell(n, worker.ParentFrame{Msg: msg})
	case down:
		w.tell(n, cluster.ParentFrame{Msg: msg})
	case n.facts != nil:
		w.tell(w.parentOf(n), cluster.ChildFrame{Name: short(n), Msg: msg})
	default:
		w.tell(w.Root, root.ChildFrame{Name: n.Name, Msg: msg})
	}
}

// ignored sums what the cores of this moment have ignored, by reason, and what links have.
func (w *World) ignored() map[string]int {
	out := maps.Clone(w.net.ignored)
	add := func(m map[string]int) {
		for k, n := range m {
			out[k] += n
		}
	}
	for _, n := range w.nodes() {
		switch c := n.Core.(type) {
		case *root.Core:
			add(c.Children.Ignored.All())
		case *cluster.Core:
			add(c.Children.Ignored.All())
			add(c.Up.Ignored.All())
		case *worker.Core:
			add(c.Up.Ignored.All())
		}
	}
	return out
}
