//go:build linux

package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
)

// Options open the tasks of one driver.
type Options struct {
	Driver string
	Dir    string
	Conmon string // path of the program
	Log    *slog.Logger
}

// Tasks is the set of tasks of one driver. It is safe for concurrent use.
type Tasks struct {
	opts Options
	boot string
	tree *cgroup.Tree
	keep *keeper

	mu    sync.Mutex // protects the rest
	tasks map[runtime.TaskID]*Task
	of    map[skerry.InstanceID][]*Task // the same, by instance
}

// Record is what is kept of a task on disk.
type Record struct {
	Handle     runtime.Handle `json:"handle"`
	Boot       string         `json:"boot"`
	Runtime    string         `json:"runtime,omitempty"` // the program conmon calls
	Cgroup     string         `json:"cgroup,omitempty"`
	StopSignal int            `json:"stopSignal,omitempty"`
	Supervisor Process        `json:"supervisor"`
	Init       Process        `json:"init"`
	// Spare says that supervisor and program were there before the task.
	Spare bool `json:"spare,omitempty"`
	// Ready is set when Start has succeeded. Without it, the agent died on the way.
	Ready bool `json:"ready"`
	// Extra is the driver's own.
	Extra json.RawMessage `json:"extra,omitempty"`
}

// Task is one task. Its Record is changed only by who holds Lock.
type Task struct {
	set *Tasks
	dir string
	// busy holds one token while Start, Remove or an adoption works on the task.
	busy chan struct{}

	mu    sync.Mutex // protects the rest
	rec   Record
	meter *cgroup.Meter // of its group; nil: nobody asked yet
}

// Open reads the state directory, making it when needed, and adopts the tasks found there.
func Open(opt Options) (*Tasks, error) {
	if !filepath.IsAbs(opt.Dir) {
		return nil, fmt.Errorf("state directory %q of runtime %s must be an absolute path", opt.Dir, opt.Driver)
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	for _, d := range []string{"tasks", "exits"} {
		if err := os.MkdirAll(filepath.Join(opt.Dir, d), 0o711); err != nil {
			return nil, fmt.Errorf("runtime %s: %w", opt.Driver, err)
		}
	}
	tree, err := cgroup.Open()
	if err != nil {
		return nil, fmt.Errorf("runtime %s: %w", opt.Driver, err)
	}
	keep := newKeeper(opt.Log)
	s := &Tasks{opts: opt, boot: strings.TrimSpace(readString("/proc/sys/kernel/random/boot_id")), tree: tree, keep: keep,
		tasks: map[runtime.TaskID]*Task{}, of: map[skerry.InstanceID][]*Task{}}
	s.clearSpares()
	entries, err := os.ReadDir(filepath.Join(opt.Dir, "tasks"))
	if err != nil {
		keep.close()
		return nil, err
	}
	for _, e := range entries {
		id := runtime.TaskID(e.Name())
		if id.Check() != nil || !e.IsDir() {
			continue
		}
		t := s.newTask(id)
		// A record cut short by a power failure leaves its ID, which is enough to clean up.
		_ = json.Unmarshal([]byte(readString(t.Path("task.json"))), &t.rec)
		t.rec.Handle.ID, t.rec.Handle.Driver = id, opt.Driver
		s.addLocked(t)
		if t.rec.Ready {
			keep.add(t.Path("log"))
		}
	}
	return s, nil
}

// Close stops watching. Tasks run on.
func (s *Tasks) Close() error {
	s.mu.Lock()
	tasks := slices.Collect(maps.Values(s.tasks))
	s.mu.Unlock()
	for _, t := range tasks {
		t.rest()
	}
	return s.keep.close()
}

// Tree is the machine's cgroup hierarchies.
func (s *Tasks) Tree() *cgroup.Tree { return s.tree }

func (s *Tasks) newTask(id runtime.TaskID) *Task {
	return &Task{set: s, dir: filepath.Join(s.opts.Dir, "tasks", string(id)), busy: make(chan struct{}, 1)}
}

// Create makes the directory and the first record of a task, and returns it locked.
func (s *Tasks) Create(rec Record) (*Task, error) {
	id := rec.Handle.ID
	t := s.newTask(id)
	t.busy <- struct{}{}
	rec.Boot, rec.Handle.Driver = s.boot, s.opts.Driver
	t.rec = rec
	s.mu.Lock()
	if s.tasks[id] != nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("task %s: %w", id, runtime.ErrExists)
	}
	s.addLocked(t)
	s.mu.Unlock()
	// An exit status that a power failure kept longer than its task.
	_ = os.Remove(t.ExitFile())
	err := os.Mkdir(t.dir, 0o711)
	if err == nil {
		err = os.Mkdir(t.Path("log"), 0o700)
	}
	if err == nil {
		err = t.Save()
	}
	if err != nil {
		s.forget(t)
		t.Unlock()
		if errors.Is(err, unix.ENOSPC) {
			return nil, &runtime.StartError{Hint: "free space below " + s.opts.Dir, Err: err}
		}
		return nil, fmt.Errorf("task %s: %w", id, err)
	}
	return t, nil
}

// Get finds a task or gives runtime.ErrNotFound.
func (s *Tasks) Get(h runtime.Handle) (*Task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tasks[h.ID]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("task %s: %w", h.ID, runtime.ErrNotFound)
}

// addLocked takes up a task, whose instance never changes after that.
func (s *Tasks) addLocked(t *Task) {
	of := t.rec.Handle.Instance
	s.tasks[t.rec.Handle.ID], s.of[of] = t, append(s.of[of], t)
}

// List gives all handles in order.
func (s *Tasks) List() []runtime.Handle {
	s.mu.Lock()
	tasks := slices.Collect(maps.Values(s.tasks))
	s.mu.Unlock()
	return handles(tasks)
}

// ListOf gives those of an instance.
func (s *Tasks) ListOf(instance skerry.InstanceID) []runtime.Handle {
	s.mu.Lock()
	tasks := slices.Clone(s.of[instance])
	s.mu.Unlock()
	return handles(tasks)
}

func handles(tasks []*Task) []runtime.Handle {
	var hs []runtime.Handle
	for _, t := range tasks {
		hs = append(hs, t.Record().Handle)
	}
	slices.SortFunc(hs, func(a, b runtime.Handle) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return hs
}

func (s *Tasks) forget(t *Task) {
	_ = t.RemoveTree("")
	h := t.Record().Handle
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks[h.ID] != t {
		return
	}
	delete(s.tasks, h.ID)
	if left := slices.DeleteFunc(s.of[h.Instance], func(other *Task) bool { return other == t }); len(left) > 0 {
		s.of[h.Instance] = left
	} else {
		delete(s.of, h.Instance)
	}
}

// Lock waits until nobody else works on the task.
func (t *Task) Lock(ctx context.Context) error {
	select {
	case t.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unlock lets others work on the task.
func (t *Task) Unlock() { <-t.busy }

// Path is a path in the task's directory, which is also the bundle.
func (t *Task) Path(elem ...string) string {
	return filepath.Join(append([]string{t.dir}, elem...)...)
}

// Record is a copy of what is known.
func (t *Task) Record() Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rec
}

// Update changes the record in memory.
func (t *Task) Update(change func(*Record)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.rec)
}

// Save writes the record. It is not synced: after a power failure no task is left to describe.
func (t *Task) Save() error {
	data, err := json.Marshal(t.Record())
	if err != nil {
		return err
	}
	return files.Swap(t.Path("task.json"), data, 0o600)
}

// Group is the task's cgroup.
func (t *Task) Group() cgroup.Group { return t.set.tree.Group(t.Record().Cgroup) }

// Stats reads what the task's group used.
func (t *Task) Stats(now time.Time) (runtime.Stats, error) {
	g := t.Group()
	t.mu.Lock()
	if t.meter != nil && !t.meter.Of(g) {
		t.meter.Close()
		t.meter = nil
	}
	if t.meter == nil {
		t.meter = g.Meter()
	}
	m := t.meter
	t.mu.Unlock()
	return m.Stats(now)
}

// rest closes the files that Stats keeps.
func (t *Task) rest() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.meter != nil {
		t.meter.Rest()
	}
}

// Discard forgets the task and deletes its files. Processes, cgroups and mounts must be gone: where something is still mounted that is left
// alone, with an error.
func (t *Task) Discard() error {
	t.set.keep.remove(t.Path("log"))
	// The record goes last, so that a crash on the way leaves a task that is listed.
	entries, err := os.ReadDir(t.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.Name() != "task.json" {
			if err := t.RemoveTree(e.Name()); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(t.ExitFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	t.set.forget(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.meter == nil {
		t.meter = t.set.tree.Group(t.rec.Cgroup).Meter()
	}
	t.meter.Close() // also for whoever asks just now
	return nil
}

// RemoveTree removes a file or a directory of the task's, but nothing that is mounted there.
func (t *Task) RemoveTree(name string) error {
	return files.RemoveTree(t.Path(name), func(at string) error {
		return fmt.Errorf("task %s: something is still mounted at %s", t.Record().Handle.ID, at)
	})
}
