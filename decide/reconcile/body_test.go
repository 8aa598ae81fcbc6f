package reconcile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

// marked finds what is between the first '<' and the last '>' of a value.
func marked(_ string, value []byte) (from, to int) {
	from, to = bytes.IndexByte(value, '<'), bytes.LastIndexByte(value, '>')+1
	if from < 0 || to <= from {
		return 0, 0
	}
	return from, to
}

// Whether a source keeps common parts once or not makes no difference to what it gives, sends and keeps.
func TestCommonParts(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	parts := []string{"", "<>", "<" + strings.Repeat("a", 200) + ">", "<" + strings.Repeat("b", 62) + ">", "<" + strings.Repeat("c", 5000) + ">"}
	now := time.Unix(1e9, 0)
	plain := NewSource("s", "p/", "life", Options{})
	shared := NewSource("s", "p/", "life", Options{Common: marked})
	for _, s := range []*Source{plain, shared} {
		s.Connect(now, wire.SetAck{Set: "s"})
	}
	records := map[string][]byte{}
	for step := range 2000 {
		key := fmt.Sprint("k", random.IntN(40))
		if random.IntN(5) == 0 {
			if got, want := shared.Delete(key), plain.Delete(key); got != want {
				t.Fatalf("step %d: delete %s: got %v, want %v", step, key, got, want)
			}
		} else {
			value := fmt.Appendf(nil, "%d%s%d", random.IntN(3), parts[random.IntN(len(parts))], random.IntN(3))
			got, err := shared.Put(key, slices.Clone(value))
			want, _ := plain.Put(key, value)
			if got != want || err != nil {
				t.Fatalf("step %d: put %s: got %v, %v, want %v", step, key, got, err, want)
			}
		}
		got, has := shared.Get(key)
		if want, there := plain.Get(key); string(got) != string(want) || has != there || shared.Has(key) != there {
			t.Fatalf("step %d: get %s: got %q, %v, want %q, %v", step, key, got, has, want, there)
		}
		if random.IntN(20) > 0 {
			continue
		}
		now = now.Add(time.Minute)
		kept, sent := shared.Flush(), shared.Next(now)
		if want := plain.Flush(); !reflect.DeepEqual(kept, want) {
			t.Fatalf("step %d: got %d records %v, want %d", step, len(kept), kept, len(want))
		}
		if want := plain.Next(now); !reflect.DeepEqual(sent, want) {
			t.Fatalf("step %d: got %d frames, want %d with the same in them", step, len(sent), len(want))
		}
		for _, w := range kept {
			if records[w.Key] = w.Value; w.Value == nil {
				delete(records, w.Key)
			}
		}
		again, err := LoadSource("s", "p/", "life", records, Options{Common: marked})
		if err != nil || again.Digest() != plain.Digest() {
			t.Fatalf("step %d: a source of its records: got digest %x, %v, want %x", step, again.Digest(), err, plain.Digest())
		}
		for _, key := range plain.Keys() {
			want, _ := plain.Get(key)
			if got, _ := again.Get(key); string(got) != string(want) {
				t.Fatalf("step %d: %s of its records: got %q, want %q", step, key, got, want)
			}
		}
	}
}

// A part that values of several sets have is kept once.
func TestCommonPartsAreKeptOnce(t *testing.T) {
	const part = 10_000
	kept := 0
	for set := range 3 {
		s := NewSource(fmt.Sprint("s", set), "p/", "life", Options{Common: marked})
		for n := range 50 {
			key := fmt.Sprint("k", n)
			if _, err := s.Put(key, fmt.Appendf(nil, "%d<%s>%d", n, strings.Repeat("x", part), set)); err != nil {
				t.Fatalf("put %s: got %v, want no error", key, err)
			}
			it := s.items[key]
			kept += len(it.value.own)
			if other := s.items["k0"]; it.value.common != other.value.common {
				t.Errorf("set %d, %s: got a common part of its own, want that of k0", set, key)
			}
		}
	}
	if most := 3 * 50 * 8; kept > most {
		t.Errorf("values of %d bytes: got %d bytes kept of them beside the common part, want %d at most", part, kept, most)
	}
}
