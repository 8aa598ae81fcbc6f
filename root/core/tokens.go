package core

import (
	"encoding/json"
	"fmt"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

const keySeq = "root/seq"

// tokens owns the counter of fencing tokens: each is higher than all before it, those of earlier lives included.
type tokens struct{ epoch, seq uint64 }

func (t *tokens) load(value []byte) error { return json.Unmarshal(value, &t.seq) }

// last is the last token that was made.
func (t *tokens) last() uint64 { return t.epoch<<40 | t.seq }

// above has the next token be higher than one that an instance has: a crash may have left half of the commit that gave it.
func (t *tokens) above(f skerry.Fence) {
	if f.RootEpoch>>40 == t.epoch {
		t.seq = max(t.seq, f.RootEpoch&(1<<40-1))
	}
}

// mint makes a fencing token, which is higher than all before it.
func (t *tokens) mint(fx *wire.Effects) skerry.Fence {
	t.seq++
	fx.Put(keySeq, []byte(fmt.Sprint(t.seq)))
	return skerry.Fence{RootEpoch: t.last()}
}
