//go:build linux && amd64

package vm

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/probe"
)

// bzImage wraps a payload as the kernel's documentation of the x86 boot protocol describes it.
func bzImage(payload []byte) []byte {
	b := make([]byte, 2*512+100)
	b[0x1f1] = 1
	copy(b[0x202:], "HdrS")
	binary.LittleEndian.PutUint32(b[0x248:], 100)
	binary.LittleEndian.PutUint32(b[0x24c:], uint32(len(payload)))
	return append(append(b, payload...), 1, 2, 3, 4, 5)
}

// TestPayload takes out what each program unpacks: behind it the kernel's build writes its size, but for gzip, whose format ends with it.
func TestPayload(t *testing.T) {
	for start, c := range map[string]struct{ program, packed string }{
		"\x1f\x8b": {"gzip", "\x1f\x8b...size"}, "\xfd7zXZ": {"xz", "\xfd7zXZ..."}, "\x02!L\x18": {"lz4", "\x02!L\x18..."},
		"\x28\xb5\x2f\xfd": {"zstd", "\x28\xb5\x2f\xfd..."},
	} {
		program, packed, err := payload(bzImage([]byte(start + "...size")))
		if err != nil || program != c.program || string(packed) != c.packed {
			t.Errorf("%q is for %s: %q, %v", start, program, packed, err)
		}
	}
}

// TestUnpackKernel takes the ELF file out of the image of a distribution. Firecracker gets it, and so does an emulated processor, which
// boots the image as it is if that cannot be unpacked, or not be entered.
func TestUnpackKernel(t *testing.T) {
	elf, _ := probe.Kernel("amd64")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(elf)
	z.Close()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		image []byte
		fails string
	}{
		"an ELF file":  {elf, ""},
		"a bzImage":    {bzImage(packed.Bytes()), ""},
		"no kernel":    {[]byte("kernel"), "neither"},
		"what is not":  {bzImage([]byte("nothing that is known")), "not known here"},
		"cut":          {bzImage(packed.Bytes())[:0x300], "outside of it"},
		"a cut stream": {bzImage(packed.Bytes()[:packed.Len()/2]), "gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, "kernel")
			if err := os.WriteFile(file, c.image, 0o600); err != nil {
				t.Fatal(err)
			}
			o := options(t.TempDir())
			d, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := os.MkdirAll(filepath.Join(o.Dir, "kernel"), 0o755); err != nil {
				t.Fatal(err)
			}
			path, err := d.vmlinux(t.Context(), kernel{Path: file, Digest: strings.Repeat("0", 64)})
			if direct := d.direct(t.Context(), kernel{Path: file, Digest: strings.Repeat("0", 64)}); direct != path {
				t.Errorf("emulated machines enter %q, want %q", direct, path)
			}
			if c.fails != "" {
				if se, ok := errors.AsType[*runtime.StartError](err); !ok || se.Hint == "" || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%v", err)
				}
				return
			}
			if have, _ := os.ReadFile(path); err != nil || !bytes.Equal(have, elf) {
				t.Errorf("%d bytes, %v", len(have), err)
			}
		})
	}
}

// TestEmulatedKernel boots what is unpacked on an emulated processor alone: with KVM Linux chooses the place of its code while it unpacks.
func TestEmulatedKernel(t *testing.T) {
	d, err := New(options(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, c := range []struct{ accel, vmlinux, want string }{{"tcg", "elf", "elf"}, {"tcg", "", "image"}, {"kvm", "elf", "image"}} {
		found := &choice{accel: c.accel, vmlinux: c.vmlinux, kernel: kernel{Path: "image"}}
		s, err := d.setup(runtime.Spec{Args: []string{"program"}}, found, t.TempDir())
		if err != nil || s.Kernel != c.want {
			t.Errorf("with %s and %q: got kernel %q, %v; want %q", c.accel, c.vmlinux, s.Kernel, err, c.want)
		}
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := enteredByPVH(program); err == nil {
		t.Errorf("this program is a kernel: got no error, want one that it has no PVH entry")
	}
}

// TestUnpackedKernelDoesNotBoot has a kernel with an entry by which nothing comes up: machines get the image, unless that was not the
// reason.
func TestUnpackedKernelDoesNotBoot(t *testing.T) {
	image, _ := probe.Kernel("amd64")
	file := filepath.Join(t.TempDir(), "vmlinuz")
	if err := os.WriteFile(file, image, 0o644); err != nil {
		t.Fatal(err)
	}
	o := options(t.TempDir())
	o.Log = slog.New(slog.DiscardHandler)
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.MkdirAll(filepath.Join(o.Dir, "kernel"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		accel                  string
		image, unpacked, ended bool // what comes up, and whether nobody waits any more
		tries                  int
		direct                 bool
	}{
		"both do":        {"tcg", true, true, false, 1, true},
		"the image does": {"tcg", true, false, false, 2, false},
		"none does":      {"tcg", false, false, false, 2, false},
		"nobody waits":   {"tcg", true, false, true, 1, true},
		"with KVM":       {"kvm", false, true, false, 1, false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		tries, up := 0, false
		check := &checking{d: d, try: func(_ context.Context, c *choice) error {
			if tries++; row.ended {
				cancel()
			}
			if up = row.image && c.vmlinux == "" || row.unpacked && c.vmlinux != ""; !up {
				return errors.New("nothing came up")
			}
			return nil
		}}
		found := &choice{accel: row.accel, kernel: kernel{Path: file, Digest: strings.Repeat("0", 64)}}
		err := check.tryQEMU(ctx, found)
		cancel()
		if (err == nil) != up || tries != row.tries || (found.vmlinux != "") != row.direct {
			t.Errorf("%s: got %v after %d tries, kernel %q; want %d tries", name, err, tries, found.vmlinux, row.tries)
		}
	}
}

// FuzzKernelImage looks for a packed kernel in anything.
func FuzzKernelImage(f *testing.F) {
	f.Add(bzImage([]byte("\x1f\x8bpacked")))
	f.Add(bzImage(nil))
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, image []byte) {
		program, packed, err := payload(image)
		if (err == nil) != (program != "") || err == nil && !bytes.Contains(image, packed) {
			t.Errorf("%q, %d bytes, %v", program, len(packed), err)
		}
	})
}
