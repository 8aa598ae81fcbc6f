package reconcile

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// Source is the truth of one set for one peer.
//
// What it knows of the peer:
//
//	           Connect                     ack of this incarnation
//	unknown ------------> (snapshot) -----------------------------> following --- Put, Delete ---> deltas
//	   ^                      ^                                         |
//	   +---- Disconnect ------+--- other incarnation, base too old -----+
//
// A peer that turns out to hold what this source never said (it is ahead, or its digest differs) proves that the source
// was rolled back. The source then starts a new incarnation by itself, so that nothing at the peer is deleted for being
// unknown here.
type Source struct {
	set, prefix string
	opt         Options

	// Persisted.
	inc   skerry.Incarnation
	gen   skerry.Generation
	floor skerry.Generation // tombstones at or below are gone: no delta can start lower
	items map[string]sourceItem
	tombs map[string]skerry.Generation

	sum   sum
	log   []change // all changes by generation; an entry whose item has moved on is stale
	dirty dirty

	peer peerState
}

type sourceItem struct {
	value body
	gen   skerry.Generation
	sum   sum
}

type change struct {
	gen skerry.Generation
	key string
}

// NewSource starts an empty set. Records are kept under prefix, which ends in a slash.
func NewSource(set, prefix string, inc skerry.Incarnation, opt Options) *Source {
	s := &Source{
		set: set, prefix: prefix, opt: opt.withDefaults(), inc: inc,
		items: make(map[string]sourceItem), tombs: make(map[string]skerry.Generation),
	}
	s.dirty.meta = true
	return s
}

// Set gives the set's name, Incarnation and Gen where it stands.
func (s *Source) Set() string                     { return s.set }
func (s *Source) Incarnation() skerry.Incarnation { return s.inc }
func (s *Source) Gen() skerry.Generation          { return s.gen }

// Digest is the digest of all items.
func (s *Source) Digest() wire.Digest { return s.sum.digest() }

// Len is the number of items.
func (s *Source) Len() int { return len(s.items) }

// Has reports whether the set has an item.
func (s *Source) Has(key string) bool {
	_, ok := s.items[key]
	return ok
}

// Get gives an item's value, which must not be changed.
func (s *Source) Get(key string) ([]byte, bool) {
	it, ok := s.items[key]
	return it.value.bytes(), ok
}

// Keys gives all keys in order.
func (s *Source) Keys() []string { return slices.Sorted(maps.Keys(s.items)) }

// Put sets an item and reports whether that changed anything. The source keeps value; the caller must not change it.
func (s *Source) Put(key string, value []byte) (bool, error) {
	if n := len(key) + len(value); n > s.opt.MaxItem {
		return false, &TooLargeError{key, n, s.opt.MaxItem}
	}
	old, ok := s.items[key]
	if ok && old.value.equal(value) {
		return false, nil
	}
	if ok {
		s.sum = s.sum.sub(old.sum)
	}
	delete(s.tombs, key)
	h := sumOf(key, value)
	s.sum = s.sum.add(h)
	s.items[key] = sourceItem{s.opt.newBody(key, value), s.changed(key), h}
	return true, nil
}

// Delete removes an item, or an orphan that the peer reported, and reports whether that changed anything. The deletion
// is a tombstone until the peer has acknowledged it.
func (s *Source) Delete(key string) bool {
	old, ok := s.items[key]
	_, orphan := s.peer.orphans[key]
	if _, dead := s.tombs[key]; !ok && (!orphan || dead) {
		return false
	}
	if ok {
		s.sum = s.sum.sub(old.sum)
		delete(s.items, key)
	}
	s.tombs[key] = s.changed(key)
	return true
}

func (s *Source) changed(key string) skerry.Generation {
	s.gen++
	s.log = append(s.log, change{s.gen, key})
	s.dirty.mark(key)
	if len(s.log) > 2*(len(s.items)+len(s.tombs))+64 {
		s.log = slices.DeleteFunc(s.log, func(c change) bool { return s.stale(c) && c.gen != s.gen })
	}
	return s.gen
}

func (s *Source) stale(c change) bool {
	if it, ok := s.items[c.key]; ok {
		return it.gen != c.gen
	}
	return s.tombs[c.key] != c.gen
}

// since lists what changed after base, oldest change first.
func (s *Source) since(base skerry.Generation) []wire.SetItem {
	i := sort.Search(len(s.log), func(i int) bool { return s.log[i].gen > base })
	var out []wire.SetItem
	for _, c := range s.log[i:] {
		if s.stale(c) {
			continue
		}
		it, ok := s.items[c.key]
		out = append(out, wire.SetItem{Key: c.key, Value: it.value.bytes(), Gen: c.gen, Deleted: !ok})
	}
	return out
}

// Reincarnate begins a new life of the set, as after a restored backup or a take-over: same items, no memory of
// deletions. The peer will keep what the set does not know as orphans until they are named or deleted. It may be called
// at every start with the incarnation of the store: a set that lives in it already, or in a life that it began by
// itself within it ("x~1700000000" in "x"), stays as it is.
func (s *Source) Reincarnate(inc skerry.Incarnation) {
	if base, _ := lives(s.inc); inc == s.inc || string(inc) == base {
		return
	}
	s.begin(inc)
}

// Renew begins a life within the set's own incarnation that none of its name had before: for a set that is made where an
// earlier one may have been forgotten.
func (s *Source) Renew(now time.Time) { s.begin(nextIncarnation(now, s.inc, "")) }

func (s *Source) begin(inc skerry.Incarnation) {
	s.inc = inc
	s.gen++
	s.floor = s.gen
	for key := range s.tombs {
		s.dirty.mark(key)
	}
	clear(s.tombs)
	s.dirty.meta = true
	s.peer.restart()
}

// nextIncarnation names the life after inc that the source begins by itself: "x~N", N at least the time in seconds. A source
// that was rolled back may have begun such a life before and forgotten it; the time keeps the names apart, and N
// also goes past the one that the peer holds.
func nextIncarnation(now time.Time, inc, peer skerry.Incarnation) skerry.Incarnation {
	base, n := lives(inc)
	if b, m := lives(peer); b == base {
		n = max(n, m)
	}
	return skerry.Incarnation(base + "~" + strconv.FormatInt(max(n+1, now.Unix()), 10))
}

func lives(inc skerry.Incarnation) (base string, n int64) {
	base, digits, ok := strings.Cut(string(inc), "~")
	n, err := strconv.ParseInt(digits, 10, 62)
	if !ok || err != nil {
		return string(inc), 0
	}
	return base, n
}

// Flush gives the records changed since the last Flush. A caller persists them in one commit before it sends what
// Next gives.
func (s *Source) Flush() []wire.Write {
	if !s.dirty.meta {
		return nil
	}
	out := []wire.Write{{Key: s.prefix + "meta", Value: newRecord().
		str(string(s.inc)).num(uint64(s.gen)).num(uint64(s.floor)).b}}
	for _, key := range slices.Sorted(maps.Keys(s.dirty.keys)) {
		w := wire.Write{Key: s.prefix + "i/" + key}
		if it, ok := s.items[key]; ok {
			w.Value = newRecord().num(uint64(it.gen)).num(0).bytes(it.value.bytes()).b
		} else if gen, ok := s.tombs[key]; ok {
			w.Value = newRecord().num(uint64(gen)).num(1).bytes(nil).b
		}
		out = append(out, w)
	}
	s.dirty = dirty{}
	return out
}

// Erase gives the writes that leave nothing of the set in the store. The source must not be used any more.
func (s *Source) Erase() []wire.Write {
	keys := map[string]struct{}{}
	maps.Copy(keys, s.dirty.keys)
	for key := range s.items {
		keys[key] = struct{}{}
	}
	for key := range s.tombs {
		keys[key] = struct{}{}
	}
	out := []wire.Write{{Key: s.prefix + "meta"}}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		out = append(out, wire.Write{Key: s.prefix + "i/" + key})
	}
	return out
}

// LoadSource restores a source from the records under prefix, keyed by their full key. Without records it starts an
// empty set under inc. The set keeps the incarnation of the records; call Reincarnate if the parent's has changed.
func LoadSource(set, prefix string, inc skerry.Incarnation, records map[string][]byte, opt Options) (*Source, error) {
	s := NewSource(set, prefix, inc, opt)
	meta, ok := records[prefix+"meta"]
	if !ok {
		s.dirty.leftovers(prefix, records) // of an Erase that was cut short
		return s, nil
	}
	r := readRecord(meta)
	s.inc = skerry.Incarnation(r.str())
	s.gen, s.floor = skerry.Generation(r.num()), skerry.Generation(r.num())
	if r.err != nil {
		return nil, &DamagedError{prefix + "meta", r.err}
	}
	for full, b := range records {
		key, ok := strings.CutPrefix(full, prefix+"i/")
		if !ok {
			continue
		}
		r := readRecord(b)
		gen, dead, value := skerry.Generation(r.num()), r.num() == 1, r.bytes()
		if r.err != nil || gen > s.gen {
			return nil, &DamagedError{full, errRecord}
		}
		s.log = append(s.log, change{gen, key})
		if dead {
			s.tombs[key] = gen
			continue
		}
		it := sourceItem{s.opt.newBody(key, value).clone(), gen, sumOf(key, value)}
		s.items[key] = it
		s.sum = s.sum.add(it.sum)
	}
	slices.SortFunc(s.log, func(a, b change) int { return cmp.Compare(a.gen, b.gen) })
	s.dirty = dirty{}
	return s, nil
}

// Connected reports whether the peer's state is known, Acked the generation that it has confirmed on this connection.
func (s *Source) Connected() bool          { return s.peer.connected }
func (s *Source) Acked() skerry.Generation { return s.peer.held }

// Settled reports whether the connected peer holds exactly this set.
func (s *Source) Settled() bool {
	return s.peer.connected && s.peer.confirmed && s.peer.held == s.gen
}

// Confirmed reports whether the set has an item and the connected peer holds its present value.
func (s *Source) Confirmed(key string) bool {
	i, ok := s.items[key]
	return ok && s.peer.connected && s.peer.confirmed && i.gen <= s.peer.held
}

// Pending reports whether the set has an item, or the end of one, that the peer is not known to hold.
func (s *Source) Pending(key string) bool {
	gen := s.tombs[key]
	if i, ok := s.items[key]; ok {
		gen = i.gen
	}
	return gen > s.peer.held
}

// Told reports whether the set has an item, or the end of one that the peer has not confirmed.
func (s *Source) Told(key string) bool {
	_, item := s.items[key]
	_, tomb := s.tombs[key]
	return item || tomb
}

// Orphans gives the items of earlier incarnations that the peer keeps and this set has not decided about. known says
// whether the list is complete as of the peer's last answer. Put adopts an orphan, Delete removes it.
func (s *Source) Orphans() (orphans []wire.HeldItem, known bool) {
	for _, key := range slices.Sorted(s.EachOrphan) {
		orphans = append(orphans, s.peer.orphans[key])
	}
	return orphans, s.peer.connected && s.peer.confirmed && s.peer.orphanSum.digest() == s.peer.orphanWant
}

// EachOrphan runs over the keys of Orphans, in any order.
func (s *Source) EachOrphan(yield func(key string) bool) {
	for key := range s.peer.orphans {
		if _, ok := s.Orphan(key); ok && !yield(key) {
			return
		}
	}
}

// Orphan gives one of Orphans by its key.
func (s *Source) Orphan(key string) (orphan wire.HeldItem, ok bool) {
	orphan, ok = s.peer.orphans[key]
	return orphan, ok && !s.Told(key)
}

// Due gives the time of the next resend, zero when nothing waits for an answer.
func (s *Source) Due() time.Time { return s.peer.due(s.opt) }
