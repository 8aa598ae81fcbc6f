package tier

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/spec"
)

// TestPlatformsOfImages gives services that name images of a real store, and where they may run.
func TestPlatformsOfImages(t *testing.T) {
	st, err := artifact.Open(filepath.Join(t.TempDir(), "images"), artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	images := NewImages(st, artifact.Limits{}, false, nil)
	src := t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "file"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	linux := func(arch string) artifact.Platform { return artifact.Platform{OS: "linux", Arch: arch} }
	for tag, list := range map[string][]artifact.Platform{
		"small": {linux("riscv64")}, "many": {linux("amd64"), linux("arm64"), linux("riscv64")}, "big": {linux("amd64"), linux("arm64")},
		"module": {artifact.WasmPlatform()}, "both": {linux("arm64"), artifact.WasmPlatform()}, "kernel": {artifact.BarePlatform(linux("amd64"))}, "foreign": {{OS: "windows", Arch: "amd64"}},
	} {
		for _, p := range list {
			if _, err := st.Build(t.Context(), artifact.BuildOptions{Source: src, Tag: imageref.BuiltIn + "/test/" + tag + ":1", Platform: p, Index: len(list) > 1, Entrypoint: []string{"/file"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		main, side string
		runtime    string
		arch       []string
		want       []string // architectures
		runtimes   string
		refused    string
	}{
		{main: "many", want: []string{"amd64", "arm64", "riscv64"}, runtimes: "oci containerd gvisor microvm"},
		{main: "small", want: []string{"riscv64"}, runtimes: "oci containerd gvisor microvm"},
		{main: "many", side: "big", want: []string{"amd64", "arm64"}, runtimes: "oci containerd gvisor"},
		{main: "module", runtimes: "wasm"},
		{main: "both", runtimes: "oci containerd wasm gvisor microvm"},
		{main: "both", runtime: "oci", want: []string{"arm64"}, runtimes: "oci"},
		{main: "kernel", want: []string{"amd64"}, runtimes: "unikernel"},
		{main: "many", arch: []string{"riscv64", "arm"}, want: []string{"riscv64"}, runtimes: "oci containerd gvisor microvm"},
		{main: "small", side: "big", refused: "image test/big:1 is built for linux/amd64, linux/arm64, and its other images for linux/riscv64"},
		{main: "big", arch: []string{"riscv64"}, refused: "service s is to run on riscv64, and image test/big:1 is built for linux/amd64, linux/arm64"},
		{main: "foreign", refused: "no runtime can run service s, whose image test/foreign:1 is built for windows/amd64"},
		{main: "big", runtime: "wasm", refused: "image test/big:1 is built for linux/amd64, linux/arm64; runtime wasm of service s needs wasip1/ARCH"},
		{main: "module", side: "module", refused: ""},
	} {
		s := spec.ServiceSpec{Name: "s", Runtime: tt.runtime, Platforms: []string{"said"}, Placement: spec.Placement{Arch: tt.arch}}
		s.Image = "test/" + tt.main + ":1"
		if tt.side != "" {
			s.Sidecars = []spec.SideContainer{{Name: "side", Container: spec.Container{Image: "test/" + tt.side + ":1"}}}
		}
		app := spec.Application{APIVersion: "skerry/v1", Kind: "Application", Metadata: spec.Metadata{Name: "app"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{s}}}
		digests, err := ResolveImages(t.Context(), images, &app)
		got := &app.Spec.Services[0]
		switch {
		case tt.refused != "":
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%s, %s: %v does not tell %q", tt.main, tt.side, err, tt.refused)
			}
		case err != nil || !slices.Equal(got.Architectures(), tt.want) || tt.runtimes != "" && strings.Join(got.Runtimes(), " ") != tt.runtimes || digests[s.Image] == "":
			t.Errorf("%s, %s: %v in %v; %v, %v", tt.main, tt.side, got.Architectures(), got.Runtimes(), digests, err)
		}
	}
}
