//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/worker/core"
)

// books is a driver that counts what it is asked about its tasks.
type books struct {
	runtime.Driver
	tasks                  map[skerry.InstanceID][]runtime.Handle
	lists, listed, removed int
}

func (b *books) Name() string { return "native" }

func (b *books) List(context.Context) (all []runtime.Handle, _ error) {
	for _, list := range b.tasks {
		all = append(all, list...)
	}
	b.lists, b.listed = b.lists+1, b.listed+len(all)
	return all, nil
}

func (b *books) ListOf(_ context.Context, instance skerry.InstanceID) ([]runtime.Handle, error) {
	b.lists, b.listed = b.lists+1, b.listed+len(b.tasks[instance])
	return slices.Clone(b.tasks[instance]), nil
}

func (b *books) Remove(_ context.Context, handle runtime.Handle) error {
	b.removed++
	of := b.tasks[handle.Instance]
	b.tasks[handle.Instance] = slices.DeleteFunc(of, func(h runtime.Handle) bool { return h.ID == handle.ID })
	return nil
}

// Whoever deletes a hundred instances looks at each task once, not at all that are still there for each of them. A task of which the
// worker's record knows nothing goes too.
func TestCleanUpLooksAtItsOwnTasks(t *testing.T) {
	const instances = 100
	b := &books{tasks: map[skerry.InstanceID][]runtime.Handle{}}
	s, err := NewServer(ServerOptions{Name: "w1", Dir: t.TempDir(), RunDir: t.TempDir(), Drivers: []runtime.Driver{b}})
	if err != nil {
		t.Fatal(err)
	}
	id := func(n int) skerry.InstanceID { return skerry.InstanceID(fmt.Sprintf("web-%d", n)) }
	for n := range instances {
		for attempt := range 2 {
			b.tasks[id(n)] = append(b.tasks[id(n)], runtime.Handle{ID: runtime.TaskID(fmt.Sprintf("%s.main.%d", id(n), attempt+1)),
				Driver: b.Name(), Instance: id(n)})
		}
	}
	for n := range instances {
		last := b.tasks[id(n)][1]
		if err := s.cleanup(t.Context(), core.Cleanup{ID: id(n), Handles: []json.RawMessage{encode(last)}}); err != nil {
			t.Fatal(err)
		}
		if left := b.tasks[id(n)]; len(left) > 0 {
			t.Errorf("%s left %v", id(n), left)
		}
	}
	if b.lists != instances || b.listed != instances || b.removed != 2*instances {
		t.Errorf("%d lists with %d tasks, %d removed; want %d, %[4]d and %d", b.lists, b.listed, b.removed, instances, 2*instances)
	}
}

// TestUnknownFilesGo: what was prepared for an instance that was not written down is removed at the next start, and what records
// name stays; also all while records may be lost.
func TestUnknownFilesGo(t *testing.T) {
	for _, repaired := range []string{"", "records are lost"} {
		dir := t.TempDir()
		disk, err := store.Open(t.Context(), "memory:", store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer disk.Close()
		record := `{"assignment":{"id":"known"},"state":"WorkerScheduled","phase":"Fetching","containers":{}}`
		if _, err := disk.Commit(t.Context(), []store.Op{{Key: "inst/known", Value: []byte(record)}}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"known", "unknown"} {
			if err := os.MkdirAll(filepath.Join(dir, "instances", id, "run"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		s, err := NewServer(ServerOptions{Name: "w1", Dir: dir, RunDir: t.TempDir(), Store: disk, Repaired: repaired,
			Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		entries, _ := os.ReadDir(filepath.Join(dir, "instances"))
		var left []string
		for _, e := range entries {
			left = append(left, e.Name())
		}
		want := []string{"known"}
		if repaired != "" {
			want = []string{"known", "unknown"}
		}
		if !slices.Equal(left, want) {
			t.Errorf("repaired %q: left are the files of %q, want %q", repaired, left, want)
		}
	}
}
