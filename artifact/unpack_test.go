//go:build linux

package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/artifact/imageref"
)

func openStore(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "images"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// entry is one line of a layer: a kind, a name, and what it takes.
type entry struct {
	kind byte
	name string
	link string
	body string
	mode int64
	pax  map[string]string
}

func layerTar(t testing.TB, es ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range es {
		h := &tar.Header{Typeflag: e.kind, Name: e.name, Linkname: e.link, Mode: e.mode, Size: int64(len(e.body)), ModTime: time.Unix(1000, 0), PAXRecords: e.pax}
		if h.Mode == 0 {
			h.Mode = 0o644
			if e.kind == tar.TypeDir {
				h.Mode = 0o755
			}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gz(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

func zst(b []byte) []byte {
	w, _ := zstd.NewWriter(nil)
	return w.EncodeAll(b, nil)
}

// addImage puts an image of plain layers together and names it.
func addImage(t testing.TB, s *Store, ref string, p Platform, compress func([]byte) []byte, layers ...[]byte) digest.Digest {
	t.Helper()
	put := func(b []byte) ocispec.Descriptor {
		d, err := s.putBlob(b, "")
		if err != nil {
			t.Fatal(err)
		}
		return ocispec.Descriptor{Digest: d, Size: int64(len(b))}
	}
	c := ocispec.Image{Platform: ocispec.Platform{OS: p.OS, Architecture: p.Arch, Variant: p.Variant}, Config: ocispec.ImageConfig{Cmd: []string{"/x"}}}
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	for _, l := range layers {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, digest.FromBytes(l))
		d := put(compress(l))
		d.MediaType = ocispec.MediaTypeImageLayerGzip
		m.Layers = append(m.Layers, d)
	}
	m.Config = put(mustJSON(c))
	m.Config.MediaType = ocispec.MediaTypeImageConfig
	d := put(mustJSON(m)).Digest
	r, err := imageref.Parse(ref)
	if err != nil {
		t.Fatal(err)
	}
	for desc := range s.under(r, slices.Values([]digest.Digest{d})) { // as a pull does
		if err := s.proofs.note(r, desc.Digest); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.setName(r, d); err != nil {
		t.Fatal(err)
	}
	return d
}

func plain(b []byte) []byte { return b }

func unpackOne(t testing.TB, layer []byte, o Options) (string, error) {
	t.Helper()
	s := openStore(t, o)
	d := addImage(t, s, "a", HostPlatform(), gz, layer)
	dirs, err := s.RootFS(context.Background(), d, HostPlatform())
	if err != nil {
		if left, _ := os.ReadDir(filepath.Join(s.dir, "tmp")); len(left) > 0 {
			t.Errorf("left in tmp: %v", left)
		}
		if left, _ := os.ReadDir(filepath.Join(s.dir, "layers")); len(left) > 0 {
			t.Errorf("left in layers: %v", left)
		}
		return "", err
	}
	return dirs[0], nil
}

func TestUnpackKeepsAttributes(t *testing.T) {
	dir, err := unpackOne(t, layerTar(t,
		entry{kind: tar.TypeDir, name: "./", mode: 0o755},
		entry{kind: tar.TypeDir, name: "bin/", mode: 0o1777},
		entry{kind: tar.TypeReg, name: "bin/su", body: "x", mode: 0o4755},
		entry{kind: tar.TypeReg, name: "bin/ping", body: "y", mode: 0o755, pax: map[string]string{
			"SCHILY.xattr.security.capability":      "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
			"SCHILY.xattr.trusted.overlay.redirect": "/etc",
			"SCHILY.xattr.user.note":                "hello"}},
		entry{kind: tar.TypeLink, name: "bin/su2", link: "bin/su"},
		entry{kind: tar.TypeSymlink, name: "etc", link: "/somewhere/absolute"},
		entry{kind: tar.TypeFifo, name: "pipe", mode: 0o622},
		entry{kind: tar.TypeReg, name: "deep/down/implied", body: "z"},
	), Options{})
	if err != nil {
		t.Fatal(err)
	}
	st := func(name string) fs.FileInfo {
		i, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	if m := st("bin/su").Mode(); m != fs.ModeSetuid|0o755 {
		t.Errorf("su has mode %v", m)
	}
	if m := st("bin").Mode(); m != fs.ModeDir|fs.ModeSticky|0o777 {
		t.Errorf("bin has mode %v", m)
	}
	if m := st("deep/down").Mode(); m != fs.ModeDir|0o755 {
		t.Errorf("an implied folder has mode %v", m)
	}
	if m := st("pipe").Mode(); m != fs.ModeNamedPipe|0o622 {
		t.Errorf("pipe has mode %v", m)
	}
	if st("bin").ModTime().Unix() != 1000 || st("bin/su").ModTime().Unix() != 1000 || st("etc").ModTime().Unix() != 1000 {
		t.Error("times were not kept")
	}
	if !os.SameFile(st("bin/su"), st("bin/su2")) {
		t.Error("the hard link is a copy")
	}
	if to, _ := os.Readlink(filepath.Join(dir, "etc")); to != "/somewhere/absolute" {
		t.Errorf("etc points to %q", to)
	}
	buf := make([]byte, 64)
	for attr, want := range map[string]bool{"security.capability": true, "trusted.overlay.redirect": false} {
		if n, err := unix.Lgetxattr(filepath.Join(dir, "bin/ping"), attr, buf); (err == nil && n > 0) != want {
			t.Errorf("xattr %s: %d bytes, %v", attr, n, err)
		}
	}
}

func TestUnpackRefuses(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, es := range map[string][]entry{
		"dot dot":                  {{kind: tar.TypeReg, name: "../evil", body: "x"}},
		"dot dot inside":           {{kind: tar.TypeReg, name: "a/../../evil", body: "x"}},
		"through absolute symlink": {{kind: tar.TypeSymlink, name: "d", link: outside}, {kind: tar.TypeReg, name: "d/evil", body: "x"}},
		"through relative symlink": {{kind: tar.TypeSymlink, name: "d", link: "../../../../../../../.." + outside}, {kind: tar.TypeReg, name: "d/evil", body: "x"}},
		"mkdir through symlink":    {{kind: tar.TypeSymlink, name: "d", link: outside}, {kind: tar.TypeReg, name: "d/sub/evil", body: "x"}},
		"hard link to dot dot":     {{kind: tar.TypeLink, name: "l", link: "../../../etc/passwd"}},
		"hard link to absolute":    {{kind: tar.TypeLink, name: "l", link: "/etc/passwd"}},
		"hard link over symlink":   {{kind: tar.TypeSymlink, name: "d", link: "/etc"}, {kind: tar.TypeLink, name: "l", link: "d/passwd"}},
		"hard link to folder":      {{kind: tar.TypeDir, name: "d/"}, {kind: tar.TypeLink, name: "l", link: "d"}},
		"hard link to nothing":     {{kind: tar.TypeLink, name: "l", link: "none"}},
		"device":                   {{kind: tar.TypeChar, name: "null"}},
		"block device":             {{kind: tar.TypeBlock, name: "disk"}},
		"whiteout of dot dot":      {{kind: tar.TypeReg, name: "a/.wh..."}, {kind: tar.TypeReg, name: ".wh..", body: ""}},
		"whiteout through symlink": {{kind: tar.TypeSymlink, name: "d", link: outside}, {kind: tar.TypeReg, name: "d/.wh.x"}},
		"opaque through symlink":   {{kind: tar.TypeSymlink, name: "d", link: outside}, {kind: tar.TypeReg, name: "d/.wh..wh..opq"}},
		"file as folder":           {{kind: tar.TypeReg, name: "f", body: "x"}, {kind: tar.TypeReg, name: "f/g", body: "x"}},
		"root as file":             {{kind: tar.TypeReg, name: "./.", body: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := unpackOne(t, layerTar(t, es...), Options{})
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("error %v", err)
			}
			if left, _ := os.ReadDir(outside); len(left) > 0 {
				t.Fatalf("it wrote outside: %v", left)
			}
			var st unix.Stat_t
			if unix.Stat(outside, &st) != nil {
				t.Fatal("it removed what is outside")
			}
			if n, err := unix.Getxattr(outside, "trusted.overlay.opaque", make([]byte, 8)); err == nil {
				t.Fatalf("it marked what is outside: %d", n)
			}
		})
	}
}

func TestUnpackLimits(t *testing.T) {
	bomb := layerTar(t, entry{kind: tar.TypeReg, name: "zeros", body: strings.Repeat("\x00", 8<<20)})
	if _, err := unpackOne(t, bomb, Options{MaxLayer: 1 << 20}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a bomb: %v", err)
	}
	// The header promises what never comes.
	if _, err := unpackOne(t, append(layerTar(t)[:0:0], hugeHeader(t)...), Options{MaxLayer: 1 << 20}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a huge header: %v", err)
	}
	var es []entry
	for i := range 100 {
		es = append(es, entry{kind: tar.TypeReg, name: fmt.Sprint(i)})
	}
	if _, err := unpackOne(t, layerTar(t, es...), Options{MaxEntries: 50}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("many files: %v", err)
	}
	whole := layerTar(t, entry{kind: tar.TypeReg, name: "a", body: strings.Repeat("x", 5000)})
	if _, err := unpackOne(t, whole[:3000], Options{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("cut short: %v", err)
	}
}

func hugeHeader(t *testing.T) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "huge", Size: 1 << 50, Format: tar.FormatPAX}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpackReplaces(t *testing.T) {
	dir, err := unpackOne(t, layerTar(t,
		entry{kind: tar.TypeReg, name: "x", body: "file"},
		entry{kind: tar.TypeDir, name: "x/"},
		entry{kind: tar.TypeReg, name: "x/in", body: "in"},
		entry{kind: tar.TypeDir, name: "y/"},
		entry{kind: tar.TypeReg, name: "y/in", body: "in"},
		entry{kind: tar.TypeSymlink, name: "y", link: "x"},
		entry{kind: tar.TypeReg, name: "y/through", body: "followed inside"},
		entry{kind: tar.TypeReg, name: "z", body: "one"},
		entry{kind: tar.TypeReg, name: "z", body: "two"},
	), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"x/in": "in", "x/through": "followed inside", "z": "two"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

func TestUnpackDevices(t *testing.T) {
	dir, err := unpackOne(t, layerTar(t, entry{kind: tar.TypeReg, name: "f"}), Options{AllowDevices: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = dir
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeChar, Name: "null", Mode: 0o666, Devmajor: 1, Devminor: 3})
	w.Close()
	if dir, err = unpackOne(t, b.Bytes(), Options{AllowDevices: true}); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(dir, "null"), &st); err != nil || st.Mode != unix.S_IFCHR|0o666 || st.Rdev != unix.Mkdev(1, 3) {
		t.Errorf("device %o %x, %v", st.Mode, st.Rdev, err)
	}
	b.Reset()
	w = tar.NewWriter(&b)
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeChar, Name: "hidden"})
	w.Close()
	if _, err := unpackOne(t, b.Bytes(), Options{AllowDevices: true}); !errors.Is(err, ErrInvalid) {
		t.Errorf("device 0:0: %v", err)
	}
}

// TestOverlay mounts three layers and looks at what a container would see.
func TestOverlay(t *testing.T) {
	layers := [][]byte{
		layerTar(t,
			entry{kind: tar.TypeReg, name: "keep", body: "keep"},
			entry{kind: tar.TypeReg, name: "gone", body: "gone"},
			entry{kind: tar.TypeReg, name: "dir/below", body: "below"},
			entry{kind: tar.TypeReg, name: "opaque/below", body: "below"},
			entry{kind: tar.TypeReg, name: "remade/below", body: "below"},
			entry{kind: tar.TypeReg, name: "remade2/below", body: "below"}),
		layerTar(t,
			entry{kind: tar.TypeReg, name: ".wh.gone"},
			entry{kind: tar.TypeReg, name: ".wh.never"},
			entry{kind: tar.TypeReg, name: ".wh..wh.plnk"},
			entry{kind: tar.TypeReg, name: "dir/.wh.below"},
			entry{kind: tar.TypeReg, name: "dir/above", body: "above"},
			entry{kind: tar.TypeDir, name: "opaque/"},
			entry{kind: tar.TypeReg, name: "opaque/.wh..wh..opq"},
			entry{kind: tar.TypeReg, name: "opaque/above", body: "above"},
			entry{kind: tar.TypeReg, name: ".wh.remade"},
			entry{kind: tar.TypeDir, name: "remade/"},
			entry{kind: tar.TypeReg, name: "remade/above", body: "above"},
			entry{kind: tar.TypeDir, name: "remade2/"},
			entry{kind: tar.TypeReg, name: "remade2/above", body: "above"},
			entry{kind: tar.TypeReg, name: ".wh.remade2"}),
		layerTar(t, entry{kind: tar.TypeReg, name: "top", body: "top"}),
	}
	for name, compress := range map[string]func([]byte) []byte{"gzip": gz, "zstd": zst, "plain": plain} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, Options{})
			d := addImage(t, s, "a", HostPlatform(), compress, layers...)
			lower, err := s.RootFS(context.Background(), d, HostPlatform())
			if err != nil {
				t.Fatal(err)
			}
			base := t.TempDir()
			if err := syscall.Mount("tmpfs", base, "tmpfs", 0, ""); err != nil { // an upper folder must not lie on an overlay
				t.Fatal(err)
			}
			defer syscall.Unmount(base, 0)
			for _, d := range []string{"up,per", "work", "merged"} {
				if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			merged := filepath.Join(base, "merged")
			for _, upper := range []string{filepath.Join(base, "up,per"), ""} {
				o, err := s.OverlayOptions(lower, upper, filepath.Join(base, "work"))
				if err != nil {
					t.Fatal(err)
				}
				if err := syscall.Mount("overlay", merged, "overlay", 0, o); err != nil {
					t.Fatalf("mount with %s: %v", o, err)
				}
				var got []string
				filepath.WalkDir(merged, func(p string, e fs.DirEntry, err error) error {
					if err == nil && !e.IsDir() {
						b, _ := os.ReadFile(p)
						rel, _ := filepath.Rel(merged, p)
						got = append(got, rel+"="+string(b))
					}
					return err
				})
				if err := syscall.Unmount(merged, 0); err != nil {
					t.Error(err)
				}
				slices.Sort(got)
				want := "dir/above=above keep=keep opaque/above=above remade/above=above remade2/above=above top=top"
				if strings.Join(got, " ") != want {
					t.Errorf("a container sees %q", got)
				}
			}
			one, err := s.OverlayOptions(lower[:1], "", "")
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mount("overlay", merged, "overlay", 0, one); err != nil {
				t.Errorf("one layer, read-only: %v", err)
			} else {
				syscall.Unmount(merged, 0)
			}
		})
	}
	s := openStore(t, Options{})
	if _, err := s.OverlayOptions(slices.Repeat([]string{strings.Repeat("x", 100)}, 60), "", ""); !errors.Is(err, ErrTooLarge) {
		t.Errorf("sixty layers: %v", err)
	}
}

func TestUnpackOnceAndAgain(t *testing.T) {
	s := openStore(t, Options{})
	layer := layerTar(t, entry{kind: tar.TypeReg, name: "f", body: "x"})
	d := addImage(t, s, "a", HostPlatform(), gz, layer)
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			_, err := s.RootFS(context.Background(), d, HostPlatform())
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	d2 := addImage(t, s, "b", HostPlatform(), gz, layerTar(t, entry{kind: tar.TypeReg, name: "g", body: "x"}))
	if _, err := s.RootFS(ctx, d2, HostPlatform()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := s.RootFS(context.Background(), d2, HostPlatform()); err != nil {
		t.Errorf("after a cancelled one: %v", err)
	}
}

func FuzzUnpack(f *testing.F) {
	for _, es := range [][]entry{
		{{kind: tar.TypeReg, name: "a", body: "x"}},
		{{kind: tar.TypeSymlink, name: "d", link: "/etc"}, {kind: tar.TypeReg, name: "d/e", body: "x"}},
		{{kind: tar.TypeDir, name: "d/"}, {kind: tar.TypeReg, name: "d/.wh..wh..opq"}, {kind: tar.TypeReg, name: ".wh.x"}},
		{{kind: tar.TypeReg, name: "a", body: "x"}, {kind: tar.TypeLink, name: "b", link: "a"}, {kind: tar.TypeDir, name: "a/"}},
	} {
		f.Add(layerTar(f, es...))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		base := t.TempDir()
		dir := filepath.Join(base, "x", "fs")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = unpackTar(bytes.NewReader(raw), dir, Options{MaxLayer: 1 << 20, MaxEntries: 100})
		for _, d := range []string{base, filepath.Join(base, "x")} {
			if es, _ := os.ReadDir(d); len(es) != 1 {
				t.Fatalf("written outside: %v", es)
			}
		}
	})
}

func BenchmarkUnpack(b *testing.B) {
	var es []entry
	for i := range 2000 {
		es = append(es, entry{kind: tar.TypeReg, name: fmt.Sprintf("dir%d/file%d", i/50, i), body: strings.Repeat("some text ", 1000)})
	}
	layer := layerTar(b, es...)
	for name, compress := range map[string]func([]byte) []byte{"gzip": gz, "zstd": zst} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(layer)))
			z := compress(layer)
			for b.Loop() {
				dir := b.TempDir()
				r, err := decompress(bytes.NewReader(z))
				if err != nil {
					b.Fatal(err)
				}
				if err := unpackTar(r, dir, Options{MaxLayer: 1 << 40, MaxEntries: 1 << 20}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
