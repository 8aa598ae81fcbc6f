package artifact

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

// TestBuildKernel makes images of kernels, which are known by what is in them.
func TestBuildKernel(t *testing.T) {
	s := openStore(t, Options{})
	kernel := testenv.Unikernel(t, "..")
	linux := filepath.Join(t.TempDir(), "vmlinuz")
	image := make([]byte, 0x400)
	copy(image[0x202:], "HdrS")
	if err := os.WriteFile(linux, image, 0o644); err != nil {
		t.Fatal(err)
	}
	own, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		source   string
		platform Platform
		want     string
	}{
		"pvh":               {source: kernel, want: "none/amd64"},
		"linux":             {source: linux, want: "none/amd64"},
		"told":              {source: linux, platform: Platform{OS: "none", Arch: "amd64"}, want: "none/amd64"},
		"of another":        {source: kernel, platform: Platform{OS: "none", Arch: "arm64"}, want: "not for none/arm64"},
		"no kernel at all":  {source: kernel, platform: Platform{OS: "linux", Arch: "amd64"}, want: "not for linux/amd64"},
		"told of a program": {source: own, platform: Platform{OS: "none", Arch: HostPlatform().Arch}, want: "none/" + HostPlatform().Arch},
	} {
		img, err := s.Build(t.Context(), BuildOptions{Source: c.source, Tag: "test/kernel:1", Platform: c.platform})
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if img.Platform.String() != c.want || !slices.Equal(img.Entrypoint, []string{"/" + filepath.Base(c.source)}) {
			t.Errorf("%s: %s, %q", name, img.Platform, img.Entrypoint)
		}
		if _, err := s.Image(img.Digest, HostPlatform()); err == nil || !strings.Contains(err.Error(), "runtime: unikernel") {
			t.Errorf("%s: as a container: %v", name, err)
		}
	}
}

// TestBuildDisk makes images of disks, which say for which machines they are only when they are told.
func TestBuildDisk(t *testing.T) {
	s := openStore(t, Options{})
	raw := make([]byte, 2048)
	copy(raw[510:], "\x55\xaa")
	for name, content := range map[string][]byte{"disk.img": raw, "disk.qcow2": append([]byte("QFI\xfb"), make([]byte, 2048)...)} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
		img, err := s.Build(t.Context(), BuildOptions{Source: file, Tag: "test/disk:1", Platform: HostPlatform()})
		if err != nil {
			t.Fatal(err)
		}
		dirs, err := s.RootFS(t.Context(), img.Digest, HostPlatform())
		if err != nil {
			t.Fatal(err)
		}
		if have, err := os.ReadFile(filepath.Join(dirs[0], DiskDir, name)); err != nil || !bytes.Equal(have, content) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := s.Build(t.Context(), BuildOptions{Source: file, Tag: "test/disk:2"}); err == nil || !strings.Contains(err.Error(), "name one") {
			t.Errorf("%s, for nobody knows what: %v", name, err)
		}
	}
}

// FuzzKernelPlatform looks at files that anybody may have made.
func FuzzKernelPlatform(f *testing.F) {
	note := binary.LittleEndian.AppendUint32(nil, 4)
	note = binary.LittleEndian.AppendUint32(note, 4)
	note = binary.LittleEndian.AppendUint32(note, pvhEntry)
	f.Add(append(note, "Xen\x00\x00\x00\x10\x00"...))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		hasEntryNote(data)
		kernelPlatform(bytes.NewReader(data))
	})
}
