// Package sorted keeps values in the order of their keys. It knows nothing of what they are. Whoever gives parts of long lists imports it.
package sorted

import (
	"iter"
	"slices"
	"sort"
)

// List keeps values in the order of their keys, so that a page of them costs what the page costs. It is a list of short lists, none of
// them empty: whoever comes or goes moves a part of one. The zero value is empty.
type List[V any] struct{ parts [][]keyed[V] }

type keyed[V any] struct {
	key   string
	value V
}

// mostKeyed is how long a part becomes before it is halved: some 12 KiB to move for one that comes.
const mostKeyed = 512

// part gives the first part that ends with a key or after it; behind the last one there is none.
func (l *List[V]) part(key string) int {
	return sort.Search(len(l.parts), func(n int) bool { return l.parts[n][len(l.parts[n])-1].key >= key })
}

// place gives where in a part a key is, or belongs.
func place[V any](part []keyed[V], key string) int {
	return sort.Search(len(part), func(n int) bool { return part[n].key >= key })
}

// Put has a key have a value, whether it is there or not.
func (l *List[V]) Put(key string, value V) {
	if len(l.parts) == 0 {
		l.parts = [][]keyed[V]{{{key, value}}}
		return
	}
	nth := min(l.part(key), len(l.parts)-1)
	part := l.parts[nth]
	at := place(part, key)
	if at < len(part) && part[at].key == key {
		part[at].value = value
		return
	}
	part = slices.Insert(part, at, keyed[V]{key, value})
	if l.parts[nth] = part; len(part) <= mostKeyed {
		return
	}
	half := len(part) / 2
	if nth == len(l.parts)-1 && at == len(part)-1 {
		half = at // keys that come in order, as from a store, leave full parts behind
	}
	l.parts = slices.Insert(l.parts, nth+1, slices.Clone(part[half:]))
	l.parts[nth] = slices.Clone(part[:half]) // which leaves no room that may never be used
}

// Remove takes a key out, if it is there.
func (l *List[V]) Remove(key string) {
	n := l.part(key)
	if n == len(l.parts) {
		return
	}
	at := place(l.parts[n], key)
	if l.parts[n][at].key != key {
		return
	}
	if l.parts[n] = slices.Delete(l.parts[n], at, at+1); len(l.parts[n]) == 0 {
		l.parts = slices.Delete(l.parts, n, n+1)
	}
}

// After goes over the values whose keys come after one, in order; after "" that is all. Nothing may come or go meanwhile.
func (l *List[V]) After(key string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for n := l.part(key); n < len(l.parts); n++ {
			for at := place(l.parts[n], key); at < len(l.parts[n]); at++ {
				if x := &l.parts[n][at]; x.key != key && !yield(x.key, x.value) {
					return
				}
			}
		}
	}
}
