//go:build linux

package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"skerry.dev/skerry/artifact/imageref"
)

// compile makes a static executable for an architecture.
func compile(t *testing.T, arch string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { println(1) }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", "web", "main.go")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "web")
}

func TestBuildExecutable(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{})
	bin := compile(t, "arm64")
	o := BuildOptions{Source: bin, Tag: "shop/web:1", Cmd: []string{"serve"}, Env: []string{"A=b"}, ExposedPorts: []string{"8080", "53/udp"}, Workdir: "/tmp", Labels: map[string]string{"x": "y"}}
	img, err := s.Build(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if img.Platform != arm64 || strings.Join(img.Args(), " ") != "/web serve" || strings.Join(img.ExposedPorts, " ") != "53/udp 8080/tcp" {
		t.Errorf("%+v", img)
	}
	if err := os.Chtimes(bin, time.Now(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	again, err := openStore(t, Options{}).Build(ctx, o)
	if err != nil || again.Digest != img.Digest {
		t.Errorf("built again it is %s and was %s (%v)", again.Digest, img.Digest, err)
	}
	dirs, err := s.RootFS(ctx, img.Digest, arm64)
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"web": 0o755, "etc/passwd": 0o644, "tmp": os.ModeDir | os.ModeSticky | 0o777} {
		if st, err := os.Stat(filepath.Join(dirs[0], name)); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	// For another architecture under the same name.
	o2 := BuildOptions{Source: compile(t, "amd64"), Tag: "shop/web:1", Index: true}
	both, err := s.Build(ctx, o2)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Platform{arm64, amd64} {
		if got, err := s.Pull(ctx, "shop/web:1", p, nil); err != nil || got.Platform != p || got.Digest != both.Digest {
			t.Errorf("%s: %+v, %v", p, got, err)
		}
	}
	o.Platform = Platform{OS: "linux", Arch: "riscv64"}
	if _, err := s.Build(ctx, o); err == nil || !strings.Contains(err.Error(), "arm64") {
		t.Errorf("wrong platform: %v", err)
	}
	for name, o := range map[string]BuildOptions{
		"no source":    {Source: bin + "x", Tag: "a"},
		"no tag":       {Source: bin},
		"text":         {Source: filepath.Join(filepath.Dir(bin), "main.go"), Tag: "a"},
		"dynamic":      {Source: "/bin/ls", Tag: "a"},
		"env":          {Source: bin, Tag: "a", Env: []string{"x"}},
		"port":         {Source: bin, Tag: "a", ExposedPorts: []string{"http"}},
		"workdir":      {Source: bin, Tag: "a", Workdir: "x"},
		"digest":       {Source: bin, Tag: "a@sha256:" + strings.Repeat("a", 64)},
		"certificates": {Source: bin, Tag: "a", CACertificates: bin},
	} {
		if _, err := s.Build(ctx, o); err == nil {
			t.Errorf("%s: built", name)
		} else {
			t.Log(err)
		}
	}
	if es := s.List(); len(es) != 1 {
		t.Errorf("names %+v", es)
	}
}

func TestBuildFolder(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{})
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "etc"), 0o750), os.WriteFile(filepath.Join(dir, "etc", "conf"), []byte("x"), 0o640),
		os.Symlink("etc/conf", filepath.Join(dir, "link")), os.WriteFile(filepath.Join(dir, "su"), nil, 0o755), os.Chmod(filepath.Join(dir, "su"), 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Build(ctx, BuildOptions{Source: dir, Tag: "a"}); err == nil || !strings.Contains(err.Error(), "platform") {
		t.Errorf("without a platform: %v", err)
	}
	img, err := s.Build(ctx, BuildOptions{Source: dir, Tag: "a", Platform: amd64, Cmd: []string{"/su"}})
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := s.RootFS(ctx, img.Digest, amd64)
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"etc": os.ModeDir | 0o750, "etc/conf": 0o640, "link": os.ModeSymlink | 0o777, "su": os.ModeSetuid | 0o755} {
		if st, err := os.Lstat(filepath.Join(dirs[0], name)); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".wh.x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Build(ctx, BuildOptions{Source: dir, Tag: "b", Platform: amd64}); err == nil {
		t.Error("a whiteout was taken for a file")
	}
}

func TestExportImport(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{})
	addImage(t, s, "r.io/a:1", amd64, gz, layerTar(t, entry{kind: tar.TypeReg, name: "f", body: "x"}))
	addImage(t, s, "b:2", arm64, zst, layerTar(t, entry{kind: tar.TypeReg, name: "g", body: "x"}))
	var out, same bytes.Buffer
	if err := s.Export(ctx, &out, "r.io/a:1", "b:2"); err != nil {
		t.Fatal(err)
	}
	if err := s.Export(ctx, &same, "r.io/a:1", "b:2"); err != nil || !bytes.Equal(out.Bytes(), same.Bytes()) {
		t.Errorf("two exports differ (%v)", err)
	}
	for name, b := range map[string][]byte{"plain": out.Bytes(), "gzip": gz(out.Bytes())} {
		to := openStore(t, Options{})
		names, err := to.Import(ctx, bytes.NewReader(b), "")
		if err != nil || strings.Join(names, " ") != "r.io/a:1 docker.io/library/b:2" {
			t.Fatalf("%s: %v, %v", name, names, err)
		}
		img, err := to.Pull(ctx, "b:2", arm64, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.RootFS(ctx, img.Digest, arm64); err != nil {
			t.Error(err)
		}
	}
	to := openStore(t, Options{})
	if _, err := to.Import(ctx, bytes.NewReader(out.Bytes()), "x:1"); err == nil {
		t.Error("one name for two images")
	}
	for n := 0; n < out.Len(); n += 700 {
		to := openStore(t, Options{})
		if names, err := to.Import(ctx, bytes.NewReader(out.Bytes()[:n]), ""); err == nil {
			// Only what follows the last file may be missing.
			if len(names) != 2 || out.Len()-n > 1024+700 {
				t.Errorf("cut at %d of %d: %v", n, out.Len(), names)
			}
			break
		} else if len(to.List()) > 0 {
			t.Fatalf("cut at %d: half-named", n)
		}
	}
	if err := s.Export(ctx, &out, "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("nothing: %v", err)
	}
}

func TestImportDockerArchive(t *testing.T) {
	ctx := context.Background()
	img, err := random.Image(10_000, 2)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := gname.NewTag("team/app:7")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := tarball.Write(tag, img, &b); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, Options{})
	names, err := s.Import(ctx, &b, "")
	if err != nil || strings.Join(names, " ") != "docker.io/team/app:7" {
		t.Fatalf("%v, %v", names, err)
	}
	d, _ := s.Lookup(imageref.Ref{Registry: "docker.io", Repository: "team/app", Tag: "7"})
	if dirs, err := s.RootFS(ctx, d, Platform{}); err != nil || len(dirs) != 2 {
		t.Errorf("%v, %v", dirs, err)
	}
}

func TestImportRefuses(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{})
	for name, b := range map[string][]byte{
		"empty":        nil,
		"text":         []byte("hello"),
		"empty tar":    layerTar(t),
		"other tar":    layerTar(t, entry{kind: tar.TypeReg, name: "readme", body: "x"}),
		"dot dot":      layerTar(t, entry{kind: tar.TypeReg, name: "../evil", body: "x"}),
		"link out":     layerTar(t, entry{kind: tar.TypeSymlink, name: "a", link: "../../evil"}),
		"device":       layerTar(t, entry{kind: tar.TypeChar, name: "a"}),
		"huge":         hugeHeader(t),
		"wrong digest": layerTar(t, entry{kind: tar.TypeReg, name: "blobs/sha256/" + strings.Repeat("a", 64), body: "x"}),
		"lacks blob":   layerTar(t, entry{kind: tar.TypeReg, name: "index.json", body: `{"schemaVersion":2,"manifests":[{"digest":"sha256:` + strings.Repeat("a", 64) + `","size":3}]}`}),
		"lacks layer":  layerTar(t, entry{kind: tar.TypeReg, name: "manifest.json", body: `[{"Config":"c","Layers":["l"]}]`}, entry{kind: tar.TypeReg, name: "c", body: `{"rootfs":{"diff_ids":["sha256:` + strings.Repeat("a", 64) + `"]}}`}),
		"layer out":    layerTar(t, entry{kind: tar.TypeReg, name: "manifest.json", body: `[{"Config":"../../etc/passwd","Layers":[]}]`}),
		"link loop":    layerTar(t, entry{kind: tar.TypeSymlink, name: "c", link: "c"}, entry{kind: tar.TypeReg, name: "manifest.json", body: `[{"Config":"c","Layers":[]}]`}),
	} {
		if names, err := s.Import(ctx, bytes.NewReader(b), ""); err == nil {
			t.Errorf("%s: %v", name, names)
		} else if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrDigest) && !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(s.List()) > 0 {
		t.Error("something was named")
	}
}

func TestOpenCleansUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second opener: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "tmp", "unpack-x", "fs"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s.Close()
	if s, err = Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if es, _ := os.ReadDir(filepath.Join(dir, "tmp")); len(es) > 0 {
		t.Errorf("left in tmp: %v", es)
	}
	// A blob that the medium has changed is noticed, and fetched again next time.
	d := addImage(t, s, "a", amd64, gz, layerTar(t))
	if err := os.WriteFile(s.blobPath(d), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Image(d, amd64); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged manifest: %v", err)
	}
	if es := s.List(); es[0].Broken == "" {
		t.Errorf("list %+v", es)
	}
	if err := s.Tag("none", "b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("tag nothing: %v", err)
	}
}
