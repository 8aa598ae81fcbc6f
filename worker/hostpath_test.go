//go:build linux

package worker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/spec"
)

// What a site opens of its workers' directories is left by no link that a tenant made there.
func TestHostPaths(t *testing.T) {
	base := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, path string) {
		t.Helper()
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
	}
	write(base+"/etc/shadow", "secret")
	write(base+"/srv/media/a", "film")
	write(base+"/srv/up/mine/b", "upload")
	link(base+"/etc", base+"/srv/up/absolute")
	link("../../etc", base+"/srv/up/relative")
	link("../media", base+"/srv/up/beside")
	link("mine", base+"/srv/up/within")
	link("../../etc/shadow", base+"/srv/up/file")
	link(base+"/etc", base+"/srv/up/swapped")
	grants := []spec.HostPath{{Path: base + "/srv"}, {Path: base + "/srv/up", Writable: true}, {Path: base + "/srv/up/swapped"}}
	up := []spec.HostPath{{Path: base + "/srv/up", Writable: true}}

	dir := filepath.Join(base, "a worker's") // the kernel writes the space in its own way
	s := &Server{places: places{dir}, opt: ServerOptions{Dir: dir}, users: newUserRanges(dir, UserPool{}, "")}
	t.Cleanup(func() {
		if err := UnmountVolumes(s.opt.Dir); err != nil {
			t.Error(err)
		}
	})
	for _, c := range []struct {
		path     string
		grants   []spec.HostPath
		file     string // that is found there, "" where the volume is refused
		writable bool
		why      string
	}{
		{"/srv/media", grants, "a", false, ""},
		{"/srv/media/a", grants, ".", false, ""},
		{"/srv", grants, "media/a", false, ""},
		{"/srv/up", grants, "mine/b", true, ""},
		{"/srv/up/within", grants, "b", true, ""},
		{"/srv/up/absolute", grants, "", false, "leads out of " + base + "/srv/up"},
		{"/srv/up/absolute", up, "", false, "leads out of"},
		{"/srv/up/relative", up, "", false, "leads out of"},
		{"/srv/up/relative/shadow", up, "", false, "leads out of"},
		{"/srv/up/file", up, "", false, "leads out of"},
		{"/srv/up/beside", grants, "", false, "leads out of"}, // it is open to read alone there
		{"/srv/up/swapped/shadow", grants, "", false, "leads out of"},
		{"/srv/up/swapped", []spec.HostPath{{Path: base + "/srv/up/swapped"}, {Path: base + "/srv/up", Writable: true}}, "", false, "leads out of"},
		{"/etc", grants, "", false, "hostPaths"},
		{"/srv/up/../../etc", grants, "", false, "hostPaths"},
		{"/srv/none", grants, "", false, "no such file"},
	} {
		a := &spec.Assignment{ID: "web-r1", Level: spec.LevelRestricted, HostPaths: c.grants,
			Spec: spec.ServiceSpec{Volumes: []spec.Volume{{Name: "v", Host: &spec.HostVolume{Path: base + c.path}}}}}
		v := &a.Spec.Volumes[0]
		err := s.makeVolume(t.Context(), s.opt.NFS.table, a, v)
		if c.file == "" {
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%s: %v", c.path, err)
			}
			if _, never := errors.AsType[impossible](err); !never && c.why != "no such file" {
				t.Errorf("%s: it is tried again: %v", c.path, err)
			}
			continue
		}
		if err := errors.Join(err, s.makeVolume(t.Context(), s.opt.NFS.table, a, v)); err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		at := s.volumeSource(a, v)
		if !strings.HasPrefix(at, s.opt.Dir) {
			t.Fatalf("%s is mounted from %s, which others may change", c.path, at)
		}
		var fs unix.Statfs_t
		if err := unix.Statfs(at, &fs); err != nil || fs.Flags&unix.ST_NOSUID == 0 || fs.Flags&unix.ST_NODEV == 0 {
			t.Errorf("%s: flags %x, %v", c.path, fs.Flags, err)
		}
		f, err := os.OpenFile(filepath.Join(at, c.file), os.O_WRONLY, 0)
		if (err == nil) != c.writable || !c.writable && !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: %v", c.path, err)
		}
		f.Close()
		// What is there later does not change what is mounted, and it ends with the instance.
		if err := s.removeFiles(a.ID); err != nil {
			t.Errorf("%s: %v", c.path, err)
		}
		if _, err := os.Stat(filepath.Join(base, c.path, c.file)); err != nil {
			t.Fatalf("%s: the host's own went with the instance: %v", c.path, err)
		}
	}

	// An organisation that may do everything, and clusters of before.
	for _, level := range []spec.SecurityLevel{spec.LevelPrivileged, ""} {
		a := &spec.Assignment{ID: "web-r2", Level: level, Spec: spec.ServiceSpec{Volumes: []spec.Volume{{Name: "v", Host: &spec.HostVolume{Path: base + "/etc"}}}}}
		if err := s.makeVolume(t.Context(), s.opt.NFS.table, a, &a.Spec.Volumes[0]); err != nil || s.volumeSource(a, &a.Spec.Volumes[0]) != base+"/etc" {
			t.Errorf("%q: %v", level, err)
		}
	}
}
