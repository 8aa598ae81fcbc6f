package sorted

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// What is kept in order is what a map has whose keys are sorted, whatever came and went before.
func TestList(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var kept List[int]
	want := map[string]int{}
	check := func(step int) {
		t.Helper()
		after := fmt.Sprintf("k-%05d", random.IntN(6000))
		if step%2 == 0 {
			after = ""
		}
		got := map[string]int{}
		var keys []string
		for key, value := range kept.After(after) {
			keys, got[key] = append(keys, key), value
		}
		wanted := maps.Clone(want)
		maps.DeleteFunc(wanted, func(key string, _ int) bool { return key <= after })
		if !slices.Equal(keys, slices.Sorted(maps.Keys(wanted))) || !maps.Equal(got, wanted) {
			t.Fatalf("step %d, after %q: got %d values, in order %v; want %d", step, after, len(keys), slices.IsSorted(keys), len(wanted))
		}
		for n, part := range kept.parts {
			if len(part) == 0 || len(part) > mostKeyed {
				t.Fatalf("step %d: part %d of %d has %d values, want 1 to %d", step, n, len(kept.parts), len(part), mostKeyed)
			}
		}
	}
	check(0)
	for step := range 20_000 {
		key := fmt.Sprintf("k-%05d", random.IntN(5000))
		if (step/5000+random.IntN(3))%3 == 0 { // more come, then more go
			kept.Remove(key)
			delete(want, key)
		} else {
			kept.Put(key, step)
			want[key] = step
		}
		if step%97 == 0 {
			check(step)
		}
	}
	for key := range want {
		kept.Remove(key)
	}
	clear(want)
	if check(1); len(kept.parts) != 0 {
		t.Errorf("after all went: got %d parts, want none", len(kept.parts))
	}
}

// Keys that come in order, as from a store, leave no half-empty parts.
func TestListInOrder(t *testing.T) {
	var kept List[int]
	for n := range 10 * mostKeyed {
		kept.Put(fmt.Sprintf("%06d", n), n)
	}
	if got := len(kept.parts); got != 10 {
		t.Errorf("%d values that came in order: got %d parts, want 10", 10*mostKeyed, got)
	}
}
