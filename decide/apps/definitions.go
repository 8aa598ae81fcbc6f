package apps

import (
	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// leastStored is what a record counts for at least: a small one takes more memory than its own bytes.
const leastStored = 4 << 10

// definitions counts what the records of each namespace take: those of applications, versions, secrets and claims. What a tier holds for
// the one above it counts there.
type definitions struct{ by map[string]skerry.Bytes }

// note has a record of a namespace take n bytes, and 0 none; counts is what it has counted for until now.
func (st *definitions) note(namespace string, counts *skerry.Bytes, n int) {
	size := skerry.Bytes(n)
	if n > 0 {
		size = max(size, leastStored)
	}
	st.by[namespace] += size - *counts
	*counts = size
	if st.by[namespace] == 0 {
		delete(st.by, namespace)
	}
}

// put writes a record and counts it.
func (st *definitions) put(fx *wire.Effects, key, namespace string, counts *skerry.Bytes, data []byte) {
	st.note(namespace, counts, len(data))
	fx.Put(key, data)
}

// remove removes a record that was counted.
func (st *definitions) remove(fx *wire.Effects, key, namespace string, counts *skerry.Bytes) {
	st.note(namespace, counts, 0)
	fx.Delete(key)
}
