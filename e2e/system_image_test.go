//go:build linux

package e2e

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
)

// system is a kernel of Debian's for another architecture, with a root in memory that has what a worker needs beside Skerry.
type system struct{ kernel, root string }

// systemPackages are what that is made of; Debian 13 is the first release that has all of them for riscv64.
const (
	systemRelease  = "trixie"
	systemPackages = "crun,conmon,busybox-static,iproute2,nftables,kmod"
)

// systemPrograms are those of them that are taken, with the libraries that they name.
var systemPrograms = []string{"usr/bin/busybox", "usr/bin/crun", "usr/bin/conmon", "usr/bin/kmod", "usr/bin/ip", "usr/sbin/nft"}

// systemModules are the directories, and files, of the kernel's modules that are taken; what they need of others is in them.
var systemModules = []string{
	"drivers/net/tun.ko", "drivers/net/veth.ko", "drivers/net/virtio_net.ko", "drivers/net/net_failover.ko", "net/core/failover.ko", "fs/overlayfs",
	"net/bridge", "net/802", "net/llc", "net/netfilter", "net/ipv4/netfilter", "net/ipv6/netfilter", "net/sched/sch_ingress.ko", "net/sched/cls_bpf.ko", "lib", "crypto/crc32c", "drivers/char/hw_random/virtio-rng.ko",
}

// newSystem gives the system for an architecture. It is made once for each content of this file, in the user's cache.
func newSystem(t *testing.T, arch string) system {
	t.Helper()
	first, err := os.ReadFile("testdata/system.init")
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := os.ReadFile("system_image_test.go")
	if err != nil {
		t.Fatal(err)
	}
	dir := cached(t, arch, append(recipe, first...), func(made string) {
		tree := filepath.Join(t.TempDir(), "tree")
		unpack(t, arch, tree)
		kernels, _ := filepath.Glob(filepath.Join(tree, "boot", "vmlinu*"))
		if len(kernels) != 1 {
			t.Fatalf("the package has the kernels %v", kernels)
		}
		var a cpio
		if err := errors.Join(a.system(tree, first), copyFile(kernels[0], filepath.Join(made, "kernel")), os.WriteFile(filepath.Join(made, "root.cpio"), a.end(), 0o644)); err != nil {
			t.Fatal(err)
		}
	})
	return system{filepath.Join(dir, "kernel"), filepath.Join(dir, "root.cpio")}
}

// cached gives a directory of the user's cache, which is made once for each recipe; what an older one made goes.
func cached(t *testing.T, name string, recipe []byte, build func(made string)) string {
	t.Helper()
	key := sha256.Sum256(recipe)
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	cache = filepath.Join(cache, "skerry", "systems")
	dir := filepath.Join(cache, name+"-"+hex.EncodeToString(key[:8]))
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
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	old, _ := filepath.Glob(filepath.Join(cache, name+"-*"))
	for _, o := range old {
		if err := os.RemoveAll(o); err != nil {
			t.Fatal(err)
		}
	}
	// Beside its place, to which it comes when it is whole.
	made := filepath.Join(cache, name+"-new")
	if err := os.Mkdir(made, 0o755); err != nil {
		t.Fatal(err)
	}
	build(made)
	if err := os.Rename(made, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// mirror is where this machine has Debian's packages from.
func mirror() string {
	if out, err := exec.Command("apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages").Output(); err == nil {
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) == 2 && f[1] == "bookworm" {
				return strings.TrimSuffix(f[0], "/")
			}
		}
	}
	return "http://deb.debian.org/debian"
}

// outside runs a command in the network of who started these tests, which have one of their own: that one has the packages.
func outside(t *testing.T, what string, command ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "nsenter", append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", os.Getppid())}, command...)...).CombinedOutput()
	if err == nil {
		return
	}
	unreachable := `Could not resolve|Temporary failure|Failed to establish a new connection|Unable to connect|Could not connect|` +
		`[Nn]etwork is unreachable|no such host|i/o timeout`
	if regexp.MustCompile(unreachable).Match(out) {
		t.Skip(&testenv.Unsupported{What: what, Why: "its packages cannot be fetched: " + string(out[max(0, len(out)-300):])})
	}
	t.Fatalf("%s: %v\n%s", what, err, out[max(0, len(out)-2000):])
}

// pythonOf installs what a file of pinned requirements lists, and gives the interpreter that imports it.
func pythonOf(t *testing.T, name, requirements string) string {
	t.Helper()
	recipe, err := os.ReadFile(requirements)
	if err != nil {
		t.Fatalf("read what is to be installed: %v", err)
	}
	dir := cached(t, name, recipe, func(made string) {
		outside(t, name, "/usr/bin/python3", "-m", "venv", made)
		outside(t, name, filepath.Join(made, "bin/python"), "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes",
			"--only-binary=:all:", "--requirement", requirements)
	})
	return filepath.Join(dir, "bin/python")
}

// unpack has Debian's packages for an architecture unpacked, of which nothing is run, and its modules listed.
func unpack(t *testing.T, arch, tree string) {
	t.Helper()
	outside(t, "a guest of "+arch, "mmdebstrap", "--variant=extract", "--architectures="+arch, "--include=linux-image-"+arch+","+systemPackages,
		systemRelease, tree, fmt.Sprintf("deb %s %s main", mirror(), systemRelease))
	// Only the modules that are taken are to be in the list.
	versions, _ := filepath.Glob(filepath.Join(tree, "usr/lib/modules/*"))
	if len(versions) != 1 {
		t.Fatalf("modules of %v", versions)
	}
	err := filepath.WalkDir(filepath.Join(versions[0], "kernel"), func(p string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(filepath.Join(versions[0], "kernel"), p)
		if err == nil && !e.IsDir() && !slices.ContainsFunc(systemModules, func(m string) bool { return strings.HasPrefix(name, m) }) {
			return os.Remove(p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// Unpacked, so that nothing else is needed to read them.
	if out, err := exec.Command("sh", "-c", `find "$1" -name '*.ko.xz' -exec xz -d {} +`, "sh", versions[0]).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Symlink("usr/lib", filepath.Join(tree, "lib")); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	depmod := exec.Command(foreign[arch].emulator, "-0", "depmod", "-L", tree, filepath.Join(tree, "usr/bin/kmod"), "-b", tree, filepath.Base(versions[0]))
	if out, err := depmod.CombinedOutput(); err != nil {
		t.Fatalf("list the modules: %v\n%s", err, out)
	}
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// cpio is an archive as kernels unpack it ("newc"). Several may follow each other.
type cpio struct {
	b    bytes.Buffer
	n    int
	have map[string]bool
}

func (c *cpio) add(name string, mode int, data []byte) {
	if c.have == nil {
		c.have = map[string]bool{}
	}
	if c.have[name] {
		return
	}
	if dir := filepath.Dir(name); dir != "." {
		c.add(dir, 0o40755, nil)
	}
	c.have[name] = true
	c.n++
	fmt.Fprintf(&c.b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", c.n, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	c.pad()
	c.b.Write(data)
	c.pad()
}

func (c *cpio) pad() { c.b.Write(make([]byte, -c.b.Len()&3)) }

func (c *cpio) end() []byte {
	c.add("TRAILER!!!", 0, nil)
	return c.b.Bytes()
}

// system adds what a worker needs of an unpacked tree.
func (c *cpio) system(tree string, first []byte) error {
	c.add("init", 0o100755, first)
	for link, to := range map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "usr/sbin/modprobe": "../bin/kmod"} {
		c.add(link, 0o120777, []byte(to))
	}
	c.add("etc/passwd", 0o100644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"))
	c.add("etc/group", 0o100644, []byte("root:x:0:\nnogroup:x:65534:\n"))
	for _, name := range []string{"etc/resolv.conf", "etc/hosts", "etc/hostname"} { // that native processes see other ones in place of
		c.add(name, 0o100644, nil)
	}
	for _, dir := range []string{"dev", "proc", "sys"} {
		c.add(dir, 0o40755, nil)
	}
	for _, p := range systemPrograms {
		if err := c.program(tree, p); err != nil {
			return err
		}
	}
	return filepath.WalkDir(filepath.Join(tree, "usr/lib/modules"), func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(p)
		name, _ := filepath.Rel(tree, p)
		c.add(name, 0o100644, data)
		return err
	})
}

// program adds a program, or a library, with all that it is linked to.
func (c *cpio) program(tree, name string) error {
	if c.have[name] {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(tree, name))
	if err != nil {
		return err
	}
	c.add(name, 0o100755, data)
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			interp := make([]byte, p.Filesz-1)
			if _, err := p.ReadAt(interp, 0); err != nil {
				return err
			}
			libraries = append(libraries, filepath.Base(string(interp)))
		}
	}
	for _, l := range libraries {
		found, _ := filepath.Glob(filepath.Join(tree, "usr/lib/*-linux-gnu", l))
		direct, _ := filepath.Glob(filepath.Join(tree, "usr/lib", l)) // where the program names it
		if found = append(found, direct...); len(found) == 0 {
			return fmt.Errorf("%s needs %s, which no package has", name, l)
		}
		for _, p := range found {
			rel, _ := filepath.Rel(tree, p)
			if err := c.program(tree, rel); err != nil {
				return err
			}
		}
	}
	return nil
}
