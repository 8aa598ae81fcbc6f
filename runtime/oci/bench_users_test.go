//go:build linux

package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/owners"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
)

// BenchmarkUserNSBytes gives, in KiB, what an idle container has in memory and on the disk: the first and the second one of an organisation, and
// the first one of another, which run the same image. What its pages of that take is charged to the container that reads them first. Layers are
// what a copy for a second organisation takes, on the disk of the tests and on one that clones files. It times nothing.
func BenchmarkUserNSBytes(b *testing.B) {
	runtimetest.Hybrid(b, false)
	for _, how := range []string{"host", "mapped", "copied"} {
		b.Run(how, func(b *testing.B) {
			if how != "host" {
				b.Setenv(ownersEnv, how)
			}
			b.Setenv(runtimeEnv, "crun")
			opened, err := open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			d := opened.(*Driver)
			defer d.Close()
			if r := d.Check(b.Context()); !r.Passed {
				b.Fatal(r.Cause)
			}
			image := runtimetest.Image(b, runtimetest.Workload(b))
			images := []string{image, image, image}
			if how == "copied" {
				mine, theirs := runtimetest.Copied(b, image, someUsers.First), filepath.Join(d.Options.Dir, "theirs")
				if err := errors.Join(os.Mkdir(theirs, 0o755), owners.Copy(b.Context(), image, theirs, otherUsers.First)); err != nil {
					b.Fatal(err)
				}
				images = []string{mine, mine, theirs}
			}
			for i := 0; b.Loop(); i++ {
				var running []runtime.Handle
				for _, dir := range images {
					forgetPages(b, dir)
				}
				for n, users := range []runtime.UserNamespace{someUsers, someUsers, otherUsers} {
					if n == 1 && how == "mapped" { // instances have their own
						users.First += 2 << 16
					}
					spec := benchSpec(images[n], "stubborn")
					spec.ID = runtime.TaskID(fmt.Sprintf("bytes.main.%d-%d", i, n))
					if how != "host" {
						spec.UserNS, spec.RootFS[0].Shifted = &users, how == "copied"
					}
					h, _, _ := firstLine(b, d, spec)
					running = append(running, h)
					st, err := d.Stats(b.Context(), h)
					if err != nil {
						b.Fatal(err)
					}
					task, err := d.Tasks.Get(h)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(st.Memory)/1024, []string{"first-memory-KiB", "second-memory-KiB", "other-memory-KiB"}[n])
					if n == 0 {
						b.ReportMetric(float64(onDisk(b, task.Path("")))/1024, "files-KiB")
					}
				}
				for _, h := range running {
					if err := d.Remove(context.Background(), h); err != nil {
						b.Error(err)
					}
				}
			}
			if how == "copied" {
				b.ReportMetric(float64(onDisk(b, images[2]))/1024, "layers-KiB")
				b.ReportMetric(float64(cloned(b, image))/1024, "layers-cloned-KiB")
			}
		})
	}
}

// forgetPages has the kernel read a tree from the disk again.
func forgetPages(b *testing.B, dir string) {
	b.Helper()
	unix.Sync()
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
	if err != nil {
		b.Fatal(err)
	}
}

// onDisk sums the blocks of a tree, without what is mounted in it.
func onDisk(b *testing.B, dir string) (sum int64) {
	b.Helper()
	var top unix.Stat_t
	err := unix.Lstat(dir, &top)
	if err == nil {
		err = filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
			var st unix.Stat_t
			if err != nil || unix.Lstat(file, &st) != nil {
				return err
			}
			if st.Dev != top.Dev {
				return fs.SkipDir
			}
			sum += st.Blocks * 512
			return nil
		})
	}
	if err != nil {
		b.Fatal(err)
	}
	return sum
}

// cloned gives how many bytes of an XFS a copy of a tree takes beside the tree.
func cloned(b *testing.B, image string) int64 {
	b.Helper()
	dir := b.TempDir()
	file, at := filepath.Join(dir, "xfs"), filepath.Join(dir, "mounted")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 512<<20), os.Mkdir(at, 0o755)); err != nil {
		b.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.xfs", "-q", file}, {"mount", "-o", "loop", file, at}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			b.Fatalf("%v: %v %s", args, err, out)
		}
	}
	defer func() {
		if err := unix.Unmount(at, 0); err != nil {
			b.Error(err)
		}
	}()
	used := func(name string, first uint32, from string) int64 {
		var before, after unix.Statfs_t
		to := filepath.Join(at, name)
		err := errors.Join(os.Mkdir(to, 0o755), unix.Statfs(at, &before), owners.Copy(b.Context(), from, to, first))
		unix.Sync()
		if err = errors.Join(err, unix.Statfs(at, &after)); err != nil {
			b.Fatal(err)
		}
		return (int64(before.Bfree) - int64(after.Bfree)) * int64(before.Bsize)
	}
	used("plain", 0, image)
	return used("copied", otherUsers.First, filepath.Join(at, "plain"))
}
