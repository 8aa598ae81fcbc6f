//go:build linux

package worker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// A part of a volume is what is in the volume, whatever links an instance has made there, and whatever becomes of the path afterwards.
func TestPartsOfVolumes(t *testing.T) {
	base := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	s := &Server{places: places{filepath.Join(base, "worker")}, opt: ServerOptions{Dir: filepath.Join(base, "worker")}, users: newUserRanges(base, UserPool{}, "")}
	t.Cleanup(func() {
		if err := UnmountVolumes(s.opt.Dir); err != nil {
			t.Error(err)
		}
	})
	a := &spec.Assignment{ID: "web-r1", Spec: spec.ServiceSpec{Volumes: []spec.Volume{{Name: "v", Empty: &spec.EmptyVolume{}},
		{Name: "h", Host: &spec.HostVolume{Path: base + "/host"}}}}}
	write(base+"/host/there/file", "host")
	write(base+"/outside/file", "outside")
	if err := s.makeVolume(t.Context(), s.opt.NFS.table, a, &a.Spec.Volumes[0]); err != nil {
		t.Fatal(err)
	}
	volume := s.volumeSource(a, &a.Spec.Volumes[0])
	write(volume+"/data/file", "data")
	for name, to := range map[string]string{"absolute": base + "/outside", "relative": "../../../../../outside",
		"deep/up": "../../../../../../outside",
		"within":  "data", "dangling": "nothing", "proc": "/proc/self/root"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(volume+"/"+name), 0o755), os.Symlink(to, volume+"/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(volume+"/pipe", 0o666); err != nil {
		t.Fatal(err)
	}
	mount := func(volume, sub string) (string, error) {
		container := &spec.Container{Mounts: []spec.Mount{{Volume: volume, Path: "/x", SubPath: sub}}}
		source := s.volumeSource(a, &a.Spec.Volumes[map[string]int{"v": 0, "h": 1}[volume]])
		mounts := []runtime.Mount{{Type: "bind", Source: "/run", Target: "/x"}, {Type: "bind", Source: source, Target: "/x"}}
		err := mountParts(t.Context(), s, a, "main", container, mounts)
		if err == nil && mounts[0].Source != "/run" {
			t.Errorf("%s: another mount became %+v", sub, mounts[0])
		}
		return mounts[1].Source, err
	}
	for _, c := range []struct{ volume, sub, file, why string }{
		{"v", "data", "file", ""},
		{"v", "data/file", ".", ""}, // a file in place of the directory of the try before
		{"v", "within", "file", ""},
		{"v", "within/file", ".", ""},
		{"h", "there", "file", ""},
		{"v", "absolute", "", "leads out of the volume"},
		{"v", "absolute/file", "", "leads out of the volume"},
		{"v", "absolute/made", "", "leads out of the volume"},
		{"v", "relative", "", "leads out of the volume"},
		{"v", "deep/up/made", "", "leads out of the volume"},
		{"v", "proc/etc", "", "leads out of the volume"},
		{"v", "pipe", "", "neither a file nor a directory"},
		{"v", "data/file/made", "", "not a directory"},
		{"v", "dangling/made", "", "no such file"},
		{"h", "missing", "", "no such file"}, // what is the worker's is not made
	} {
		at, err := mount(c.volume, c.sub)
		if c.why != "" {
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%s of %s: %v does not say %q", c.sub, c.volume, err, c.why)
			}
			continue
		}
		if _, err2 := os.ReadFile(filepath.Join(at, c.file)); err != nil || err2 != nil || !strings.HasPrefix(at, s.instanceDir(a.ID)) {
			t.Errorf("%s of %s at %s: %v, %v", c.sub, c.volume, at, err, err2)
		}
	}
	if _, err := os.Stat(base + "/outside/made"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory was made outside: %v", err)
	}

	// What is missing is made as the volume is, for whatever user the container has; and the path may be led elsewhere then.
	at, err := mount("v", "new/er")
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(volume + "/new"); err != nil || fi.Mode().Perm() != 0o777 {
		t.Errorf("what was missing became %v, %v", fi, err)
	}
	if err := errors.Join(os.Rename(volume+"/new", volume+"/old"), os.Symlink(base+"/outside", volume+"/new")); err != nil {
		t.Fatal(err)
	}
	write(volume+"/old/er/kept", "kept")
	if text, err := os.ReadFile(at + "/kept"); string(text) != "kept" {
		t.Errorf("the mount is %q, %v", text, err)
	}
	if _, err := mount("v", "new/er"); err == nil || !strings.Contains(err.Error(), "leads out of the volume") {
		t.Errorf("at the next start: %v", err)
	}
	if err := s.removeFiles(a.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(base + "/host/there/file"); err != nil {
		t.Errorf("what was mounted is gone: %v", err)
	}
}
