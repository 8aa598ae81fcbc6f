//go:build linux

package oci

import (
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/elf"
	"skerry.dev/skerry/runtime/runtimetest"
)

// Machine code that makes one system call by the numbers of another architecture and exits with 0 if that came back with a result.
func foreignCalls() map[string][]byte {
	// test eax, eax; js +9; xor edi, edi; mov eax, 60 (exit); syscall; mov edi, 38; mov eax, 60; syscall
	exit := []byte{0x85, 0xc0, 0x78, 9, 0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05, 0xbf, 38, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05}
	return map[string][]byte{
		"i386": append([]byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80}, exit...),    // mov eax, 20 (getpid); int 0x80
		"x32":  append([]byte{0xb8, 39, 0, 0, 0x40, 0x0f, 0x05}, exit...), // mov eax, 0x40000027 (getpid); syscall
	}
}

// A task makes no system calls of another architecture than the machine's own, unless its image has that one's programs.
func TestForeignSystemCalls(t *testing.T) {
	if goruntime.GOARCH != "amd64" {
		t.Skip(&runtime.Unsupported{Driver: "oci", Reason: "the calls are machine code for amd64"})
	}
	for _, program := range []string{"crun", "runc"} {
		t.Run(program, func(t *testing.T) {
			d, err := New(Options{Dir: t.TempDir(), CgroupParent: cgroupParent(), Runtimes: []string{need(t, program)}})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			for name, code := range foreignCalls() {
				image := runtimetest.Image(t, runtimetest.Workload(t))
				if err := os.WriteFile(filepath.Join(image, "call"), elf.Executable(62, code), 0o755); err != nil {
					t.Fatal(err)
				}
				run := func(id string, seccomp runtime.Seccomp) int {
					h, err := d.Start(t.Context(), runtime.Spec{ID: runtime.TaskID(name + id + ".main.1"), Args: []string{"/call"}, Seccomp: seccomp,
						RootFS: []runtime.Mount{runtime.Overlay(image)}})
					if err != nil {
						t.Fatal(err)
					}
					defer d.Remove(t.Context(), h)
					e, err := d.Wait(t.Context(), h)
					if err != nil {
						t.Fatal(err)
					}
					return e.Code
				}
				free := run("-free", runtime.SeccompUnconfined)
				for _, id := range []string{"-first", "-again"} { // the second time with what was compiled for the first
					if code := run(id, runtime.SeccompDefault); code == 0 || free == 0 && code != 128+31 {
						t.Errorf("%s: ends with %d, and with no filter with %d", name, code, free)
					}
				}
				loader := filepath.Join(image, "usr", "lib", "ld-linux.so.2")
				if err := os.MkdirAll(filepath.Dir(loader), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(loader, nil, 0o755); err != nil {
					t.Fatal(err)
				}
				if code := run("-theirs", runtime.SeccompDefault); code != free {
					t.Errorf("%s: with programs of that architecture it ends with %d, and with no filter with %d", name, code, free)
				}
			}
		})
	}
}

// An image leads the search for its loaders nowhere else.
func TestForeignLoaders(t *testing.T) {
	for name, make := range map[string]func(root string) error{
		"none": func(string) error { return nil },
		"outside": func(root string) error {
			return os.Symlink(filepath.Join(root, "..", "outside"), filepath.Join(root, "lib"))
		},
		"above": func(root string) error { return os.Symlink("../outside", filepath.Join(root, "lib")) },
	} {
		dir := t.TempDir()
		root, outside := filepath.Join(dir, "root"), filepath.Join(dir, "outside")
		for _, d := range []string{root, outside} {
			if err := os.Mkdir(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range foreignLoaders() {
			if err := os.WriteFile(filepath.Join(outside, l), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := make(root); err != nil {
			t.Fatal(err)
		}
		if hasForeign(root) {
			t.Errorf("%s: the image has foreign programs", name)
		}
	}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "usr", "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("usr/lib", filepath.Join(root, "lib")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere", filepath.Join(root, "lib", "ld-linux-armhf.so.3")); err != nil {
		t.Fatal(err)
	}
	if !hasForeign(root) {
		t.Error("a loader is not found")
	}
}
