//go:build linux

package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/artifact/imageref"
)

// blobsIn counts the blobs of a store.
func blobsIn(t testing.TB, s *Store) int {
	t.Helper()
	blobs, err := blobsOf(s)
	if err != nil {
		t.Fatal(err)
	}
	return len(blobs)
}

// spread writes the files of a tar below a directory.
func spread(t testing.TB, archive []byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "layout")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unpackTar(bytes.NewReader(archive), dir, Options{MaxLayer: 1 << 30, MaxEntries: 1000}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func exported(t testing.TB, names ...string) []byte {
	t.Helper()
	s := openStore(t, Options{})
	for i, n := range names {
		addImage(t, s, n, amd64, gz, layerTar(t, entry{kind: tar.TypeReg, name: "f", body: fmt.Sprint(i)}))
	}
	var out bytes.Buffer
	if err := s.Export(t.Context(), &out, names...); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestImportLayout(t *testing.T) {
	ctx := context.Background()
	dir := spread(t, exported(t, "team/app:7"))
	if what, err := Recognize(ctx, dir); what != LayoutFolder {
		t.Fatalf("recognized %v, want %v (%v)", what, LayoutFolder, err)
	}
	s := openStore(t, Options{})
	names, err := ImportLayout(ctx, s, dir, "")
	if want := []string{"docker.io/team/app:7"}; err != nil || !slices.Equal(names, want) {
		t.Fatalf("names are %q, want %q (%v)", names, want, err)
	}
	img, err := s.Pull(ctx, "team/app:7", amd64, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RootFS(ctx, img.Digest, amd64); err != nil {
		t.Errorf("its root file system: %v", err)
	}
	names, err = ImportLayout(ctx, openStore(t, Options{}), dir, "other:1")
	if want := []string{"docker.io/library/other:1"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("names are %q, want %q (%v)", names, want, err)
	}
}

func TestImportLayoutRefuses(t *testing.T) {
	archive := exported(t, "team/app:7")
	for name, harm := range map[string]func(blobs string) error{
		"a pipe": func(blobs string) error {
			return unix.Mkfifo(filepath.Join(blobs, strings.Repeat("a", 64)), 0o600)
		},
		"a link out": func(blobs string) error {
			return os.Symlink("/etc/passwd", filepath.Join(blobs, strings.Repeat("a", 64)))
		},
		"a wrong digest": func(blobs string) error {
			return os.WriteFile(filepath.Join(blobs, strings.Repeat("a", 64)), []byte("x"), 0o600)
		},
		"no digest":       func(blobs string) error { return os.WriteFile(filepath.Join(blobs, "x"), nil, 0o600) },
		"a missing blob":  func(blobs string) error { return removeOne(blobs) },
		"an index linked": func(blobs string) error { return relink(filepath.Join(blobs, "..", "..", "index.json")) },
		"blobs linked out": func(blobs string) error {
			if err := os.Rename(blobs, blobs+"2"); err != nil {
				return err
			}
			return os.Symlink("/etc", blobs)
		},
		"a large index": func(blobs string) error {
			return os.Truncate(filepath.Join(blobs, "..", "..", "index.json"), maxManifest+1)
		},
		"a large blob": func(blobs string) error {
			file := filepath.Join(blobs, strings.Repeat("a", 64))
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(file, 2<<20)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := spread(t, archive)
			if err := harm(filepath.Join(dir, "blobs", "sha256")); err != nil {
				t.Fatal(err)
			}
			s := openStore(t, Options{MaxLayer: 1 << 20})
			names, err := ImportLayout(t.Context(), s, dir, "")
			if err == nil || len(names) > 0 {
				t.Fatalf("names are %q, want a refusal", names)
			}
			t.Log(err)
			if n := blobsIn(t, s); n != 0 {
				t.Errorf("%d blobs stay of a layout that was refused, want none", n)
			}
		})
	}
}

func removeOne(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, list[0].Name()))
}

func relink(file string) error {
	if err := os.Rename(file, file+".real"); err != nil {
		return err
	}
	return os.Symlink(file+".real", file)
}

// TestImportChecksLayers: a layer that is not the one of the config is refused where the archive is taken in, and not by
// the worker that starts it.
func TestImportChecksLayers(t *testing.T) {
	layer := layerTar(t, entry{kind: tar.TypeReg, name: "f", body: "x"})
	bomb := gz(make([]byte, 3<<20))
	archive := func(diffID digest.Digest, layer []byte) []byte {
		return layerTar(t, entry{kind: tar.TypeReg, name: "l/layer.tar", body: string(layer)},
			entry{kind: tar.TypeReg, name: "c.json",
				body: `{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":["` + diffID.String() + `"]}}`},
			entry{kind: tar.TypeReg, name: "manifest.json", body: `[{"Config":"c.json","RepoTags":["app:1"],"Layers":["l/layer.tar"]}]`})
	}
	for name, c := range map[string]struct {
		raw  []byte
		want error
	}{
		"right":     {archive(digest.FromBytes(layer), layer), nil},
		"gzip":      {archive(digest.FromBytes(layer), gz(layer)), nil},
		"wrong":     {archive(digest.FromString("other"), layer), ErrDigest},
		"bomb":      {archive(digest.FromBytes(make([]byte, 3<<20)), bomb), ErrTooLarge},
		"large":     {archive(digest.FromBytes(layer), append(layer, make([]byte, 2<<20)...)), ErrTooLarge},
		"not a tar": {archive(digest.FromString("x"), []byte("x")), nil}, // the unpacker's matter
	} {
		s := openStore(t, Options{MaxLayer: 2 << 20})
		names, err := s.Import(t.Context(), bytes.NewReader(c.raw), "")
		if !errors.Is(err, c.want) || (err == nil) != (len(names) == 1) {
			t.Errorf("%s: names are %q and the error is %v, want %v", name, names, err, c.want)
		}
		if n := blobsIn(t, s); (n == 0) != (err != nil) {
			t.Errorf("%s: %d blobs stay, after %v", name, n, err)
		}
	}
}

// TestImportBounded: what a small archive unpacks to does not fill the disk.
func TestImportBounded(t *testing.T) {
	const size = 300 << 20
	var header bytes.Buffer
	if err := tar.NewWriter(&header).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "blob", Size: size, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	zeros := slices.Concat(zst(header.Bytes()), bytes.Repeat(zst(make([]byte, 1<<20)), size>>20), zst(make([]byte, 1024)))
	s := openStore(t, Options{})
	if _, err := s.Import(t.Context(), bytes.NewReader(zeros), ""); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d MiB of zeros: the error is %v, want %v", size>>20, err, ErrTooLarge)
	}
	// As GNU tar writes a file of 1 TiB with one block.
	old := make([]byte, 1024)
	copy(old, layerTar(t, entry{kind: tar.TypeReg, name: "blob"})[:512])
	old[156] = tar.TypeGNUSparse
	copy(old[257:], "ustar  \x00")
	copy(old[483:], fmt.Sprintf("%011o\x00", int64(1)<<30))
	sum := 0
	copy(old[148:156], "        ")
	for _, b := range old[:512] {
		sum += int(b)
	}
	copy(old[148:156], fmt.Sprintf("%06o\x00 ", sum))
	if _, err := s.Import(t.Context(), bytes.NewReader(old), ""); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "sparse") {
		t.Errorf("a sparse file: the error is %v, want one that says so", err)
	}
	tags := strings.TrimSuffix(strings.Repeat(`"web:1",`, maxArchiveTags+1), ",")
	many := layerTar(t, entry{kind: tar.TypeReg, name: "c.json", body: `{"os":"linux","architecture":"amd64","rootfs":{"type":"layers"}}`},
		entry{kind: tar.TypeReg, name: "manifest.json", body: `[{"Config":"c.json","RepoTags":[` + tags + `],"Layers":[]}]`})
	if _, err := s.Import(t.Context(), bytes.NewReader(many), ""); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d names: the error is %v, want %v", maxArchiveTags+1, err, ErrTooLarge)
	}
	if n := blobsIn(t, s); n != 0 {
		t.Errorf("%d blobs stay, want none", n)
	}
}

// TestRefusedImportLeavesOthers: what an archive has in common with an image of the store stays.
func TestRefusedImportLeavesOthers(t *testing.T) {
	s := openStore(t, Options{})
	raw := exported(t, "app:1")
	if _, err := s.Import(t.Context(), bytes.NewReader(raw), ""); err != nil {
		t.Fatal(err)
	}
	before := blobsIn(t, s)
	more := layerTar(t, entry{kind: tar.TypeReg, name: "blobs/sha256/" + strings.Repeat("a", 64), body: "x"})
	wrong := append(slices.Clone(raw[:len(raw)-1024]), more...)
	if _, err := s.Import(t.Context(), bytes.NewReader(wrong), ""); !errors.Is(err, ErrDigest) {
		t.Fatalf("the error is %v, want %v", err, ErrDigest)
	}
	if after := blobsIn(t, s); after != before {
		t.Errorf("%d blobs stay, want %d", after, before)
	}
}

// TestImportedDigests: no archive gives a name with a digest to something else, for such a name is believed.
func TestImportedDigests(t *testing.T) {
	const other = "app@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	docker := layerTar(t, entry{kind: tar.TypeReg, name: "c.json", body: `{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":[]}}`},
		entry{kind: tar.TypeReg, name: "manifest.json", body: `[{"Config":"c.json","RepoTags":["` + other + `"],"Layers":[]}]`})
	for name, c := range map[string]struct {
		raw      []byte
		fallback string
	}{"docker": {docker, ""}, "the name given": {exported(t, "app:1"), other}} {
		s := openStore(t, Options{})
		if names, err := s.Import(t.Context(), bytes.NewReader(c.raw), c.fallback); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: names are %q and the error is %v, want %v", name, names, err, ErrInvalid)
		}
		if n := blobsIn(t, s); n != 0 {
			t.Errorf("%s: %d blobs stay, want none", name, n)
		}
	}
}

// TestImportLooksOnce: indexes that name one another many times over are refused before long, and so is a name that fills the memory.
func TestImportLooksOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	config := []byte(`{}`)
	sum := digest.FromBytes(config)
	body := fmt.Sprintf(`{"schemaVersion":2,"config":{"digest":%q,"size":99},"layers":[]}`, sum) // its size is wrong
	blob := func(body string) entry {
		return entry{kind: tar.TypeReg, name: "blobs/sha256/" + digest.FromString(body).Encoded(), body: body}
	}
	entries := []entry{blob(string(config)), blob(body)}
	for range 3 {
		one := fmt.Sprintf(`{"digest":%q,"size":1}`, digest.FromString(body))
		body = `{"schemaVersion":2,"manifests":[` + strings.Repeat(one+",", 400) + one + `]}`
		entries = append(entries, blob(body))
	}
	top := fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"digest":%q,"size":1}]}`, digest.FromString(body))
	raw := layerTar(t, append(entries, entry{kind: tar.TypeReg, name: "index.json", body: top})...)
	if _, err := openStore(t, Options{}).Import(ctx, bytes.NewReader(raw), "app:1"); !errors.Is(err, ErrInvalid) || ctx.Err() != nil {
		t.Errorf("the error is %v (%v), want %v", err, ctx.Err(), ErrInvalid)
	}
	raw = layerTar(t, entry{kind: tar.TypeReg, name: strings.Repeat("a", 1<<19)})
	if _, err := openStore(t, Options{}).Import(ctx, bytes.NewReader(raw), "app:1"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a long name: the error is %v, want %v", err, ErrTooLarge)
	}
}

// elfHead is the beginning of a program for an architecture.
func elfHead(machine byte) string {
	return "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00" + string([]byte{machine, 0}) + strings.Repeat("\x00", 44)
}

func rootTar(t testing.TB, more ...entry) []byte {
	return layerTar(t, append([]entry{{kind: tar.TypeDir, name: "./"}, {kind: tar.TypeDir, name: "./dev/"},
		{kind: tar.TypeChar, name: "./dev/null"}, {kind: tar.TypeBlock, name: "./dev/sda"}, {kind: tar.TypeFifo, name: "./run/initctl"},
		{kind: tar.TypeReg, name: "./bin/busybox", body: elfHead(62), mode: 0o4755, pax: map[string]string{"SCHILY.xattr.user.a": "b"}},
		{kind: tar.TypeLink, name: "bin/sh", link: "./bin/busybox"},
		{kind: tar.TypeSymlink, name: "/etc/mtab", link: "/proc/mounts"}}, more...)...)
}

func TestBuildRootTar(t *testing.T) {
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "root.tar.gz")
	if err := os.WriteFile(file, gz(rootTar(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	if what, err := Recognize(ctx, file); what != RootArchive {
		t.Fatalf("recognized %v, want %v (%v)", what, RootArchive, err)
	}
	s := openStore(t, Options{})
	var skipped []string
	o := BuildOptions{Source: file, Tag: "base:1", Cmd: []string{"/bin/sh"}, Skipped: func(name string) { skipped = append(skipped, name) }}
	img, err := s.Build(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"dev/null", "dev/sda", "run/initctl"}; !slices.Equal(skipped, want) || img.Platform != amd64 {
		t.Errorf("skipped %q for %v, want %q for %v", skipped, img.Platform, want, amd64)
	}
	if again, err := openStore(t, Options{}).Build(ctx, o); err != nil || again.Digest != img.Digest {
		t.Errorf("built again it is %s, want %s (%v)", again.Digest, img.Digest, err)
	}
	dirs, err := s.RootFS(ctx, img.Digest, amd64)
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"bin/busybox": 0o755 | os.ModeSetuid, "bin/sh": 0o755 | os.ModeSetuid,
		"etc/mtab": 0o777 | os.ModeSymlink, "dev": 0o755 | os.ModeDir} {
		if st, err := os.Lstat(filepath.Join(dirs[0], name)); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, want mode %v (%v)", name, st, mode, err)
		}
	}
	var value [8]byte
	if n, err := unix.Getxattr(filepath.Join(dirs[0], "bin/busybox"), "user.a", value[:]); err == nil && string(value[:n]) != "b" {
		t.Errorf("extended attribute is %q, want b", value[:n])
	}
}

func TestBuildRootTarRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"escape":        {rootTar(t, entry{kind: tar.TypeReg, name: "../../etc/passwd", body: "x"}), "leads out"},
		"link escape":   {rootTar(t, entry{kind: tar.TypeLink, name: "x", link: "../../etc/passwd"}), "leads out"},
		"whiteout":      {rootTar(t, entry{kind: tar.TypeReg, name: "etc/.wh.passwd"}), "would delete"},
		"cut":           {rootTar(t)[:4000], "damaged"},
		"two platforms": {rootTar(t, entry{kind: tar.TypeReg, name: "other", body: elfHead(183), mode: 0o755}), "several platforms"},
		"large":         {rootTar(t, entry{kind: tar.TypeReg, name: "f", body: strings.Repeat("x", 2<<20)}), ErrTooLarge.Error()},
		"many":          {rootTar(t, slices.Repeat([]entry{{kind: tar.TypeDir, name: "d"}}, 100)...), ErrTooLarge.Error()},
		"images":        {exported(t, "app:1"), "archive of images"},
		"no program":    {layerTar(t, entry{kind: tar.TypeReg, name: "readme", body: "x"}), "nor a program"},
	} {
		file := filepath.Join(t.TempDir(), "root.tar")
		if err := os.WriteFile(file, c.raw, 0o600); err != nil {
			t.Fatal(err)
		}
		s := openStore(t, Options{MaxLayer: 1 << 20, MaxEntries: 100})
		if _, err := s.Build(t.Context(), BuildOptions{Source: file, Tag: "base:1"}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want one with %q", name, err, c.want)
		}
		if len(s.List()) > 0 {
			t.Errorf("%s: it has a name", name)
		}
		if n := blobsIn(t, s); n != 0 {
			t.Errorf("%s: %d blobs stay, want none", name, n)
		}
	}
}

func TestRecognizeRefuses(t *testing.T) {
	dir := t.TempDir()
	folder := func(name, file, body string) string {
		d := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(d, 0o700), os.WriteFile(filepath.Join(d, file), []byte(body), 0o600)); err != nil {
			t.Fatal(err)
		}
		return d
	}
	file := func(name string, raw []byte) string {
		f := filepath.Join(dir, name)
		if err := os.WriteFile(f, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	for path, want := range map[string]string{
		folder("built", "Dockerfile", "FROM scratch"):                   "its Dockerfile has yet to be built",
		folder("tree", "readme", "x"):                                   "no OCI layout",
		folder("later", "oci-layout", `{"imageLayoutVersion":"2.0.0"}`): "another version",
		file("program", []byte("\x7fELF\x02\x01")):                      "it is a program",
		file("app.zip", []byte("PK\x03\x04....")):                       "a zip file",
		file("app.tar.xz", []byte("\xfd7zXZ\x00..")):                    "compressed with xz",
		file("empty", nil):                                              "it is empty",
		file("text", []byte(strings.Repeat("hello ", 200))):             "it is no tar",
		file("none.tar", layerTar(t)):                                   "an empty tar",
		file("x.tar", layerTar(t, entry{kind: tar.TypeReg, name: "f"})): "neither index.json nor manifest.json",
		file("text.gz", gz([]byte("hello"))):                            "it is no tar",
		file("blobs.tar", layerTar(t, entry{name: "blobs/x", mode: 0o755, kind: tar.TypeReg, body: elfHead(62)})): "nor a program",
		"/dev/null": "neither a file nor a directory",
	} {
		_, err := Recognize(t.Context(), path)
		var refused *FileError
		if !errors.As(err, &refused) || !strings.Contains(refused.Why, want) || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: the error is %v, want one with %q", path, err, want)
		}
	}
	if _, err := Recognize(t.Context(), filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the error is %v, want %v", err, os.ErrNotExist)
	}
}

// FuzzImport takes in what comes as a file, as the command does. What is refused leaves nothing behind, what is named is
// whole, and nothing is written beside the store.
func FuzzImport(f *testing.F) {
	f.Add(exported(f, "app:1"))
	f.Add(gz(rootTar(f)))
	f.Add(layerTar(f, entry{kind: tar.TypeSymlink, name: "l", link: "m"}, entry{kind: tar.TypeReg, name: "m"},
		entry{kind: tar.TypeReg, name: "c", body: `{"rootfs":{"diff_ids":["` + digest.FromString("").String() + `"]}}`},
		entry{kind: tar.TypeReg, name: "manifest.json", body: `[{"Config":"c","RepoTags":["a:1"],"Layers":["l"]}]`}))
	f.Add([]byte("hello"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		base := t.TempDir()
		file := filepath.Join(base, "file")
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(filepath.Join(base, "images"), Options{MaxLayer: 1 << 20, MaxEntries: 100})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var names []string
		what, err := Recognize(t.Context(), file)
		switch what {
		case ImageArchive:
			names, err = s.Import(t.Context(), bytes.NewReader(raw), "")
		case RootArchive:
			var img Image
			if img, err = s.Build(t.Context(), BuildOptions{Source: file, Tag: "base:1"}); err == nil {
				names = []string{img.Ref.String()}
			}
		}
		if (err == nil) != (len(names) > 0) {
			t.Fatalf("names are %q, and the error is %v", names, err)
		}
		if n := blobsIn(t, s); what == ImageArchive && err != nil && n > 0 {
			t.Fatalf("%d blobs stay after %v, want none", n, err)
		}
		for _, n := range names {
			ref, err := imageref.Parse(n)
			if err != nil {
				t.Fatal(err)
			}
			if d, ok := s.Lookup(ref); !ok {
				t.Fatalf("%s is not there", n)
			} else if m, err := s.readManifest(d); err != nil {
				t.Fatalf("%s: manifest %v: %v", n, m, err)
			}
		}
		if list, _ := os.ReadDir(base); len(list) != 2 {
			t.Fatalf("beside the store is %v, want one file", list)
		}
	})
}
