//go:build linux

package worker

import (
	"os"
	"path/filepath"
	"testing"

	"skerry.dev/skerry"
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
