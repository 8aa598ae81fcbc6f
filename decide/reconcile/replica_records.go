package reconcile

import (
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// Flush gives the records changed since the last Flush, to be persisted in one commit before the replies are sent. The generation
// comes last: of a commit that is cut short some changes are there and the source, which hears of the generation before,
// sends all of them again. Were it first, the copy would claim what it does not hold, which proves a source rolled back.
func (r *Replica) Flush() []wire.Write {
	if !r.dirty.meta {
		return nil
	}
	meta := newRecord().str(string(r.inc)).num(uint64(r.gen)).num(uint64(len(r.retired)))
	for _, inc := range r.retired {
		meta.str(string(inc))
	}
	out := make([]wire.Write, 0, len(r.dirty.keys)+1)
	for _, key := range slices.Sorted(maps.Keys(r.dirty.keys)) {
		w := wire.Write{Key: r.prefix + "i/" + key}
		if it, ok := r.items[key]; ok {
			w.Value = newRecord().num(uint64(it.gen)).str("").bytes(it.value).b
		} else if o, ok := r.orphans[key]; ok {
			w.Value = newRecord().num(uint64(o.gen)).str(string(o.inc)).bytes(o.value).b
		}
		out = append(out, w)
	}
	r.dirty = dirty{}
	return append(out, wire.Write{Key: r.prefix + "meta", Value: meta.b})
}

// LoadReplica restores a copy from the records under prefix, keyed by their full key. No records: an empty copy. So is
// what is left of a first commit that was cut short; the next Flush removes it.
func LoadReplica(set, prefix string, records map[string][]byte, opt Options) (*Replica, error) {
	r := NewReplica(set, prefix, opt)
	meta, ok := records[prefix+"meta"]
	if !ok {
		r.dirty.leftovers(prefix, records)
		return r, nil
	}
	m := readRecord(meta)
	r.inc, r.gen = skerry.Incarnation(m.str()), skerry.Generation(m.num())
	for n := m.num(); n > 0 && m.err == nil; n-- {
		r.retired = append(r.retired, skerry.Incarnation(m.str()))
	}
	if m.err != nil {
		return nil, &DamagedError{prefix + "meta", m.err}
	}
	for full, b := range records {
		key, ok := strings.CutPrefix(full, prefix+"i/")
		if !ok {
			continue
		}
		m := readRecord(b)
		gen, inc, value := skerry.Generation(m.num()), skerry.Incarnation(m.str()), m.bytes()
		if m.err != nil {
			return nil, &DamagedError{full, m.err}
		}
		it := replicaItem{slices.Clone(value), gen, sumOf(key, value)}
		r.size += kept(key, value)
		if inc == "" {
			r.items[key] = it
			r.sum = r.sum.add(it.sum)
		} else {
			r.orphans[key] = orphan{it, inc}
			r.orphanSum = r.orphanSum.add(it.sum)
		}
	}
	return r, nil
}
