package sim

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"time"

	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/wire"
)

// trail is a digest of everything that leaves the cores of a world, in order: each record with its key, each frame as it is encoded,
// and after each batch the time at which its core wants to be woken. It contains no name of a Go type, field or function, so that
// moving code around leaves it as it is.
type trail struct {
	codec *frame.Codec
	sum   hash.Hash64
}

func newTrail() *trail { return &trail{frame.NewCodec(), fnv.New64a()} }

func (t *trail) String() string { return fmt.Sprintf("%016x", t.sum.Sum64()) }

// add takes one value. Its length goes first, so that two values never read as one.
func (t *trail) add(data []byte) {
	t.number(int64(len(data)))
	_, _ = t.sum.Write(data)
}

func (t *trail) number(n int64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	_, _ = t.sum.Write(b[:])
}

func (t *trail) frame(m wire.Message) {
	data, err := t.codec.Encode(m)
	if err != nil {
		data = []byte(err.Error())
	}
	t.add(data)
}

// step takes what followed from a batch.
func (t *trail) step(now time.Time, n *Node, fx *wire.Effects) {
	if t == nil {
		return
	}
	t.number(now.UnixNano())
	t.add([]byte(n.Name))
	t.number(int64(len(fx.Writes)))
	for _, w := range fx.Writes {
		t.add([]byte(w.Key))
		t.add(w.Value)
	}
	t.number(int64(len(fx.Sends)))
	for _, s := range fx.Sends {
		t.add([]byte(s.To))
		if m, ok := s.Msg.(wire.Message); ok {
			t.frame(m)
		}
	}
	if at := n.outer.NextWake(); at.IsZero() {
		t.number(0)
	} else {
		t.number(at.UnixNano())
	}
}

// answer takes the result of a message, where that goes over a link: a Welcome.
func (t *trail) answer(n *Node, result any) {
	if m, ok := result.(wire.Message); ok {
		t.add([]byte(n.Name))
		t.frame(m)
	}
}
