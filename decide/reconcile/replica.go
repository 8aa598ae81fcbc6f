package reconcile

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// maxRetired bounds the incarnations that a replica remembers having left.
const maxRetired = 16

// Replica is a peer's copy of a set. An item is live (the present incarnation named it) or an orphan (an earlier one
// did, and the present one has neither named nor deleted it). Orphans count as desired until they are deleted.
type Replica struct {
	set, prefix string
	opt         Options

	// Persisted.
	inc     skerry.Incarnation
	gen     skerry.Generation
	items   map[string]replicaItem
	orphans map[string]orphan
	retired []skerry.Incarnation

	sum, orphanSum sum
	size           int // of items and orphans, as kept counts
	part           *partial
	dirty          dirty
}

// keptBeside is what an item takes in memory beside its key and its value, about, in bytes.
const keptBeside = 128

// maxLife is the longest name of an incarnation or a stream, in bytes.
const maxLife = 256

// kept is what an item takes of Options.MaxSet.
func kept(key string, value []byte) int { return len(key) + len(value) + keptBeside }

type replicaItem struct {
	value []byte
	gen   skerry.Generation
	sum   sum
}

type orphan struct {
	replicaItem
	inc skerry.Incarnation
}

// partial is a transfer that has not arrived completely.
type partial struct {
	head  wire.SetChunk // of the first part, without items
	items []wire.SetItem
	next  uint32
	size  int
}

// Outcome is what a message changed and what to answer. Keys are in order. Reply must not be sent before the records
// that Flush gives are kept.
type Outcome struct {
	Changed  []string // new, or with another value
	Deleted  []string
	Orphaned []string // still there, but unknown to the present incarnation
	Adopted  []string // were orphans, are named again with the same value
	Reply    []wire.Message
	// Refused says in a word why a frame had no effect, for counters: "stale", "gap", "digest", "retired",
	// "incarnation", "too-large", "malformed". Empty when it was used.
	Refused string
	// Complete: the copy is now what the source had when it sent the frame, as far as a frame can tell.
	Complete bool
}

// NewReplica starts an empty copy. Records are kept under prefix, which ends in a slash.
func NewReplica(set, prefix string, opt Options) *Replica {
	return &Replica{
		set: set, prefix: prefix, opt: opt.withDefaults(),
		items: make(map[string]replicaItem), orphans: make(map[string]orphan),
	}
}

// Set, Incarnation, Gen and Digest describe what is held; orphans are not part of the digest.
func (r *Replica) Set() string                     { return r.set }
func (r *Replica) Incarnation() skerry.Incarnation { return r.inc }
func (r *Replica) Gen() skerry.Generation          { return r.gen }
func (r *Replica) Digest() wire.Digest             { return r.sum.digest() }

// Len and Orphans count items.
func (r *Replica) Len() int     { return len(r.items) }
func (r *Replica) Orphans() int { return len(r.orphans) }

// Get gives the value of a live item or an orphan. It must not be changed.
func (r *Replica) Get(key string) (value []byte, orphaned, ok bool) {
	if it, ok := r.items[key]; ok {
		return it.value, false, true
	}
	if o, ok := r.orphans[key]; ok {
		return o.value, true, true
	}
	return nil, false, false
}

// All gives every live item and orphan in key order.
func (r *Replica) All() iter.Seq2[string, []byte] {
	keys := slices.Collect(maps.Keys(r.items))
	keys = slices.AppendSeq(keys, maps.Keys(r.orphans))
	slices.Sort(keys)
	return func(yield func(string, []byte) bool) {
		for _, key := range keys {
			if v, _, ok := r.Get(key); ok && !yield(key, v) {
				return
			}
		}
	}
}

// State is what stands in Hello or Welcome, and in every answer.
func (r *Replica) State() wire.SetAck {
	a := wire.SetAck{
		Set: r.set, Incarnation: r.inc, Gen: r.gen, Digest: r.sum.digest(),
		Orphans: uint32(len(r.orphans)), OrphanDigest: r.orphanSum.digest(),
	}
	if p := r.part; p != nil {
		a.PartIncarnation, a.PartGen, a.PartDigest, a.PartNext = p.head.Incarnation, p.head.Gen, p.head.Digest, p.next
	}
	return a
}

// Apply takes SetDelta, SetChunk and SetHeldWant of this set; anything else has no effect.
func (r *Replica) Apply(m wire.Message) Outcome {
	switch m := m.(type) {
	case *wire.SetDelta:
		if m.Set == r.set {
			return r.applyDelta(m)
		}
	case *wire.SetChunk:
		if m.Set == r.set {
			return r.applyChunk(m)
		}
	case *wire.SetHeldWant:
		if m.Set == r.set {
			return Outcome{Reply: r.held(m)}
		}
	}
	return Outcome{Refused: "unknown-set"}
}

func (r *Replica) ack(refused string) Outcome {
	a := r.State()
	return Outcome{Reply: []wire.Message{&a}, Refused: refused}
}

func (r *Replica) want(why wire.SetWantReason, of skerry.Incarnation, refused string) Outcome {
	return Outcome{Refused: refused, Reply: []wire.Message{
		&wire.SetWant{Set: r.set, Incarnation: r.inc, Gen: r.gen, Reason: why, Of: of}}}
}

// basis checks whether a change from base to gen of incarnation inc can be applied to what is held.
func (r *Replica) basis(inc skerry.Incarnation, base, gen skerry.Generation) (Outcome, bool) {
	switch {
	case inc == "" || len(inc) > maxLife || base >= gen:
		return Outcome{Refused: "malformed"}, false
	case slices.Contains(r.retired, inc):
		return r.want(wire.WantRetired, inc, "retired"), false
	case inc != r.inc:
		return r.want(wire.WantSnapshot, inc, "incarnation"), false
	case gen <= r.gen:
		return r.ack("stale"), false
	case base > r.gen:
		return r.want(wire.WantGap, inc, "gap"), false
	}
	return Outcome{}, true
}

func (r *Replica) applyDelta(d *wire.SetDelta) Outcome {
	if out, ok := r.basis(d.Incarnation, d.Base, d.Gen); !ok {
		return out
	}
	return r.change(d.Incarnation, d.Gen, d.Digest, d.Items)
}

func (r *Replica) applyChunk(c *wire.SetChunk) Outcome {
	switch {
	case c.Incarnation == "" || len(c.Incarnation) > maxLife:
		return Outcome{Refused: "malformed"}
	case slices.Contains(r.retired, c.Incarnation):
		return r.want(wire.WantRetired, c.Incarnation, "retired")
	case c.Delta:
		if out, ok := r.basis(c.Incarnation, c.Base, c.Gen); !ok {
			return out
		}
	case c.Incarnation == r.inc && c.Gen <= r.gen:
		return r.ack("stale")
	}
	head := wire.SetChunk{Incarnation: c.Incarnation, Base: c.Base, Gen: c.Gen, Digest: c.Digest, Delta: c.Delta}
	p := r.part
	if p == nil || !sameTransfer(&p.head, &head) {
		// A late first part of an older transfer may throw away a newer one, which then begins again; refusing it could
		// wait for ever for the rest of a transfer whose source was rolled back.
		if c.Index != 0 && p != nil && p.head.Incarnation == head.Incarnation && p.head.Gen > head.Gen {
			return r.ack("stale")
		}
		if c.Index != 0 {
			return r.want(wire.WantGap, c.Incarnation, "gap")
		}
		p = &partial{head: head}
		r.part = p
	}
	if c.Index != p.next {
		return r.ack("stale")
	}
	for _, it := range c.Items {
		p.size += kept(it.Key, it.Value)
	}
	if p.size > r.opt.MaxSet {
		r.part = nil
		return Outcome{Refused: "too-large"}
	}
	p.items = append(p.items, c.Items...)
	p.next++
	if !c.Last {
		return r.ack("")
	}
	r.part = nil
	if c.Delta {
		return r.change(c.Incarnation, c.Gen, c.Digest, p.items)
	}
	return r.install(c.Incarnation, c.Gen, c.Digest, p.items)
}

func sameTransfer(a, b *wire.SetChunk) bool {
	return a.Incarnation == b.Incarnation && a.Base == b.Base && a.Gen == b.Gen && a.Digest == b.Digest && a.Delta == b.Delta
}

// change applies a verified basis' changes, all or none.
func (r *Replica) change(inc skerry.Incarnation, gen skerry.Generation, digest wire.Digest, items []wire.SetItem) Outcome {
	total := r.sum
	staged := make(map[string]*replicaItem, len(items)) // nil: deleted
	for _, it := range items {
		if old, ok := staged[it.Key]; ok {
			if old != nil {
				total = total.sub(old.sum)
			}
		} else if old, ok := r.items[it.Key]; ok {
			total = total.sub(old.sum)
		}
		staged[it.Key] = nil
		if !it.Deleted {
			n := &replicaItem{it.Value, it.Gen, sumOf(it.Key, it.Value)}
			staged[it.Key] = n
			total = total.add(n.sum)
		}
	}
	if total.digest() != digest {
		return r.want(wire.WantSnapshot, inc, "digest")
	}
	grows := 0
	for key, it := range staged {
		if grows -= r.keeps(key); it != nil {
			grows += kept(key, it.value)
		}
	}
	if grows > 0 && r.size+grows > r.opt.MaxSet {
		return Outcome{Refused: "too-large"}
	}
	var out Outcome
	for _, key := range slices.Sorted(maps.Keys(staged)) {
		if it := staged[key]; it != nil {
			r.name(&out, key, *it)
		} else {
			r.remove(&out, key)
		}
	}
	r.gen, r.sum = gen, total
	r.dirty.meta = true
	if r.part != nil && r.part.head.Incarnation == inc && r.part.head.Gen <= gen {
		r.part = nil
	}
	out.Reply, out.Complete = r.ack("").Reply, true
	return out
}

// install replaces the set by a complete snapshot. Within one incarnation, absence deletes; a new incarnation orphans
// what it does not know.
func (r *Replica) install(inc skerry.Incarnation, gen skerry.Generation, digest wire.Digest, items []wire.SetItem) Outcome {
	fresh := make(map[string]replicaItem, len(items))
	dead := make(map[string]bool)
	var total sum
	for _, it := range items {
		if _, twice := fresh[it.Key]; twice || dead[it.Key] {
			return r.want(wire.WantSnapshot, inc, "malformed")
		}
		if it.Deleted {
			dead[it.Key] = true
			continue
		}
		n := replicaItem{it.Value, it.Gen, sumOf(it.Key, it.Value)}
		fresh[it.Key] = n
		total = total.add(n.sum)
	}
	if total.digest() != digest {
		return r.want(wire.WantSnapshot, inc, "digest")
	}
	if size := r.sizeWith(inc, fresh, dead); size > r.size && size > r.opt.MaxSet {
		return Outcome{Refused: "too-large"}
	}
	var out Outcome
	for _, key := range slices.Sorted(maps.Keys(r.items)) {
		if _, ok := fresh[key]; ok || dead[key] {
			continue
		}
		if inc == r.inc {
			r.remove(&out, key)
			continue
		}
		o := orphan{r.items[key], r.inc}
		delete(r.items, key)
		r.orphans[key] = o
		r.orphanSum = r.orphanSum.add(o.sum)
		r.dirty.mark(key)
		out.Orphaned = append(out.Orphaned, key)
	}
	for _, key := range slices.Sorted(maps.Keys(dead)) {
		r.remove(&out, key)
	}
	for _, key := range slices.Sorted(maps.Keys(fresh)) {
		r.name(&out, key, fresh[key])
	}
	if inc != r.inc && r.inc != "" {
		r.retired = append(r.retired, r.inc)
		r.retired = r.retired[max(0, len(r.retired)-maxRetired):]
	}
	r.inc, r.gen, r.sum = inc, gen, total
	r.dirty.meta = true
	slices.Sort(out.Deleted)
	out.Reply, out.Complete = r.ack("").Reply, true
	return out
}

// keeps is what an item takes that is held under a key, live or not.
func (r *Replica) keeps(key string) int {
	value, _, ok := r.Get(key)
	if !ok {
		return 0
	}
	return kept(key, value)
}

// sizeWith is what is held once a snapshot is installed.
func (r *Replica) sizeWith(inc skerry.Incarnation, fresh map[string]replicaItem, dead map[string]bool) (size int) {
	for key, it := range fresh {
		size += kept(key, it.value)
	}
	stays := func(key string, value []byte) {
		if _, named := fresh[key]; !named && !dead[key] {
			size += kept(key, value)
		}
	}
	for key, o := range r.orphans {
		stays(key, o.value)
	}
	if inc != r.inc {
		for key, it := range r.items {
			stays(key, it.value)
		}
	}
	return size
}

// DropOrphans forgets all orphans where these take more than half of the room, for a set of which what the present incarnation does not
// name is no longer so.
func (r *Replica) DropOrphans() {
	if r.size <= r.opt.MaxSet/2 || len(r.orphans) == 0 {
		return
	}
	for key := range r.orphans {
		r.remove(&Outcome{}, key)
	}
}

// name makes an item live. The digest is the caller's business.
func (r *Replica) name(out *Outcome, key string, it replicaItem) {
	r.size += kept(key, it.value) - r.keeps(key)
	old, live := r.items[key]
	o, orphaned := r.orphans[key]
	if orphaned {
		old = o.replicaItem
		r.orphanSum = r.orphanSum.sub(o.sum)
		delete(r.orphans, key)
	}
	r.items[key] = it
	same := (live || orphaned) && string(old.value) == string(it.value)
	switch {
	case !same:
		out.Changed = append(out.Changed, key)
	case orphaned:
		out.Adopted = append(out.Adopted, key)
	case old.gen == it.gen:
		return // nothing to persist
	}
	r.dirty.mark(key)
}

func (r *Replica) remove(out *Outcome, key string) {
	r.size -= r.keeps(key)
	_, live := r.items[key]
	o, orphaned := r.orphans[key]
	if orphaned {
		r.orphanSum = r.orphanSum.sub(o.sum)
		delete(r.orphans, key)
	}
	if live || orphaned {
		delete(r.items, key)
		out.Deleted = append(out.Deleted, key)
		r.dirty.mark(key)
	}
}

// held lists orphans from the part asked for, at most a window of parts.
func (r *Replica) held(w *wire.SetHeldWant) []wire.Message {
	digest := r.orphanSum.digest()
	list := make([]wire.HeldItem, 0, len(r.orphans))
	for key, o := range r.orphans {
		list = append(list, wire.HeldItem{Key: key, Value: o.value, Gen: o.gen, Incarnation: o.inc})
	}
	slices.SortFunc(list, func(a, b wire.HeldItem) int { return cmp.Compare(a.Key, b.Key) })
	var parts []*wire.SetHeld
	cur := &wire.SetHeld{Set: r.set, Digest: digest}
	n := 0
	for _, h := range list {
		size := len(h.Key) + len(h.Value) + len(h.Incarnation) + 32
		if n > 0 && n+size > r.opt.Chunk {
			parts = append(parts, cur)
			cur, n = &wire.SetHeld{Set: r.set, Digest: digest, Index: uint32(len(parts))}, 0
		}
		cur.Items = append(cur.Items, h)
		n += size
	}
	cur.Last = true
	parts = append(parts, cur)
	first := w.Next
	if w.Digest != digest || first >= uint32(len(parts)) {
		first = 0
	}
	var out []wire.Message
	for i := first; i < uint32(len(parts)) && i < first+uint32(r.opt.Window); i++ {
		out = append(out, parts[i])
	}
	return out
}
