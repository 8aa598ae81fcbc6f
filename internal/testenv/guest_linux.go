package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// guestKernelVar names the directory on a machine that cannot fetch one.
const guestKernelVar = "SKERRY_TEST_GUEST_KERNEL"

// GuestKernel gives a directory with what Debian's package of its cloud kernel holds, which is fetched once for each version.
func GuestKernel(t testing.TB) string {
	t.Helper()
	for program, pkg := range map[string]string{"qemu-system-x86_64": "qemu-system-x86", "mkfs.ext4": "e2fsprogs"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(&Unsupported{What: "a guest", Why: program + " is not installed; apt-get install " + pkg})
		}
	}
	if dir := os.Getenv(guestKernelVar); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	cache = filepath.Join(cache, "skerry", "guest-kernel")
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
	out, _ := exec.Command("apt-cache", "depends", "linux-image-cloud-amd64").Output()
	found := regexp.MustCompile(`Depends: (linux-image-[0-9]\S*)`).FindSubmatch(out)
	if found == nil {
		t.Skip(&Unsupported{What: "a guest", Why: "the package sources of this machine have no linux-image-cloud-amd64"})
	}
	pkg := string(found[1])
	dir := filepath.Join(cache, pkg)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	work, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	script := `cd "$1" && apt-get download -qq -o APT::Sandbox::User=root "$2" && dpkg-deb -x "$2"_*.deb unpacked`
	if out, err := exec.Command("sh", "-c", script, "sh", work, pkg).CombinedOutput(); err != nil {
		if regexp.MustCompile(`Could not resolve|Temporary failure resolving|Unable to connect|Could not connect|Network is unreachable`).Match(out) {
			t.Skip(&Unsupported{What: "a guest", Why: "its kernel cannot be fetched: " + strings.TrimSpace(string(out))})
		}
		t.Fatalf("fetch the guest's kernel: %v\n%s", err, out)
	}
	// Those before it are not needed any more.
	old, _ := filepath.Glob(filepath.Join(cache, "linux-image-*"))
	for _, o := range old {
		if err := os.RemoveAll(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(work, "unpacked"), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}
