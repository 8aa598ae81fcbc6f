//go:build linux

package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"

	"skerry.dev/skerry/store"
)

func fillSome(t testing.TB, s store.Store) {
	t.Helper()
	for i := range 300 {
		if _, err := s.Commit(context.Background(), []store.Op{{Key: fmt.Sprintf("k/%d", i), Value: bytes.Repeat([]byte{byte(i)}, i*7)}}); err != nil {
			t.Fatal(err)
		}
	}
}

func dumpLoad(t *testing.T, from, to store.Store) {
	t.Helper()
	ctx := context.Background()
	fillSome(t, from)
	var buf bytes.Buffer
	if err := store.Dump(ctx, from, &buf); err != nil {
		t.Fatal(err)
	}
	alter := func(r *store.Record) (bool, error) {
		if r.Key == "k/7" {
			r.Value = []byte("altered")
		}
		return r.Key != "k/8", nil
	}
	if err := store.Load(ctx, to, io.MultiReader(&buf), alter); err != nil {
		t.Fatal(err)
	}
	a, _, _ := from.List(ctx, "")
	b, _, _ := to.List(ctx, "")
	if len(a) != 300 || len(b) != 299 {
		t.Fatalf("%d records became %d", len(a), len(b))
	}
	i := 0
	for _, r := range a {
		switch {
		case r.Key == "k/8":
			continue
		case r.Key == "k/7":
			r.Value = []byte("altered")
		}
		if b[i].Key != r.Key || !bytes.Equal(b[i].Value, r.Value) {
			t.Errorf("%s became %s", r.Key, b[i].Key)
		}
		i++
	}
	if err := store.Load(ctx, to, bytes.NewReader(nil), nil); !errors.Is(err, store.ErrBadDump) {
		t.Errorf("an empty file: %v", err)
	}
	buf.Reset()
	if err := store.Dump(ctx, from, &buf); err != nil {
		t.Fatal(err)
	}
	if err := store.Load(ctx, to, &buf, nil); !errors.Is(err, store.ErrNotEmpty) {
		t.Errorf("a second restore: %v", err)
	}
}

func TestDumpLoad(t *testing.T) {
	for _, c := range []struct{ from, to string }{{"sqlite", "sqlite"}, {"memory", "sqlite"}, {"sqlite", "memory"}} {
		t.Run(c.from+" to "+c.to, func(t *testing.T) {
			open := func(kind string) store.Store {
				url := "memory:"
				if kind == "sqlite" {
					url = "sqlite:" + filepath.Join(t.TempDir(), "a.db")
				}
				s := mustOpen(t, url)
				t.Cleanup(func() { s.Close() })
				return s
			}
			from, to := open(c.from), open(c.to)
			dumpLoad(t, from, to)
			if _, err := to.Commit(context.Background(), []store.Op{{Key: "after", Value: []byte("v")}}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDumpIsOneMoment dumps while pairs of records change together.
func TestDumpIsOneMoment(t *testing.T) {
	ctx := context.Background()
	s := mustOpen(t, "sqlite:"+filepath.Join(t.TempDir(), "a.db"))
	defer s.Close()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	write := func(i int) {
		v := []byte(fmt.Sprint(i))
		var ops []store.Op
		for j := range 50 {
			ops = append(ops, store.Op{Key: fmt.Sprintf("p/%d", j), Value: v})
		}
		if _, err := s.Commit(ctx, ops); err != nil {
			t.Error(err)
		}
	}
	write(0)
	wg.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
				write(i)
			}
		}
	})
	for range 10 {
		var buf bytes.Buffer
		if err := store.Dump(ctx, s, &buf); err != nil {
			t.Fatal(err)
		}
		m := mustOpen(t, "memory:")
		if err := store.Load(ctx, m, &buf, nil); err != nil {
			t.Fatal(err)
		}
		rs, _, _ := m.List(ctx, "")
		for _, r := range rs {
			if !bytes.Equal(r.Value, rs[0].Value) {
				t.Fatalf("a dump of two moments: %s and %s", r.Value, rs[0].Value)
			}
		}
		m.Close()
	}
	close(stop)
	wg.Wait()
}

func TestLoadRefusesDamage(t *testing.T) {
	ctx := context.Background()
	src := mustOpen(t, "memory:")
	defer src.Close()
	for i := range 20 {
		if _, err := src.Commit(ctx, []store.Op{{Key: fmt.Sprintf("k/%d", i), Value: []byte("value")}}); err != nil {
			t.Fatal(err)
		}
	}
	var buf bytes.Buffer
	if err := store.Dump(ctx, src, &buf); err != nil {
		t.Fatal(err)
	}
	whole := buf.Bytes()
	dst := mustOpen(t, "sqlite:"+filepath.Join(t.TempDir(), "a.db"))
	defer dst.Close()
	try := func(what string, b []byte) {
		t.Helper()
		err := store.Load(ctx, dst, bytes.NewReader(b), nil)
		if err == nil {
			t.Fatalf("%s: loaded", what)
		}
		if !errors.Is(err, store.ErrBadDump) && !strings.Contains(err.Error(), "newer program") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for n := range whole {
		try(fmt.Sprintf("cut at %d", n), whole[:n])
		b := bytes.Clone(whole)
		b[n] ^= 0x10
		try(fmt.Sprintf("byte %d changed", n), b)
	}
	try("longer", append(bytes.Clone(whole), 0))
	refuse := errors.New("refuse")
	n := 0
	err := store.Load(ctx, dst, bytes.NewReader(whole), func(*store.Record) (bool, error) {
		if n++; n == 15 {
			return false, refuse
		}
		return true, nil
	})
	if !errors.Is(err, refuse) {
		t.Error(err)
	}
	if rs, rev, err := dst.List(ctx, ""); err != nil || len(rs) != 0 || rev != 0 {
		t.Errorf("%d records were half-loaded (%v)", len(rs), err)
	}
}

func TestBackupRestore(t *testing.T) {
	ctx := context.Background()
	src := mustOpen(t, "sqlite:"+filepath.Join(t.TempDir(), "a.db"))
	defer src.Close()
	fillSome(t, src)
	if err := store.Backup(ctx, src, io.Discard, nil); err == nil {
		t.Error("a backup without a recipient was written")
	}
	if _, err := store.PassphraseRecipient("short"); err == nil {
		t.Error("a short passphrase was taken")
	}
	pass, err := store.PassphraseRecipient("correct horse battery")
	if err != nil {
		t.Fatal(err)
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	passID, err := store.PassphraseIdentity("correct horse battery")
	if err != nil {
		t.Fatal(err)
	}
	wrongID, err := store.PassphraseIdentity("wrong horse battery")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		to   age.Recipient
		id   age.Identity
	}{{"passphrase", pass, passID}, {"key", key.Recipient(), key}} {
		t.Run(c.name, func(t *testing.T) {
			var buf bytes.Buffer
			if err := store.Backup(ctx, src, &buf, nil, c.to); err != nil {
				t.Fatal(err)
			}
			whole := buf.Bytes()
			if bytes.Contains(whole, bytes.Repeat([]byte{9}, 20)) {
				t.Error("the backup is readable")
			}
			dst := mustOpen(t, "memory:")
			defer dst.Close()
			for _, n := range []int{0, 20, len(whole) / 2, len(whole) - 1} {
				if err := store.Restore(ctx, dst, bytes.NewReader(whole[:n]), nil, c.id); !errors.Is(err, store.ErrBadDump) {
					t.Errorf("cut at %d: %v", n, err)
				}
			}
			altered := bytes.Clone(whole)
			altered[len(altered)/2] ^= 1
			if err := store.Restore(ctx, dst, bytes.NewReader(altered), nil, c.id); !errors.Is(err, store.ErrBadDump) {
				t.Errorf("altered: %v", err)
			}
			if err := store.Restore(ctx, dst, bytes.NewReader(whole), nil, wrongID); err == nil || !strings.Contains(err.Error(), "does not open") {
				t.Errorf("wrong key: %v", err)
			}
			if rs, _, _ := dst.List(ctx, ""); len(rs) != 0 {
				t.Errorf("%d records half-loaded", len(rs))
			}
			if err := store.Restore(ctx, dst, io.MultiReader(bytes.NewReader(whole)), nil, c.id); err != nil {
				t.Fatal(err)
			}
			if rs, _, _ := dst.List(ctx, ""); len(rs) != 300 {
				t.Errorf("%d records restored", len(rs))
			}
		})
	}
}

func FuzzLoad(f *testing.F) {
	ctx := context.Background()
	s, err := store.Open(ctx, "memory:", store.Options{})
	if err != nil {
		f.Fatal(err)
	}
	for _, ops := range [][]store.Op{nil, {{Key: "a", Value: []byte("1")}}, {{Key: "b/c", Value: make([]byte, 300)}}} {
		if _, err := s.Commit(ctx, ops); err != nil {
			f.Fatal(err)
		}
		var buf bytes.Buffer
		if err := store.Dump(ctx, s, &buf); err != nil {
			f.Fatal(err)
		}
		f.Add(buf.Bytes())
		f.Add(buf.Bytes()[:buf.Len()-32])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := store.Open(ctx, "memory:", store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		err = store.Load(ctx, s, bytes.NewReader(b), nil)
		rs, rev, _ := s.List(ctx, "")
		if err != nil {
			if len(rs) > 0 || rev > 0 {
				t.Fatalf("%d records after %v", len(rs), err)
			}
			return
		}
		// What loads is what a dump of it says, but for the revision in the header.
		var again bytes.Buffer
		if err := store.Dump(ctx, s, &again); err != nil {
			t.Fatal(err)
		}
		m, _ := store.Open(ctx, "memory:", store.Options{})
		if err := store.Load(ctx, m, &again, nil); err != nil {
			t.Fatal(err)
		}
		if rs2, _, _ := m.List(ctx, ""); len(rs2) != len(rs) {
			t.Fatalf("%d records became %d", len(rs), len(rs2))
		}
	})
}
