//go:build linux

// Package nfsmount keeps exports of NFS servers mounted: each once, however many instances have it, and for as long as a record of one of
// them names it. The records are files in the directories of instances, so that the count survives the agent, and ends with what it
// counts.
//
//	        Mount: the record is written               Sweep: no record names it
//	none ──────────────────────────────► mounted ─────────────────────────────► none
//	  ▲   a refusal, or no answer in time    │
//	  └──────────────────────────────────────┘ a boot: the next Mount mounts it again
//
// Whatever may wait for a server is done by another process, which is killed when its time is over: a thread of the agent's would hang for
// as long as the server does. What is mounted is read from the kernel's list, which asks nobody. It reads and writes no export.
package nfsmount

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/spec"
)

// System is what this package asks of a machine. Each method but Mounts returns when its time is over, whatever the server does.
type System interface {
	// Mounts gives the kernel's list, as proc(5) has it in mountinfo.
	Mounts() (string, error)
	Mount(ctx context.Context, v *spec.NFSVolume, at string) error
	// Ask has the server tell of what is mounted at a place.
	Ask(ctx context.Context, v *spec.NFSVolume, at string) error
	// Unmount takes a mount out of the tree at once. What it still has to write it writes later, if it can.
	Unmount(ctx context.Context, at string) error
}

// Table is what a worker has mounted.
type Table struct {
	dir, records string
	system       System

	mu   sync.Mutex
	busy map[string]*turns // by key: somebody mounts or unmounts it
	asks map[string]*turns // by server: threads wait for it
}

// turns are those of who wants to do the same at a time. They are there as long as somebody does.
type turns struct {
	taken chan struct{}
	users int
}

// asksAtOnce is how many threads of the agent's may wait for a server: one that hangs keeps them, however often it is tried.
const asksAtOnce = 8

// New makes the table of a directory. records is a glob of the files that name what is in use; each is a record of Mount's.
func New(dir, records string, system System) *Table {
	return &Table{dir: dir, records: records, system: system, busy: map[string]*turns{}, asks: map[string]*turns{}}
}

// Key names an export in records and in the directory: another for each server, path, and way of mounting it.
func Key(v *spec.NFSVolume) string {
	options := slices.Sorted(slices.Values(v.Options))
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %t", strings.ToLower(v.Server), v.Path, v.Version, options, v.ReadOnly))
	return hex.EncodeToString(sum[:10])
}

// At is where an export is mounted below the directory of a table.
func At(dir string, v *spec.NFSVolume) string { return filepath.Join(dir, Key(v)) }

// Mount writes a record, has the export mounted that it names, and returns when the server has answered. It is idempotent. A record of an
// export that could not be mounted stays, for the next try.
func (t *Table) Mount(ctx context.Context, volume *spec.NFSVolume, record string) error {
	key, at := Key(volume), At(t.dir, volume)
	release, err := t.hold(ctx, key)
	if err != nil {
		return err
	}
	defer release()
	if err := os.MkdirAll(filepath.Dir(record), 0o755); err != nil {
		return err
	}
	if err := files.Replace(record, []byte(key), 0o600); err != nil {
		return err
	}
	is, err := t.mounted(at)
	if err != nil {
		return err
	}
	if is && t.elsewhere(volume, at) != nil { // an earlier agent ended before it looked, or somebody renamed it
		if err := t.unmount(ctx, at); err != nil {
			return err
		}
		is = false
	}
	if !is {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := t.system.Mount(ctx, volume, at); err != nil {
			return err
		}
	}
	if err := t.elsewhere(volume, at); err != nil {
		return errors.Join(err, t.unmount(ctx, at))
	}
	return t.system.Ask(ctx, volume, at)
}

// Elsewhere says that a server has something else at a path: a link of its own leads there, which the kernel has followed. Whoever may
// write to an export can make such links, also to what nobody allowed.
type Elsewhere struct{ Source, Is string }

func (e *Elsewhere) Error() string {
	return fmt.Sprintf("%s is, or goes through, a symbolic link of the server's to %s: name that path, if it is allowed", e.Source, e.Is)
}

// elsewhere returns an error unless what is mounted at a place is what a volume names. Of version 3 only the server knows that.
func (t *Table) elsewhere(volume *spec.NFSVolume, at string) error {
	list, err := t.system.Mounts()
	if err != nil {
		return err
	}
	at, err = written(at)
	if err != nil {
		return err
	}
	source, _ := mountedAt(list, at)
	if is, want := source, volume.Source(); !sameSource(is, want) {
		return &Elsewhere{want, is}
	}
	return nil
}

// sameSource compares servers without regard to case, and paths with it.
func sameSource(a, b string) bool {
	cut := func(source string) (string, string) {
		at := strings.Index(source, ":/")
		return strings.ToLower(source[:max(at, 0)]), source[max(at, 0):]
	}
	server, path := cut(a)
	other, second := cut(b)
	return server == other && path == second
}

// Sweep unmounts what no record names.
func (t *Table) Sweep(ctx context.Context) error {
	entries, err := os.ReadDir(t.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, t.sweep(ctx, e.Name()))
	}
	return errors.Join(errs...)
}

func (t *Table) sweep(ctx context.Context, key string) error {
	release, err := t.hold(ctx, key)
	if err != nil {
		return err
	}
	defer release()
	if used, err := t.used(key); used || err != nil {
		return err
	}
	return t.unmount(ctx, filepath.Join(t.dir, key))
}

// Clean unmounts everything, for a worker that leaves.
func (t *Table) Clean(ctx context.Context) error {
	entries, err := os.ReadDir(t.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		errs = append(errs, t.unmount(ctx, filepath.Join(t.dir, e.Name())))
	}
	return errors.Join(errs...)
}

// unmount removes the directory only when nothing is mounted there: it is never the server's that is removed.
func (t *Table) unmount(ctx context.Context, at string) error {
	for {
		is, err := t.mounted(at)
		if err != nil {
			return err
		}
		if !is {
			break
		}
		if err := t.system.Unmount(ctx, at); err != nil {
			return err
		}
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// used reports whether a record names a key.
func (t *Table) used(key string) (bool, error) {
	list, err := matching(t.records)
	if err != nil {
		return false, err
	}
	for _, file := range list {
		data, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if string(data) == key {
			return true, nil
		}
	}
	return false, nil
}

// matching is filepath.Glob for whole elements *, and tells of what cannot be read: that may name something.
func matching(pattern string) (paths []string, err error) {
	parts := strings.Split(pattern, "/*/")
	parts = append(parts[:len(parts)-1], strings.TrimSuffix(parts[len(parts)-1], "/*"))
	paths = []string{parts[0]}
	for at := range parts {
		var next []string
		for _, dir := range paths {
			entries, err := os.ReadDir(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
				return nil, err
			}
			for _, e := range entries {
				next = append(next, filepath.Join(append([]string{dir, e.Name()}, parts[at+1:min(at+2, len(parts))]...)...))
			}
		}
		paths = next
	}
	return paths, nil
}

func (t *Table) mounted(at string) (bool, error) {
	list, err := t.system.Mounts()
	if err != nil {
		return false, err
	}
	at, err = written(at)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return isMounted(list, at), err
}

// written gives a path as the kernel writes it; the last part may be the server's.
func written(at string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(at))
	return filepath.Join(dir, filepath.Base(at)), err
}

// isMounted looks for a mount point in the kernel's list.
func isMounted(mountinfo, at string) bool {
	_, is := mountedAt(mountinfo, at)
	return is
}

// mountedAt gives the source of what was mounted last at a mount point.
func mountedAt(mountinfo, at string) (source string, is bool) {
	written := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(at)
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) <= 4 || fields[4] != written {
			continue
		}
		source, is = "", true
		if dash := slices.Index(fields[5:], "-"); dash >= 0 && len(fields) > 5+dash+2 { // after optional fields: type, source
			source = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\043`, "#", `\134`, `\`).Replace(fields[5+dash+2])
		}
	}
	return source, is
}

// hold keeps others from mounting or unmounting an export.
func (t *Table) hold(ctx context.Context, key string) (release func(), err error) {
	return t.take(ctx, t.busy, key, 1)
}

// Asking waits until a thread may ask a server what can hang. release is to be called when it has the answer.
func (t *Table) Asking(ctx context.Context, server string) (release func(), err error) {
	return t.take(ctx, t.asks, strings.ToLower(server), asksAtOnce)
}

// take has at most so many at once have the same key.
func (t *Table) take(ctx context.Context, of map[string]*turns, key string, most int) (release func(), err error) {
	t.mu.Lock()
	one := of[key]
	if one == nil {
		one = &turns{taken: make(chan struct{}, most)}
		of[key] = one
	}
	one.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(of, key)
		}
	}
	select {
	case one.taken <- struct{}{}:
		return func() { <-one.taken; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
