//go:build linux

package oci

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/probe"
	"skerry.dev/skerry/runtime/runtimetest"
	"skerry.dev/skerry/wire"
)

// attacked runs a test with a driver for each runtime, and with the program that its self-test runs in containers.
func attacked(t *testing.T, test func(t *testing.T, d *Driver, program []byte)) {
	program, ok := probe.Program(goruntime.GOARCH)
	if !ok {
		t.Skip(&runtime.Unsupported{Driver: "oci", Reason: "there is no self-test for " + goruntime.GOARCH})
	}
	for _, name := range []string{"crun", "runc"} {
		t.Run(name, func(t *testing.T) {
			need(t, name)
			if name == "crun" {
				runtimetest.Hybrid(t, false)
			}
			d, err := New(Options{Dir: t.TempDir(), CgroupParent: cgroupParent(), Runtimes: []string{name}})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if r := d.Check(t.Context()); !r.Passed {
				t.Fatalf("%+v", r)
			}
			test(t, d, program)
		})
	}
}

// An image whose directories are links to the host: nothing is written there, whichever runtime it is.
func TestLinksOfAnImage(t *testing.T) {
	attacked(t, func(t *testing.T, d *Driver, program []byte) {
		for i, link := range []string{"dev", "proc", "sys", "etc", "data", "etc/hosts", "data/in", "data/file", "run"} {
			host := t.TempDir()
			if err := os.Chmod(host, 0o777); err != nil {
				t.Fatal(err)
			}
			layer, source := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(layer, "probe"), program, 0o755); err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(layer, link)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(host, at); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(source, "file")
			if err := os.WriteFile(file, []byte("config"), 0o644); err != nil {
				t.Fatal(err)
			}
			spec := runtime.Spec{
				ID: runtime.TaskID(fmt.Sprintf("links.main.%d", i)), RootFS: []runtime.Mount{runtime.Overlay(layer)}, Args: []string{"/probe"},
				Hostname: "web-r1", Network: &wire.Attachment{},
				Mounts: []runtime.Mount{{Type: "bind", Source: source, Target: "/run/skerry"}, {Type: "bind", Source: source, Target: "/data/in"}, {Type: "bind", Source: file, Target: "/data/file"},
					{Type: "tmpfs", Target: "/data/new/place"}},
			}
			h, err := d.Start(t.Context(), spec)
			if err != nil {
				t.Errorf("%s: %v", link, err)
			} else {
				if exit, err := d.Wait(t.Context(), h); err != nil || exit.Code != probe.Code {
					t.Errorf("%s: %+v, %v", link, exit, err)
				}
				if err := d.Remove(t.Context(), h); err != nil {
					t.Error(err)
				}
			}
			var left []string
			_ = filepath.WalkDir(host, func(path string, _ os.DirEntry, _ error) error {
				left = append(left, strings.TrimPrefix(path, host))
				return nil
			})
			if len(left) > 1 {
				t.Errorf("%s: the host has %q", link, left[1:])
			}
		}
	})
}

// A working directory that the runtime has open itself, of the manifest or the image, leads nowhere.
func TestWorkingDirectoryByDescriptor(t *testing.T) {
	attacked(t, func(t *testing.T, d *Driver, program []byte) {
		layer := t.TempDir()
		if err := errors.Join(os.WriteFile(filepath.Join(layer, "probe"), program, 0o755), os.Symlink("/proc/self/fd/7", filepath.Join(layer, "link"))); err != nil {
			t.Fatal(err)
		}
		for i, dir := range []string{"/proc/self/fd/3", "/proc/self/fd/5", "/proc/self/fd/6", "/proc/self/fd/7", "/proc/self/fd/8", "/proc/self/fd/9", "/proc/self/fd/10", "/link"} {
			h, err := d.Start(t.Context(), runtime.Spec{
				ID: runtime.TaskID(fmt.Sprintf("cwd.main.%d", i)), RootFS: []runtime.Mount{runtime.Overlay(layer)}, Args: []string{"/probe"}, Dir: dir,
			})
			if err == nil {
				t.Errorf("it started in %s", dir)
				_, err := d.Wait(t.Context(), h)
				if err = errors.Join(err, d.Remove(t.Context(), h)); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func TestClosesDescriptors(t *testing.T) {
	for line, want := range map[string]bool{"runc version 1.1.5+ds1": false, "runc version 1.1.11": false, "runc version 1.1.12": true, "runc version 1.2.0-rc.1": true, "runc version 2.0.0": true, "": false, "x": false} {
		if got := closesDescriptors(line); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}
