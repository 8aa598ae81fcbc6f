//go:build linux

package monitor

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// watches counts this process' inotify instances.
func watches(t *testing.T) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && to == "anon_inode:inotify" {
			n++
		}
	}
	return n
}

func told(t *testing.T, f <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-f:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: nobody was told", what)
	}
}

func drain(f <-chan struct{}) {
	for len(f) > 0 {
		<-f
	}
}

// More logs are followed than a user may have inotify instances, and the rotation of each is kept beside.
func TestManyLogsAreFollowed(t *testing.T) {
	before := watches(t)
	k := newKeeper(slog.New(slog.NewTextHandler(io.Discard, nil)))
	const many = 300
	dirs, changed := make([]string, many), make([]chan struct{}, many)
	write := func(n int, name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dirs[n], name), []byte("a line\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rotate := func(n int) {
		t.Helper()
		write(n, "log.tmp")
		if err := os.Rename(filepath.Join(dirs[n], "log.tmp"), filepath.Join(dirs[n], "log")); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(n int, what string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(filepath.Join(dirs[n], "old")); err == nil {
				break
			} else if time.Now().After(end) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if err := os.Remove(filepath.Join(dirs[n], "old")); err != nil {
			t.Fatal(err)
		}
	}
	for n := range many {
		dirs[n], changed[n] = filepath.Join(t.TempDir(), strconv.Itoa(n)), make(chan struct{}, 1)
		if err := os.Mkdir(dirs[n], 0o700); err != nil {
			t.Fatal(err)
		}
		write(n, "log")
		k.add(dirs[n])
		if err := k.follow(dirs[n], changed[n]); err != nil {
			t.Fatal(err)
		}
	}
	if got := watches(t) - before; got != 1 {
		t.Errorf("%d inotify instances for %d logs, want 1", got, many)
	}
	for n := range many {
		drain(changed[n])
		write(n, "log")
		told(t, changed[n], "a line")
		rotate(n)
		kept(n, "followed")
	}
	// Two follow one log; the other goes on when one stops, and the log is kept when both have.
	second := make(chan struct{}, 1)
	if err := k.follow(dirs[0], second); err != nil {
		t.Fatal(err)
	}
	k.unfollow(dirs[0], changed[0])
	drain(second)
	write(0, "log")
	told(t, second, "a line for the second")
	k.unfollow(dirs[0], second)
	rotate(0)
	kept(0, "followed no more")
	// The kernel lost events: each is looked at.
	drain(changed[1])
	k.take(event{wd: -1})
	told(t, changed[1], "lost events")
	// A directory that was made anew is another one.
	k.remove(dirs[2])
	if err := os.RemoveAll(dirs[2]); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dirs[2], 0o700); err != nil {
		t.Fatal(err)
	}
	again := make(chan struct{}, 1)
	if err := k.follow(dirs[2], again); err != nil {
		t.Fatal(err)
	}
	write(2, "log")
	told(t, again, "a line in a new directory")
	for n := range many {
		k.remove(dirs[n])
		k.unfollow(dirs[n], changed[n])
	}
	k.unfollow(dirs[2], again)
	if len(k.dirs) != 0 {
		t.Errorf("%d directories are still watched", len(k.dirs))
	}
	if err := k.close(); err != nil {
		t.Fatal(err)
	}
	if err := k.follow(dirs[3], changed[3]); err == nil {
		t.Error("followed after the end")
	}
	if got := watches(t) - before; got != 0 {
		t.Errorf("%d inotify instances in the end", got)
	}
}

// Who cannot follow a log is not remembered.
func TestNotFollowed(t *testing.T) {
	k := newKeeper(slog.New(slog.NewTextHandler(io.Discard, nil)))
	defer k.close()
	dir := t.TempDir()
	k.add(dir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := k.follow(dir, make(chan struct{}, 1)); err == nil {
		t.Error("a directory that is gone was followed")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.dirs {
		if len(d.followers) != 0 {
			t.Errorf("%d followers of %s are left", len(d.followers), d.path)
		}
	}
}
