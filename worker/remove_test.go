//go:build linux

package worker

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/spec"
)

// removeEnv has the test program remove the files of an instance of the worker of a directory.
const removeEnv = "SKERRY_TEST_REMOVE"

// Where something cannot be unmounted, the files of an instance stay, with an error, and all that is mounted there: directories of the host
// and volumes, also such that lie on one another, or deep in the instance's own.
func TestWhatStaysMountedIsKept(t *testing.T) {
	if dir := os.Getenv(removeEnv); dir != "" {
		s := &Server{places: places{dir}, opt: ServerOptions{Dir: dir}, users: newUserRanges(dir, UserPool{}, "")}
		if err := s.removeFiles("web-1"); err == nil {
			t.Fatal("all was removed")
		} else if !errors.Is(err, unix.EINVAL) {
			t.Fatal(err)
		}
		return
	}
	trial := exec.Command("/proc/self/exe", "-test.run=^$")
	trial.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	if err := trial.Start(); err != nil {
		t.Skip(&testenv.Unsupported{What: "user namespaces", Why: err.Error()})
	}
	_ = trial.Wait()
	for _, place := range []string{"host/data", "host/file", "volumes/scratch/a/b", ""} {
		dir := t.TempDir()
		s := &Server{places: places{dir}, opt: ServerOptions{Dir: dir}, users: newUserRanges(dir, UserPool{}, "")}
		at, host := filepath.Join(s.instanceDir("web-1"), place), filepath.Join(dir, "host")
		file := filepath.Join(host, "deep/file")
		from := host
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("kept"), 0o644),
			os.MkdirAll(filepath.Dir(at), 0o755)); err != nil {
			t.Fatal(err)
		}
		err := os.MkdirAll(at, 0o755)
		if place == "host/file" {
			from, err = file, errors.Join(err, os.Remove(at), os.WriteFile(at, nil, 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
		thread.Run(func() {
			if err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
				unix.Mount(from, at, "", unix.MS_BIND, ""), unix.Mount(from, at, "", unix.MS_BIND, "")); err != nil {
				t.Error(err)
				return
			}
			// In a user namespace of its own nobody unmounts what came with the mount namespace.
			c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
			c.Env = append(os.Environ(), removeEnv+"="+dir)
			ids := []syscall.SysProcIDMap{{Size: 1}}
			c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET,
				UidMappings: ids, GidMappings: ids}
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%q: %v\n%s", place, err, out)
			}
			if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
				t.Errorf("%q: the host has %q, %v", place, text, err)
			}
			// Where it can be unmounted, the same goes, and what was mounted stays.
			if err := s.removeFiles("web-1"); err != nil {
				t.Errorf("%q: %v", place, err)
			}
		})
		if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
			t.Errorf("%q: the host has %q, %v", place, text, err)
		}
		if _, err := os.Lstat(s.instanceDir("web-1")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q: the instance's files are still there: %v", place, err)
		}
	}
}

// A container may have made more directories in one another in a volume than the agent may have open: it goes all the same.
func TestDeepVolumeGoes(t *testing.T) {
	s := withSnapshots(t, t.TempDir(), nil, nil)
	a := &spec.Assignment{ID: "db-r1", Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "db"}}
	v := &spec.Volume{Name: "data", Local: &spec.LocalVolume{}}
	if err := s.makeVolume(t.Context(), s.opt.NFS.table, a, v); err != nil {
		t.Fatal(err)
	}
	thread.Run(func() {
		err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Chdir(s.volumeSource(a, v)))
		for range 1000 {
			err = errors.Join(err, unix.Mkdir(strings.Repeat("n", 50), 0o700), unix.Chdir(strings.Repeat("n", 50)))
		}
		if err != nil {
			t.Error(err)
		}
	})
	var was unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 500, Max: was.Max}, nil); err != nil {
		t.Fatal(err)
	}
	s.removeVolumes(claimOf(a))
	s.work.Load().End()
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &was, nil); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(s.opt.Dir, localDir)); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
