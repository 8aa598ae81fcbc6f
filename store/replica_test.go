package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"testing"

	"skerry.dev/skerry/store"
)

func openAt(t *testing.T, url string) store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, store.Options{KeepRevisions: 50})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// same compares what two stores hold, without the revisions of single records.
func same(t *testing.T, a, b store.Store) {
	t.Helper()
	as, arev, aerr := a.List(t.Context(), "")
	bs, brev, berr := b.List(t.Context(), "")
	if aerr != nil || berr != nil || arev != brev || len(as) != len(bs) {
		t.Fatalf("%d records at %d (%v), %d at %d (%v)", len(as), arev, aerr, len(bs), brev, berr)
	}
	for i := range as {
		if as[i].Key != bs[i].Key || !bytes.Equal(as[i].Value, bs[i].Value) {
			t.Fatalf("%s is %q, and %s is %q", as[i].Key, as[i].Value, bs[i].Key, bs[i].Value)
		}
	}
}

var errEnough = errors.New("enough")

// follow brings a copy up to the original, by changes where those are kept, else whole. It gives how often it was whole.
func follow(t *testing.T, from, to store.Store) (whole int) {
	t.Helper()
	want, err := store.Revision(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		have, err := store.Revision(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		if have == want {
			return whole
		}
		err = store.Tail(t.Context(), from, have, func(changes []byte, rev int64) error {
			got, err := store.Extend(t.Context(), to, changes)
			if err != nil || got != rev {
				t.Fatalf("revision %d instead of %d: %v", got, rev, err)
			}
			if rev >= want {
				return errEnough
			}
			return nil
		})
		switch {
		case errors.Is(err, errEnough):
		case errors.Is(err, store.ErrCompacted):
			var dump bytes.Buffer
			if err := store.Dump(t.Context(), from, &dump); err != nil {
				t.Fatal(err)
			}
			if rev, err := store.Adopt(t.Context(), to, bytes.NewReader(dump.Bytes())); err != nil || rev < want {
				t.Fatal(rev, err)
			}
			whole++
		default:
			t.Fatal(err)
		}
	}
	return whole
}

// TestReplica has copies follow a store that is written to, compacted and reopened, and replaces copies that went astray.
func TestReplica(t *testing.T) {
	for _, kind := range []string{"memory:", "sqlite:"} {
		t.Run(kind, func(t *testing.T) {
			url := func(name string) string {
				if kind == "memory:" {
					return kind
				}
				return kind + filepath.Join(t.TempDir(), name)
			}
			original, copied := openAt(t, url("a")), openAt(t, url("b"))
			rng := rand.New(rand.NewPCG(1, 2))
			whole := 0
			for range 60 {
				for range rng.IntN(40) {
					var ops []store.Op
					for i := range 1 + rng.IntN(3) {
						op := store.Op{Key: fmt.Sprintf("k%d/%d", i, rng.IntN(9)), Value: fmt.Append(nil, rng.Uint64())}
						if rng.IntN(3) == 0 {
							op.Value, op.Delete = nil, true
						}
						ops = append(ops, op)
					}
					if _, err := original.Commit(t.Context(), ops); err != nil {
						t.Fatal(err)
					}
				}
				whole += follow(t, original, copied)
				same(t, original, copied)
				switch rng.IntN(8) {
				case 0: // it becomes the original itself, and is followed
					original, copied = copied, original
				case 1: // it goes astray
					for range 5 {
						if _, err := copied.Commit(t.Context(), []store.Op{{Key: "astray", Value: fmt.Append(nil, rng.Uint64())}}); err != nil {
							t.Fatal(err)
						}
					}
					var dump bytes.Buffer
					if err := store.Dump(t.Context(), original, &dump); err != nil {
						t.Fatal(err)
					}
					if _, err := store.Adopt(t.Context(), copied, bytes.NewReader(dump.Bytes())); err != nil {
						t.Fatal(err)
					}
					same(t, original, copied)
				case 2:
					rev, _ := store.Revision(t.Context(), original)
					if _, err := original.Commit(t.Context(), []store.Op{{Key: "more", Value: []byte{1}}}); err != nil {
						t.Fatal(err)
					}
					if err := original.(store.Compacter).Compact(t.Context(), rev+1); err != nil {
						t.Fatal(err)
					}
				}
			}
			if whole == 0 {
				t.Error("no whole copy was ever needed")
			}
		})
	}
}

// TestExtendRefuses: what does not go on where a copy ends, or is not whole, changes nothing.
func TestExtendRefuses(t *testing.T) {
	for _, url := range []string{"memory:", "sqlite:" + filepath.Join(t.TempDir(), "c")} {
		a, b := openAt(t, "memory:"), openAt(t, url)
		var batches [][]byte
		for i := range 3 {
			rev, err := a.Commit(t.Context(), []store.Op{{Key: "k", Value: fmt.Append(nil, i)}})
			if err != nil {
				t.Fatal(err)
			}
			err = store.Tail(t.Context(), a, rev-1, func(changes []byte, _ int64) error {
				batches = append(batches, changes)
				return errEnough
			})
			if !errors.Is(err, errEnough) {
				t.Fatal(err)
			}
		}
		if _, err := store.Extend(t.Context(), b, batches[1]); !errors.Is(err, store.ErrGap) {
			t.Errorf("%s: a gap: %v", url, err)
		}
		torn := bytes.Clone(batches[0])
		torn[3] ^= 1
		if _, err := store.Extend(t.Context(), b, torn); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("%s: damage: %v", url, err)
		}
		if rs, rev, err := b.List(t.Context(), ""); len(rs) > 0 || rev != 0 || err != nil {
			t.Errorf("%s: %v %d %v", url, rs, rev, err)
		}
		for _, batch := range [][]byte{batches[0], batches[0], batches[1], batches[0], batches[2]} {
			if _, err := store.Extend(t.Context(), b, batch); err != nil {
				t.Fatal(err)
			}
		}
		same(t, a, b)
		bad := []byte("SKERRYDB\x01\x05\x01")
		if _, err := store.Adopt(t.Context(), b, bytes.NewReader(bad)); !errors.Is(err, store.ErrBadDump) {
			t.Errorf("%s: a bad dump: %v", url, err)
		}
		same(t, a, b)
	}
}

// FuzzExtend gives a store changes of nobody: it takes all of them or none.
func FuzzExtend(f *testing.F) {
	ctx := context.Background()
	a, err := store.Open(ctx, "memory:", store.Options{})
	if err != nil {
		f.Fatal(err)
	}
	for i := range 3 {
		if _, err := a.Commit(ctx, []store.Op{{Key: fmt.Sprint("k", i), Value: []byte("v")}, {Key: "d", Value: []byte{}, Delete: i == 2}}); err != nil {
			f.Fatal(err)
		}
	}
	store.Tail(ctx, a, 0, func(changes []byte, _ int64) error { f.Add(changes); return errEnough })
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, changes []byte) {
		s, err := store.Open(t.Context(), "memory:", store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, b := range [][]byte{changes, store.Sealed(changes)} {
			before, rev, _ := s.List(t.Context(), "")
			if _, err := store.Extend(t.Context(), s, b); err != nil {
				after, again, _ := s.List(t.Context(), "")
				if again != rev || !reflect.DeepEqual(before, after) {
					t.Fatalf("%v: and it changed from %v to %v", err, before, after)
				}
			}
		}
	})
}
