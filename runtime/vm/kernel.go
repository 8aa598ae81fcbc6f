//go:build linux

package vm

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/runtime"
)

// modules are those that a guest may need, in an order in which most kernels take them. One that is not there is taken to be
// in the kernel.
func modules() []string {
	return []string{
		"virtio_ring", "virtio", "virtio_mmio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_console", "virtio_blk",
		"crc16", "crc32c_generic", "libcrc32c", "mbcache", "jbd2", "ext4", "overlay", "fuse", "virtiofs", "failover", "net_failover",
		"virtio_net",
		"vsock", "vmw_vsock_virtio_transport_common", "vmw_vsock_virtio_transport", balloon,
	}
}

// balloon is the module by which a guest gives memory back. Guests had none at first, and a digest may be pinned that is without it.
const balloon = "virtio_balloon"

// kernel is what a guest boots.
type kernel struct {
	Path    string // of the kernel's image
	Initrd  string // with our init
	Version string // for people
	Digest  string // SHA-256 of everything that was given
}

// openKernel looks at what the operator gave: a kernel's image, or a directory with what Debian's package of a kernel holds,
// boot/vmlinuz-VERSION and lib/modules/VERSION. With pin, its digest must be that.
func (d *Driver) openKernel() (kernel, error) {
	fail := func(err error, hint string) (kernel, error) {
		return kernel{}, &runtime.StartError{Err: fmt.Errorf("guest kernel: %w", err), Hint: hint}
	}
	given := d.opts.Kernel
	if given == "" {
		return fail(errors.New("none is given"), "give the worker one with --guest-kernel; docs/OPERATIONS.md says where to get it")
	}
	k := kernel{Path: given, Version: filepath.Base(given)}
	st, err := os.Stat(given)
	if err != nil {
		return fail(err, "give the worker a kernel that is there with --guest-kernel")
	}
	var files []string
	if st.IsDir() {
		images, _ := filepath.Glob(filepath.Join(given, "boot", "vmlinu*"))
		if len(images) != 1 {
			return fail(fmt.Errorf("%s has %d files boot/vmlinu*, not one", given, len(images)),
				"unpack one kernel's package into a directory of its own")
		}
		k.Path = images[0]
		k.Version = strings.TrimPrefix(strings.TrimPrefix(filepath.Base(k.Path), "vmlinuz-"), "vmlinux-")
		if files, err = findModules(given); err != nil {
			return fail(err, "make it readable")
		}
	}
	if k.Digest, err = digestOf(k.Path, files); err != nil {
		return fail(err, "make it readable")
	}
	pin := strings.TrimPrefix(d.opts.KernelSHA256, "sha256:")
	if pin != "" && pin != k.Digest {
		older := slices.DeleteFunc(slices.Clone(files), func(f string) bool { return strings.HasPrefix(filepath.Base(f), balloon) })
		if digest, err := digestOf(k.Path, older); err == nil && digest == pin {
			files, k.Digest = older, digest
		}
	}
	if pin != "" && pin != k.Digest {
		return fail(fmt.Errorf("%s has the digest %s, not %s", given, k.Digest, pin),
			"fetch it again, or pin what is there with --guest-kernel-sha256")
	}
	if k.Initrd, err = d.makeInitrd(k.Digest, files); err == nil {
		k.Path, err = d.forNobody(k)
	}
	if err != nil {
		return fail(err, "free space below "+d.opts.Dir)
	}
	return k, nil
}

// digestOf is what a kernel is pinned by: the digest of its image, or with modules that of all digests.
func digestOf(image string, modules []string) (string, error) {
	sum := sha256.New()
	if err := addFile(sum, image); err != nil {
		return "", err
	}
	if len(modules) > 0 {
		outer := sha256.New()
		outer.Write(sum.Sum(nil))
		for _, m := range modules {
			inner := sha256.New()
			if err := addFile(inner, m); err != nil {
				return "", err
			}
			outer.Write(inner.Sum(nil))
		}
		sum = outer
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// forNobody gives a kernel's image as the users of machines can open it: as it is, or as a copy, made once, of one that only root may
// read, as in Ubuntu's packages.
func (d *Driver) forNobody(k kernel) (string, error) {
	st, err := os.Stat(k.Path)
	if err != nil || st.Mode().Perm()&0o004 != 0 {
		return k.Path, err
	}
	path := filepath.Join(d.opts.Dir, "kernel", k.Digest[:16]+".image")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	image, err := os.ReadFile(k.Path)
	if err != nil {
		return "", err
	}
	return path, keepAlone(path, image)
}

// keepAlone writes what guests boot, and removes those like it: they are of other kernels, and running guests have read theirs.
func keepAlone(path string, data []byte) error {
	if err := files.Replace(path, data, 0o644); err != nil {
		return err
	}
	others, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*"+filepath.Ext(path)))
	for _, o := range slices.DeleteFunc(others, func(o string) bool { return o == path }) {
		_ = os.Remove(o)
	}
	return nil
}

// addFile hashes a file. Symbolic links are followed: the operator vouches for what is there.
func addFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// findModules gives the files of the modules that are there, in order.
func findModules(dir string) ([]string, error) {
	found := map[string]string{}
	for _, lib := range []string{"lib/modules", "usr/lib/modules"} {
		err := filepath.WalkDir(filepath.Join(dir, lib), func(p string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			if name, ext, ok := strings.Cut(e.Name(), ".ko"); ok && (ext == "" || ext == ".xz" || ext == ".zst" || ext == ".gz") {
				found[strings.ReplaceAll(name, "-", "_")] = p
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	var files []string
	for _, m := range modules() {
		if f := found[m]; f != "" {
			files = append(files, f)
		}
	}
	return files, nil
}

// makeInitrd gives the first file system of guests, made once for a kernel and an init of ours.
func (d *Driver) makeInitrd(digest string, modules []string) (string, error) {
	own := sha256.Sum256([]byte(guestInit))
	path := filepath.Join(d.opts.Dir, "kernel", digest[:16]+"-"+hex.EncodeToString(own[:8])+".cpio")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	z, err := gzip.NewReader(strings.NewReader(guestInit))
	if err != nil {
		return "", err
	}
	program, err := io.ReadAll(z)
	if err != nil {
		return "", err
	}
	var a archive
	a.add("dev", 0o40755, nil)
	a.device("dev/console", 0o20600, 5, 1) // else the first process has no output
	a.add("init", 0o100755, program)
	var names []string
	for _, f := range modules {
		data, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		names = append(names, filepath.Base(f))
		a.add(filepath.Base(f), 0o100644, data)
	}
	a.add("modules", 0o100644, []byte(strings.Join(names, "\n")))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, keepAlone(path, a.end())
}

// archive is a cpio archive in the format that kernels unpack ("newc").
type archive struct {
	b bytes.Buffer
	n int
}

func (a *archive) add(name string, mode int, data []byte) { a.entry(name, mode, data, 0, 0) }

func (a *archive) device(name string, mode, major, minor int) { a.entry(name, mode, nil, major, minor) }

func (a *archive) entry(name string, mode int, data []byte, major, minor int) {
	a.n++
	fmt.Fprintf(&a.b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", a.n, mode, 0, 0, 1, 0, len(data), 0, 0, major,
		minor, len(name)+1, 0, name)
	a.pad()
	a.b.Write(data)
	a.pad()
}

func (a *archive) pad() {
	for a.b.Len()%4 != 0 {
		a.b.WriteByte(0)
	}
}

func (a *archive) end() []byte {
	a.entry("TRAILER!!!", 0, nil, 0, 0)
	return a.b.Bytes()
}
