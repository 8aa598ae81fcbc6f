//go:build linux

package upgrade

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skerry.dev/skerry/store"
)

// put changes what the worker's store holds.
func (w *world) put(value string) {
	w.Helper()
	st, err := store.Open(w.Context(), "sqlite:"+filepath.Join(w.data, "state.db"), store.Options{})
	if err != nil {
		w.Fatal(err)
	}
	_, err = st.Commit(w.Context(), []store.Op{{Key: "k", Value: []byte(value)}})
	if err := errors.Join(err, st.Close()); err != nil {
		w.Fatal(err)
	}
}

// newer brings the store to a schema that this program cannot read.
func (w *world) newer() {
	w.Helper()
	db, err := sql.Open("sqlite", filepath.Join(w.data, "state.db"))
	if err == nil {
		_, err = db.Exec("PRAGMA user_version = 99")
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		w.Fatal(err)
	}
}

// fail ends a trial that does not pass.
func (w *world) fail(ctx context.Context) error {
	s := w.state()
	return w.supervisor().finish(ctx, &s, &Outcome{Program: s.Trial.Program, From: "v1", Why: "it ended"})
}

// TestOldCopy begins a trial after one whose copy of the store a power cut left behind.
func TestOldCopy(t *testing.T) {
	w := newWorld(t)
	if err := os.MkdirAll(w.dir.path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := w.dir.keepStore(); err != nil {
		t.Fatal(err)
	}
	w.put("after")
	w.begin("schema", time.Minute)
	if o := w.try(t.Context()); o.Passed {
		t.Error("passed")
	}
	w.holds("after")
}

// TestRestore puts the store back where something stands in the way.
func TestRestore(t *testing.T) {
	for name, harm := range map[string]func(*world) context.Context{
		"asked to end meanwhile": func(w *world) context.Context {
			w.newer()
			ctx, cancel := context.WithCancel(w.Context())
			cancel()
			return ctx
		},
		"damaged": func(w *world) context.Context {
			if err := os.WriteFile(filepath.Join(w.data, "state.db"), []byte("half of something, and no store at all"), 0o600); err != nil {
				w.Fatal(err)
			}
			return w.Context()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.begin("v2", time.Minute)
			if err := w.dir.keepStore(); err != nil {
				t.Fatal(err)
			}
			if err := w.fail(harm(w)); err != nil {
				t.Fatal(err)
			}
			w.holds("before")
		})
	}
}

// TestRestoreLater cannot put the store back at first: the copy stays, and the next start tries that alone again.
func TestRestoreLater(t *testing.T) {
	w := newWorld(t)
	w.begin("v2", time.Minute)
	if err := w.dir.keepStore(); err != nil {
		t.Fatal(err)
	}
	w.newer()
	wall := filepath.Join(w.data, "state.db-wal", "x")
	if err := os.MkdirAll(wall, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := w.fail(t.Context()); err == nil {
		t.Fatal("the store is put back over a folder")
	}
	if err := os.RemoveAll(filepath.Dir(wall)); err != nil {
		t.Fatal(err)
	}
	if o := w.try(t.Context()); o.Passed || o.Why != "it ended" {
		t.Errorf("passed %v, %q", o.Passed, o.Why)
	}
	if w.agent() != 0 {
		t.Error("the program was tried once more")
	}
	w.holds("before")
}

// TestUnsaved has no outcome noted: nothing goes that the old program is to go on with.
func TestUnsaved(t *testing.T) {
	w := newWorld(t)
	p := w.begin("v2", time.Minute)
	if err := w.dir.keepStore(); err != nil {
		t.Fatal(err)
	}
	w.newer()
	s := w.state()
	file := filepath.Join(w.dir.path, stateFile)
	if err := errors.Join(os.Remove(file), os.MkdirAll(filepath.Join(file, "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := w.supervisor().finish(t.Context(), &s, &Outcome{Program: p, From: "v1", Passed: true}); err == nil {
		t.Fatal("the outcome is noted in a folder")
	}
	w.holds("before")
	if _, err := os.Stat(w.dir.file(&p)); err != nil {
		t.Error(err)
	}
}

// TestParts sweeps what a power cut left of a program that was being staged, by this version or an earlier one.
func TestParts(t *testing.T) {
	w := newWorld(t)
	if err := os.MkdirAll(w.dir.path, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".new-1", ".new-skerry-0123456789abcdef", "..new-skerry-0123456789abcdef-1"} {
		if err := os.WriteFile(filepath.Join(w.dir.path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.begin("v2", time.Minute)
	if left, err := filepath.Glob(filepath.Join(w.dir.path, ".*")); err != nil || len(left) > 0 {
		t.Errorf("%v are still there, %v", left, err)
	}
}

// TestRestoreWhatWouldBeLost: a store that the old program can open, and of which it would lose something, gives way to the copy. One that
// it would keep stays, and so does one with which something else is wrong.
func TestRestoreWhatWouldBeLost(t *testing.T) {
	for _, c := range []struct {
		why  error
		want string
	}{{store.ErrNewer, "before"}, {nil, "after"}, {errors.New("something else"), "after"}} {
		w := newWorld(t)
		v := w.supervisor()
		v.Dir.Reads = func(context.Context, store.Store) error { return c.why }
		w.begin("v2", time.Minute)
		if err := w.dir.keepStore(); err != nil {
			t.Fatal(err)
		}
		w.put("after")
		s := w.state()
		if err := v.finish(t.Context(), &s, &Outcome{Program: s.Trial.Program, From: "v1", Why: "it ended"}); err != nil {
			t.Fatal(err)
		}
		w.holds(c.want)
	}
}

// TestDone has an instance that was ready end as it should during a trial.
func TestDone(t *testing.T) {
	s := Seen{Connected: true, Runtimes: []string{"oci"}, Ready: []string{"a"}, Instances: []string{"a", "b"}}
	if why := s.short(&want); why != "instance b is not ready" {
		t.Error(why)
	}
	s.Done = []string{"b"}
	if why := s.short(&want); why != "" {
		t.Error(why)
	}
}
