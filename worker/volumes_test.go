//go:build linux

package worker

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
)

// A boot leaves volumes unmounted, and the containers that ran before it are started again: they have what they had, and never the empty directory
// below, in which they would begin anew.
func TestVolumesAfterABoot(t *testing.T) {
	dir := t.TempDir()
	s := &Server{places: places{dir}, opt: ServerOptions{Dir: dir}, users: newUserRanges(dir, UserPool{}, "")}
	t.Cleanup(func() {
		if err := UnmountVolumes(dir); err != nil {
			t.Error(err)
		}
	})
	a := &spec.Assignment{ID: "db-r1", Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "db"}, Spec: spec.ServiceSpec{Volumes: []spec.Volume{
		{Name: "sized", Local: &spec.LocalVolume{Size: 8 * skerry.MiB}},
		{Name: "plain", Local: &spec.LocalVolume{}},
		{Name: "scratch", Empty: &spec.EmptyVolume{Size: 4 * skerry.MiB}},
		{Name: "memory", Empty: &spec.EmptyVolume{Memory: true, Size: 4 * skerry.MiB}},
	}}}
	main := &spec.Container{}
	for n := range a.Spec.Volumes {
		v := &a.Spec.Volumes[n]
		main.Mounts = append(main.Mounts, spec.Mount{Volume: v.Name, Path: "/" + v.Name})
		if err := s.makeVolume(t.Context(), s.opt.NFS.table, a, v); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.volumeSource(a, v), "note"), []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := UnmountVolumes(dir); err != nil {
		t.Fatal(err)
	}
	list, err := s.mounts(t.Context(), a, main, spec.RuntimeNative)
	if err != nil || len(list) != len(main.Mounts) {
		t.Fatalf("%d mounts, %v", len(list), err)
	}
	for n, m := range list {
		name := a.Spec.Volumes[n].Name
		text, err := os.ReadFile(filepath.Join(m.Source, "note"))
		if memory := name == "memory"; memory != os.IsNotExist(err) || !memory && string(text) != "kept" {
			t.Errorf("volume %s has %q, %v", name, text, err)
		}
		if own, err := isMountPoint(m.Source); err != nil || own != (name != "plain") {
			t.Errorf("volume %s is a file system of its own: %v, %v", name, own, err)
		}
	}
}

// One volume that a replica no longer has goes alone, and nothing above it.
func TestOneVolumeGoes(t *testing.T) {
	dir := t.TempDir()
	s := &Server{places: places{dir}, opt: ServerOptions{Dir: dir}, users: newUserRanges(dir, UserPool{}, "")}
	a := &spec.Assignment{ID: "db-r1", Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "db"}}
	for _, name := range []string{"data", "base"} {
		if err := s.makeVolume(t.Context(), s.opt.NFS.table, a, &spec.Volume{Name: name, Local: &spec.LocalVolume{}}); err != nil {
			t.Fatal(err)
		}
	}
	one := claimOf(a)
	one.Volume = "data"
	for range 2 { // the second time there is none
		if _, err := s.setAside(one); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := volumesIn(s.claimDir(claimOf(a))); err != nil || len(list) != 1 || list[0] != "base" {
		t.Errorf("left: %q, %v", list, err)
	}
}

// Volumes whose files could not be removed are not removed, and neither are they when it is tried again: by then they have another place.
func TestVolumesThatStayAreNotRemoved(t *testing.T) {
	s := withSnapshots(t, t.TempDir(), nil, nil)
	a := &spec.Assignment{ID: "db-r1", Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "db"}}
	other := &spec.Assignment{ID: "db-r2", Service: a.Service, Ordinal: 1}
	v := &spec.Volume{Name: "data", Local: &spec.LocalVolume{}}
	for _, of := range []*spec.Assignment{a, other} {
		if err := s.makeVolume(t.Context(), s.opt.NFS.table, of, v); err != nil {
			t.Fatal(err)
		}
	}
	free := undeletable(t, filepath.Join(s.volumeSource(a, v), "note"))
	for n := range 2 {
		left, err := s.setAside(claimOf(a))
		if m := volumesRemoved(claimOf(a), left, err); m.Err == "" {
			t.Errorf("attempt %d: a file is left, and the volumes are said to be removed", n+1)
		}
	}
	left, err := s.setAside(claimOf(other))
	if m := volumesRemoved(claimOf(other), left, err); m.Err != "" {
		t.Errorf("another replica's volumes: %s, want that they are removed", m.Err)
	}
	free()
	left, err = s.setAside(claimOf(a))
	if m := volumesRemoved(claimOf(a), left, err); m.Err != "" {
		t.Errorf("nothing holds them any more: %s, want that they are removed", m.Err)
	}
	if left, err := os.ReadDir(filepath.Join(s.opt.Dir, localDir)); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v; want nothing", left, err)
	}
}

// A snapshot of which files are left is not removed when it is tried again.
func TestSnapshotThatStaysIsNotRemoved(t *testing.T) {
	s := withSnapshots(t, t.TempDir(), nil, nil)
	dir := s.opt.snapshotDir("one")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	free := undeletable(t, filepath.Join(dir, "data"))
	for n := range 2 {
		if m := snapshotRemoved(s, "one"); m.Err == "" {
			t.Errorf("attempt %d: a file is left, and the snapshot is said to be removed", n+1)
		}
	}
	free()
	if m := snapshotRemoved(s, "one"); m.Err != "" {
		t.Errorf("nothing holds it any more: %s, want that it is removed", m.Err)
	}
}

// undeletable makes a file that nobody can remove, wherever it is moved, until free is called.
func undeletable(t *testing.T, path string) (free func()) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	const immutable = 0x10 // FS_IMMUTABLE_FL
	set := func(flags int) error { return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags) }
	if err := set(immutable); err != nil {
		t.Skip(&testenv.Unsupported{What: "files that cannot be removed", Why: err.Error()})
	}
	free = func() { _ = set(0) }
	t.Cleanup(free)
	return free
}
