//go:build linux && amd64

package guest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime/vm"
)

// image gives the directory that holds root.ext4 and vmlinuz. It is made once for each content: the scripts, the
// package sources and the packages that are added. A new one is made after four weeks, for the packages' sake.
func image(t *testing.T, packages ...string) string {
	t.Helper()
	for program, pkg := range map[string]string{"mmdebstrap": "mmdebstrap", "mkfs.ext4": "e2fsprogs", "qemu-system-x86_64": "qemu-system-x86"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(&testenv.Unsupported{What: "a guest machine", Why: program + " is not installed; apt-get install " + pkg})
		}
	}
	sources := sources()
	key := sha256.New()
	key.Write(sources)
	for _, p := range packages {
		fmt.Fprintln(key, p)
	}
	for _, name := range []string{"rootfs.sh", "agent.sh", "agent.service"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		key.Write(data)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir() // without a home directory nothing is kept
	}
	cache = filepath.Join(cache, "skerry", "guest")
	dir := filepath.Join(cache, hex.EncodeToString(key.Sum(nil))[:16])
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	clean(t, cache)
	if _, err := os.Stat(filepath.Join(dir, "root.ext4")); err == nil {
		return dir
	}
	build(t, cache, dir, sources, packages)
	return dir
}

// kernelOf gives the kernel of an image without its compression, which takes an emulated processor seconds to undo, or as it is where
// nothing here can undo it.
func kernelOf(t *testing.T, image string) string {
	t.Helper()
	packed, unpacked := filepath.Join(image, "vmlinuz"), filepath.Join(image, "vmlinux")
	if _, err := os.Stat(unpacked); err == nil {
		return unpacked
	}
	data, err := os.ReadFile(packed)
	if err != nil {
		t.Fatalf("read the guest's kernel: %v", err)
	}
	if data, err = vm.Unpack(t.Context(), data); err != nil {
		t.Logf("the guest unpacks its kernel itself: %v", err)
		return packed
	}
	if err := files.Replace(unpacked, data, 0o644); err != nil {
		t.Fatalf("keep the guest's kernel: %v", err)
	}
	return unpacked
}

// clean removes images that are four weeks old, and what a build that was killed left behind. The caller has the lock.
func clean(t *testing.T, cache string) {
	t.Helper()
	entries, err := os.ReadDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		dir := filepath.Join(cache, e.Name())
		st, err := os.Stat(filepath.Join(dir, "root.ext4"))
		if !e.IsDir() || err == nil && time.Since(st.ModTime()) < 4*7*24*time.Hour && !strings.HasPrefix(e.Name(), building) {
			continue
		}
		remove(t, dir)
	}
}

// remove deletes a directory, and detaches first what a build that was killed has left mounted in it.
func remove(t *testing.T, dir string) {
	t.Helper()
	if err := testenv.Remove(dir); err != nil {
		t.Fatal(err)
	}
}

// building begins the names of directories in which an image is being made.
const building = "new-"

// build makes the image beside its place and moves it there when it is whole.
func build(t *testing.T, cache, dir string, sources []byte, packages []string) {
	t.Helper()
	began := time.Now()
	work, err := os.MkdirTemp(cache, building)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := os.Stat(work); err == nil {
			remove(t, work)
		}
	}()
	// The package manager's own user reads below it.
	if err := os.Chmod(work, 0o755); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(work, "sources.list")
	if err := os.WriteFile(list, sources, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "sh", append([]string{"testdata/rootfs.sh", work, list, "testdata"}, packages...)...).CombinedOutput()
	if err != nil {
		unreachable := regexp.MustCompile(`Could not resolve|Temporary failure resolving|Unable to connect|Could not connect|Network is unreachable`)
		if unreachable.Match(out) {
			t.Skip(&testenv.Unsupported{What: "a guest machine", Why: "its packages cannot be fetched:\n" + tail(out, 5)})
		}
		t.Fatalf("make the guest's disk: %v\n%s", err, tail(out, 30))
	}
	if err := os.Rename(work, dir); err != nil {
		t.Fatal(err)
	}
	t.Logf("the guest's disk was made in %s", time.Since(began).Round(time.Second))
}

// sources are those of this machine that are of the guest's release; elsewhere Debian's own.
func sources() []byte {
	const release = "bookworm"
	out, _ := exec.Command("apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages").Output()
	var lines []string
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[2] == "main" && slices.Contains([]string{release, release + "-updates", release + "-security"}, f[1]) {
			lines = append(lines, "deb "+strings.TrimSpace(line)+"\n")
		}
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, " "+release+" ") }) {
		lines = []string{fmt.Sprintf("deb http://deb.debian.org/debian %s main\n", release)}
	}
	return []byte(strings.Join(lines, ""))
}

// tail is the last lines of an output.
func tail(out []byte, n int) string {
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}
