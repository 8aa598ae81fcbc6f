//go:build linux

package wasm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry/internal/wasmcode"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
)

// A volume of a module's may hold a link to the worker's own program. What is mounted below the volume must not come to lie over that,
// for it would be started in the module's place, as root.
func TestLinksInVolumes(t *testing.T) {
	r := newRig(t, map[string][]byte{"fine": wasmcode.Module{Text: "ready\n", Body: wasmcode.Print}.Encode()})
	volume, marker, script := t.TempDir(), filepath.Join(t.TempDir(), "marker"), filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n: > "+marker+"\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	program := runtimetest.Program()
	for name, to := range map[string]string{"program": program, "folder": filepath.Dir(program)} {
		if err := os.Symlink(to, filepath.Join(volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	for i, at := range []string{"/data/program", "/data/folder/" + filepath.Base(program), "/data/program"} { // the last one perhaps by a spare
		sp := r.spec("/fine")
		sp.ID += runtime.TaskID(fmt.Sprint("-", i))
		sp.Mounts = []runtime.Mount{{Type: "bind", Source: volume, Target: "/data"}, {Type: "bind", Source: script, Target: at, ReadOnly: true}}
		h, err := r.Start(t.Context(), sp)
		if err == nil || !strings.Contains(err.Error(), "symbolic link") {
			t.Errorf("%s: %v", at, err)
		}
		if err == nil {
			if _, err := r.Wait(t.Context(), h); err != nil {
				t.Error(err)
			}
			if err := r.Remove(t.Context(), h); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(marker); err == nil {
			t.Fatalf("%s: the script ran on the host in place of the worker's program", at)
		}
	}
	sp := r.spec("/fine")
	sp.Mounts = []runtime.Mount{{Type: "bind", Source: volume, Target: "/data"}, {Type: "bind", Source: script, Target: "/other/script", ReadOnly: true}}
	if exit, err := r.Wait(t.Context(), r.start(sp)); err != nil || exit.Code != 0 {
		t.Errorf("%+v, %v", exit, err)
	}
}
