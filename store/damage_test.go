package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/store"
)

const damagedKeys = 200

func damagedValue(i int) string { return strings.Repeat("precious", 20) + fmt.Sprint(i) }

// crashed gives a directory as a process leaves it that is killed after n acknowledged commits: with a log that is not yet in the file.
func crashed(t *testing.T, n int) string {
	t.Helper()
	ctx := context.Background()
	live, dir := filepath.Join(t.TempDir(), "a.db"), t.TempDir()
	s := mustOpen(t, "sqlite:"+live)
	defer s.Close()
	for i := range n {
		if _, err := s.Commit(ctx, []store.Op{{Key: fmt.Sprintf("key/%d", i%damagedKeys), Value: []byte(damagedValue(i))}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, suffix := range []string{"", "-wal", ".head"} {
		b, err := os.ReadFile(live + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "a.db"+suffix), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "a.db")
}

// closed is a store that was closed, with a record for each key.
func closed(t *testing.T) string {
	t.Helper()
	path := crashed(t, damagedKeys)
	if err := mustOpen(t, "sqlite:"+path).Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func harm(t *testing.T, path string, how func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, how(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// files gives the content of all files in a directory but the lock.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range list {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(e.Name(), ".lock") && !strings.HasSuffix(e.Name(), "-shm") {
			out[e.Name()] = string(b)
		}
	}
	return out
}

// at finds a text in a leaf of a type: 13 is a table, 10 an index.
func at(b []byte, leaf byte, text string, right func(page []byte, at int) bool) int {
	for page := 0; page < len(b); page += 4096 {
		p := b[page : page+4096]
		if n := bytes.Index(p, []byte(text)); p[0] == leaf && n > 0 && right(p, n) {
			return page + n
		}
	}
	panic("there is no " + text)
}

// recordAt finds a value in the table of records. In that of history the length of a value stands before it, in two bytes.
func recordAt(b []byte) int {
	return at(b, 13, "precious", func(p []byte, n int) bool { return p[n-3] != 0 || p[n-2] < 0x80 || p[n-1] != 1 })
}

// keyAt finds a key in the index of records.
func keyAt(b []byte) int {
	return at(b, 10, "key/1", func(p []byte, _ int) bool { return !bytes.Contains(p, []byte("precious")) })
}

// TestDamageIsRefused: a store that is damaged is not opened, not changed, and repaired as far as it is whole.
func TestDamageIsRefused(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		harm  func(b []byte) []byte
		whole int // at least so many records survive
		lost  int // records named as lost
	}{
		"no SQLite file": {func(b []byte) []byte { return bytes.Repeat([]byte("x"), len(b)) }, 0, 0},
		"torn page":      {func(b []byte) []byte { copy(b[len(b)-8192:], make([]byte, 4096)); return b }, 1, 0},
		"short text":     {func([]byte) []byte { return []byte("no store at all") }, 0, 0},
		"cut short":      {func(b []byte) []byte { return b[:len(b)/2] }, 0, 0},
		"one bit":        {func(b []byte) []byte { b[recordAt(b)] ^= 1; return b }, damagedKeys - 1, 1},
		"a key":          {func(b []byte) []byte { b[keyAt(b)] ^= 1; return b }, damagedKeys, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := closed(t)
			harm(t, path, c.harm)
			before := files(t, filepath.Dir(path))
			for range 2 { // it stays refused
				_, err := store.Open(ctx, "sqlite:"+path, store.Options{})
				var d *store.DamagedError
				if !errors.As(err, &d) || !errors.Is(err, store.ErrDamaged) {
					t.Fatalf("opened with %v", err)
				}
				if len(d.Records) != c.lost {
					t.Errorf("it names %q", d.Records)
				}
				t.Log(err)
			}
			for f, b := range files(t, filepath.Dir(path)) {
				if before[f] != b {
					t.Errorf("opening changed %s", f)
				}
			}
			now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
			o := store.Options{Now: func() time.Time { return now }}
			done, err := store.Repair(ctx, "sqlite:"+path, o, store.Repairing{})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(done)
			if want := path + ".damaged-20300102T030405Z"; done.SetAside != want {
				t.Errorf("set aside as %s", done.SetAside)
			}
			if done.Whole < c.whole || len(done.Lost) != c.lost || done.Whole+len(done.Lost) < damagedKeys && !done.Unreadable {
				t.Errorf("repaired: %+v", done)
			}
			s := mustOpen(t, "sqlite:"+path)
			defer s.Close()
			rs, rev, err := s.List(ctx, "")
			if err != nil || len(rs) != done.Whole || rev <= damagedKeys {
				t.Errorf("the repaired store has %d records at %d (%v)", len(rs), rev, err)
			}
			right(t, rs, damagedKeys)
		})
	}
}

// TestRecordsInAnIndex: a store of an older version, which has its records in an index, is written on, refused when it is damaged, and
// repaired.
func TestRecordsInAnIndex(t *testing.T) {
	ctx := context.Background()
	path := closed(t)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"CREATE TABLE old (key TEXT PRIMARY KEY, revision INTEGER NOT NULL, sum INTEGER NOT NULL, value BLOB NOT NULL) WITHOUT ROWID",
		"INSERT INTO old SELECT * FROM record", "DROP TABLE record", "ALTER TABLE old RENAME TO record"} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	old := mustOpen(t, "sqlite:"+path)
	if _, err := old.Commit(ctx, []store.Op{{Key: "new", Value: []byte("value")}, {Key: "key/7", Delete: true}}); err != nil {
		t.Fatal(err)
	}
	records, _, err := old.List(ctx, "key/")
	if err != nil || len(records) != damagedKeys-1 {
		t.Errorf("it has %d records, %v", len(records), err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	harm(t, path, func(b []byte) []byte {
		n := at(b, 10, "precious", func([]byte, int) bool { return true })
		b[n] ^= 1
		return b
	})
	if _, err := store.Open(ctx, "sqlite:"+path, store.Options{}); !errors.Is(err, store.ErrDamaged) {
		t.Fatalf("damaged, it opens with %v", err)
	}
	done, err := store.Repair(ctx, "sqlite:"+path, store.Options{}, store.Repairing{})
	if err != nil || done.Whole != damagedKeys-1 || len(done.Lost) != 1 || done.Unreadable {
		t.Errorf("repaired: %+v, %v", done, err)
	}
	if err := mustOpen(t, "sqlite:"+path).Close(); err != nil {
		t.Error(err)
	}
}

// right checks that records are those of crashed after n commits.
func right(t *testing.T, rs []store.Record, n int) {
	t.Helper()
	for _, r := range rs {
		var i int
		if _, err := fmt.Sscanf(r.Key, "key/%d", &i); err != nil {
			t.Errorf("record %q", r.Key)
			continue
		}
		last := i + (n-1-i)/damagedKeys*damagedKeys
		if string(r.Value) != damagedValue(last) {
			t.Errorf("%q is %q", r.Key, r.Value)
		}
	}
}

// TestRepairKeepsWhatItMust: without a record that is needed nothing is changed, and a store that is whole is left alone.
func TestRepairKeepsWhatItMust(t *testing.T) {
	ctx := context.Background()
	path := closed(t)
	if _, err := store.Repair(ctx, "sqlite:"+path, store.Options{}, store.Repairing{}); !errors.Is(err, store.ErrNotDamaged) {
		t.Errorf("a whole store: %v", err)
	}
	harm(t, path, func(b []byte) []byte { b[recordAt(b)] ^= 1; return b })
	var d *store.DamagedError
	if _, err := store.Open(ctx, "sqlite:"+path, store.Options{}); !errors.As(err, &d) {
		t.Fatal(err)
	}
	before := files(t, filepath.Dir(path))
	lost := strings.Trim(d.Records[0], `"`)
	if _, err := store.Repair(ctx, "sqlite:"+path, store.Options{}, store.Repairing{Needed: []string{lost}}); !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), lost) {
		t.Errorf("without %s: %v", lost, err)
	}
	after := files(t, filepath.Dir(path))
	for f := range before {
		if before[f] != after[f] {
			t.Errorf("%s was changed", f)
		}
	}
}

// TestLostTail: acknowledged writes do not vanish without a word, whatever byte of the file or its log is hit, or if either is missing.
func TestLostTail(t *testing.T) {
	ctx := context.Background()
	const n = damagedKeys + 150
	path := crashed(t, n)
	whole := files(t, filepath.Dir(path))
	rng := rand.New(rand.NewPCG(1, 2))
	try := func(what string, now map[string]string) {
		t.Helper()
		dir := t.TempDir()
		for name, b := range now {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := store.Open(ctx, "sqlite:"+filepath.Join(dir, "a.db"), store.Options{})
		if err != nil {
			return // it says so
		}
		defer s.Close()
		rs, rev, err := s.List(ctx, "")
		if err != nil {
			return
		}
		if len(rs) != damagedKeys || rev < n {
			t.Errorf("%s: opened with %d records of %d at revision %d of %d", what, len(rs), damagedKeys, rev, n)
		}
		right(t, rs, n)
	}
	with := func(name, b string) map[string]string {
		out := map[string]string{}
		for k, v := range whole {
			out[k] = v
		}
		if out[name] = b; b == "" {
			delete(out, name)
		}
		return out
	}
	try("whole", whole)
	try("no file", with("a.db", ""))
	try("no log", with("a.db-wal", ""))
	try("no head", with("a.db.head", ""))
	for _, name := range []string{"a.db", "a.db-wal", "a.db.head"} {
		for range testenv.Times(50, 600) {
			b := []byte(whole[name])
			at := rng.IntN(len(b))
			b[at] ^= 1 << rng.IntN(8)
			try(fmt.Sprintf("byte %d of %s", at, name), with(name, string(b)))
		}
		try("half of "+name, with(name, whole[name][:len(whole[name])/2]))
	}
	// An older copy in the place of the file, as a restored disk has it.
	older := crashed(t, n-1)
	b, err := os.ReadFile(older + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	try("an older log", with("a.db-wal", string(b)))
}

// TestDamagedType: one bit makes the text of a key a blob. Every byte of the record is right, and so is the structure of the file, but searches
// lead past it and past what lies behind it.
func TestDamagedType(t *testing.T) {
	path := closed(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	hit := 0
	for at := 8; ; at++ {
		next := bytes.Index(whole[at:], []byte("key/77"))
		if next < 0 {
			break
		}
		at += next
		kind := bytes.LastIndexByte(whole[at-8:at], 25) // before it are the types of the columns; that of a text of six bytes is 25
		if kind < 0 {
			continue
		}
		hit++
		b := bytes.Clone(whole)
		b[at-8+kind] ^= 1
		other := filepath.Join(t.TempDir(), "a.db")
		if err := os.WriteFile(other, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(t.Context(), "sqlite:"+other, store.Options{})
		if err == nil {
			list, _, _ := s.List(t.Context(), "")
			s.Close()
			t.Errorf("opened with %d records of %d", len(list), damagedKeys)
		} else if !errors.Is(err, store.ErrDamaged) {
			t.Error(err)
		}
	}
	if hit == 0 {
		t.Error("no key was hit")
	}
}

// TestReplaceIsWhole: a repair or a restore that fails, or is cut short at any point, leaves no store that is empty: that would be another site
// with another CA. It can be done again.
func TestReplaceIsWhole(t *testing.T) {
	ctx := context.Background()
	path := closed(t)
	harm(t, path, func(b []byte) []byte { b[recordAt(b)] ^= 1; return b })
	before := files(t, filepath.Dir(path))
	refused := errors.New("the wrong passphrase")
	_, err := store.Replace(ctx, "sqlite:"+path, store.Options{}, func(context.Context, store.Store) error { return refused })
	if !errors.Is(err, refused) {
		t.Fatal(err)
	}
	if _, err := store.Repair(ctx, "sqlite:"+path, store.Options{}, store.Repairing{Finish: func(context.Context, store.Store) error { return refused }}); !errors.Is(err, refused) {
		t.Fatal(err)
	}
	after := files(t, filepath.Dir(path))
	maps.DeleteFunc(after, func(_, b string) bool { return b == "" }) // a reader makes a log that is empty
	if !maps.Equal(before, after) {
		t.Errorf("files %v became %v", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
	}

	// The process is killed while the new store is filled, which what it left there must survive.
	var cut map[string]string
	_, err = store.Replace(ctx, "sqlite:"+path, store.Options{}, func(ctx context.Context, s store.Store) error {
		if _, err := store.Open(ctx, "sqlite:"+path, store.Options{}); !errors.Is(err, store.ErrInUse) {
			t.Errorf("a role opens what is being replaced: %v", err)
		}
		_, err := s.Commit(ctx, []store.Op{{Key: "half", Value: []byte("of it")}})
		cut = files(t, filepath.Dir(path))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, b := range cut {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path = filepath.Join(dir, "a.db")
	if _, err := store.Open(ctx, "sqlite:"+path, store.Options{}); !errors.Is(err, store.ErrDamaged) {
		t.Fatalf("opened after a repair that was cut short: %v", err)
	}
	done, err := store.Repair(ctx, "sqlite:"+path, store.Options{}, store.Repairing{})
	if err != nil || done.Whole != damagedKeys-1 {
		t.Fatalf("%+v, %v", done, err)
	}
	for name := range files(t, dir) {
		if strings.Contains(name, ".new") {
			t.Errorf("%s is left", name)
		}
	}

	// What is there at each step of taking the new store's place, in this order: its log goes, the file gets another name, the new one and
	// the new head come.
	path = crashed(t, damagedKeys+20)
	if _, err := store.Repair(ctx, "sqlite:"+path+"x", store.Options{}, store.Repairing{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a store that is not there is repaired: %v", err)
	}
	harm(t, path+"-wal", func(b []byte) []byte { b[len(b)-3000] ^= 1; return b })
	done, err = store.Repair(ctx, "sqlite:"+path, store.Options{}, store.Repairing{})
	if err != nil {
		t.Fatal(err)
	}
	after = files(t, filepath.Dir(path))
	steps := []map[string]string{{"a.db": after[filepath.Base(done.SetAside)]}, {}, {"a.db": after["a.db"]}}
	for n, now := range steps {
		now["a.db.head"] = after["a.db.head"] // the one that is written first has at least this revision
		dir := t.TempDir()
		for name, b := range now {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := store.Open(ctx, "sqlite:"+filepath.Join(dir, "a.db"), store.Options{})
		if err == nil {
			rs, _, _ := s.List(ctx, "")
			err = s.Close()
			if n < 2 || len(rs) != done.Whole {
				t.Errorf("step %d: opened with %d records", n, len(rs))
			}
		}
		if n < 2 && !errors.Is(err, store.ErrDamaged) {
			t.Errorf("step %d: %v", n, err)
		}
	}
}

// TestUnmarked: a store that has lost the mark of a store is damaged, and no file of another program, which nobody could repair.
func TestUnmarked(t *testing.T) {
	path := closed(t)
	harm(t, path, func(b []byte) []byte { b[68] ^= 1; return b })
	if _, err := store.Open(t.Context(), "sqlite:"+path, store.Options{}); !errors.Is(err, store.ErrDamaged) {
		t.Fatal(err)
	}
	if done, err := store.Repair(t.Context(), "sqlite:"+path, store.Options{}, store.Repairing{}); err != nil || done.Whole != damagedKeys {
		t.Errorf("%+v, %v", done, err)
	}
}
