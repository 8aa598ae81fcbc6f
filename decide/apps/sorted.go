package apps

import (
	"iter"
	"slices"
	"sort"
)

// sorted keeps values in the order of their keys, so that a page of them costs what the page costs. It is a list of short lists, none of
// them empty: whoever comes or goes moves a part of one. The zero value is empty.
type sorted[V any] struct{ parts [][]keyed[V] }

type keyed[V any] struct {
	key   string
	value V
}

// mostKeyed is how long a part becomes before it is halved: some 12 KiB to move for one that comes.
const mostKeyed = 512

// part gives the first part that ends with a key or after it; behind the last one there is none.
func (s *sorted[V]) part(key string) int {
	return sort.Search(len(s.parts), func(n int) bool { return s.parts[n][len(s.parts[n])-1].key >= key })
}

// place gives where in a part a key is, or belongs.
func place[V any](part []keyed[V], key string) int {
	return sort.Search(len(part), func(n int) bool { return part[n].key >= key })
}

// put has a key have a value, whether it is there or not.
func (s *sorted[V]) put(key string, value V) {
	if len(s.parts) == 0 {
		s.parts = [][]keyed[V]{{{key, value}}}
		return
	}
	n := min(s.part(key), len(s.parts)-1)
	part := s.parts[n]
	at := place(part, key)
	if at < len(part) && part[at].key == key {
		part[at].value = value
		return
	}
	part = slices.Insert(part, at, keyed[V]{key, value})
	if s.parts[n] = part; len(part) <= mostKeyed {
		return
	}
	half := len(part) / 2
	if n == len(s.parts)-1 && at == len(part)-1 {
		half = at // keys that come in order, as from a store, leave full parts behind
	}
	s.parts = slices.Insert(s.parts, n+1, slices.Clone(part[half:]))
	s.parts[n] = slices.Clone(part[:half]) // which leaves no room that may never be used
}

// remove takes a key out, if it is there.
func (s *sorted[V]) remove(key string) {
	n := s.part(key)
	if n == len(s.parts) {
		return
	}
	at := place(s.parts[n], key)
	if s.parts[n][at].key != key {
		return
	}
	if s.parts[n] = slices.Delete(s.parts[n], at, at+1); len(s.parts[n]) == 0 {
		s.parts = slices.Delete(s.parts, n, n+1)
	}
}

// after goes over the values whose keys come after one, in order; after "" that is all. Nothing may come or go meanwhile.
func (s *sorted[V]) after(key string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for n := s.part(key); n < len(s.parts); n++ {
			for at := place(s.parts[n], key); at < len(s.parts[n]); at++ {
				if x := &s.parts[n][at]; x.key != key && !yield(x.key, x.value) {
					return
				}
			}
		}
	}
}
