//go:build linux

package snapshot

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

var service = skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "db"}

func meta(names ...string) Meta {
	m := Meta{Format: Version, Service: service, At: time.Unix(1700000000, 0).UTC()}
	for _, n := range names {
		m.Volumes = append(m.Volumes, spec.SnapshotVolume{Name: n, Size: 8 * skerry.MiB})
	}
	return m
}

// into unpacks below a directory, with a root for each volume.
func into(t testing.TB, dir string) func(m *Meta) (map[string]*os.Root, error) {
	return func(m *Meta) (map[string]*os.Root, error) {
		out := map[string]*os.Root{}
		for _, v := range m.Volumes {
			at := filepath.Join(dir, v.Name)
			if err := os.Mkdir(at, 0o755); err != nil {
				return nil, err
			}
			r, err := os.OpenRoot(at)
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { r.Close() })
			out[v.Name] = r
		}
		return out, nil
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tell gives a text with everything about the files of a directory that a snapshot keeps.
func tell(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Lstat(path, &st))
		rel, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&out, "%q %o %d:%d", rel, st.Mode, st.Uid, st.Gid)
		if st.Mode&unix.S_IFMT != unix.S_IFLNK { // whose time is not kept
			fmt.Fprintf(&out, " %d.%09d", st.Mtim.Sec, st.Mtim.Nsec)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			must(t, err)
			fmt.Fprintf(&out, " links %d, %d bytes, %q", st.Nlink, len(data), data[:min(len(data), 40)])
			f, err := os.Open(path)
			must(t, err)
			attrs, err := xattrs(f)
			must(t, errors.Join(err, f.Close()))
			fmt.Fprintf(&out, " %q", attrs)
		case unix.S_IFLNK:
			to, err := os.Readlink(path)
			must(t, err)
			fmt.Fprintf(&out, " -> %s", to)
		}
		out.WriteString("\n")
		return nil
	}))
	return out.String()
}

// TestRoundTrip writes two volumes with all that can be in them, and unpacks them somewhere else: nothing is different, a file with a hole
// still has it, a hard link is one, and what belongs to the kernel alone is left out.
func TestRoundTrip(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	data, logs := filepath.Join(from, "data"), filepath.Join(from, "logs")
	must(t, os.MkdirAll(filepath.Join(data, "deep", "er"), 0o750))
	must(t, os.Mkdir(logs, 0o777))
	must(t, os.WriteFile(filepath.Join(data, "note"), []byte("kept"), 0o640))
	must(t, os.Link(filepath.Join(data, "note"), filepath.Join(data, "deep", "same")))
	must(t, os.Symlink("/etc/passwd", filepath.Join(data, "deep", "away")))
	must(t, os.Chown(filepath.Join(data, "note"), 1234, 5678))
	must(t, os.Chmod(filepath.Join(data, "deep"), 0o2770))
	for _, name := range []string{strings.Repeat("ü", 100), "two\nlines", "\x1b[31mred", "\xff\xfe"} {
		must(t, os.WriteFile(filepath.Join(logs, name), nil, 0o600))
	}
	_ = unix.Setxattr(filepath.Join(data, "note"), "user.a=b", []byte("c"), 0) // left out: an archive has no way to say it
	attributed := unix.Setxattr(filepath.Join(data, "note"), "user.owner", []byte("me\x00you"), 0)
	sparse, err := os.Create(filepath.Join(data, "sparse"))
	must(t, err)
	_, err = sparse.WriteAt([]byte("end"), 64<<20)
	must(t, errors.Join(err, sparse.Close()))
	must(t, unix.Mkfifo(filepath.Join(data, "pipe"), 0o600))
	old := time.Unix(1600000000, 123456789)
	for _, name := range []string{"note", "deep/er", "deep", "."} {
		must(t, os.Chtimes(filepath.Join(data, name), old, old))
	}

	trees := []*Tree{Dir("data", data, nil), Dir("logs", logs, nil)}
	var out bytes.Buffer
	must(t, Write(t.Context(), &out, meta("data", "logs"), 1<<30, trees...))
	if trees[0].Skipped != 1 {
		t.Errorf("%d files are left out, want the pipe", trees[0].Skipped)
	}
	if out.Len() > 1<<20 {
		t.Errorf("64 MiB of nothing take %d bytes", out.Len())
	}
	stream := out.Bytes()
	m, err := Read(bytes.NewReader(stream), LimitsFor(8<<20), into(t, to))
	must(t, err)
	if m.Service != service || len(m.Volumes) != 2 {
		t.Errorf("it is %+v", m)
	}
	must(t, os.Remove(filepath.Join(data, "pipe")))
	must(t, os.Chtimes(data, old, old))
	if want, got := tell(t, data), tell(t, filepath.Join(to, "data")); got != want {
		t.Errorf("it was\n%s\nand is\n%s", want, got)
	}
	if want, got := tell(t, logs), tell(t, filepath.Join(to, "logs")); got != want {
		t.Errorf("it was\n%s\nand is\n%s", want, got)
	}
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(to, "data", "sparse"), &st))
	if st.Blocks*512 > 1<<20 {
		t.Errorf("a file with a hole takes %d bytes", st.Blocks*512)
	}
	if value := make([]byte, 16); attributed == nil {
		if n, err := unix.Getxattr(filepath.Join(to, "data", "note"), "user.owner", value); err != nil || string(value[:n]) != "me\x00you" {
			t.Errorf("the attribute is %q, %v", value[:max(n, 0)], err)
		}
	}
	for _, cut := range []int{0, 1, len(stream) / 2, len(stream) - 1} {
		if _, err := Read(bytes.NewReader(stream[:cut]), LimitsFor(8<<20), nil); err == nil {
			t.Errorf("the first %d of %d bytes were taken for whole", cut, len(stream))
		}
	}
}

// TestClones has the files of a volume cloned while it is scanned: what is written is what they were then.
func TestClones(t *testing.T) {
	dir, clones, to := t.TempDir(), t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "note"), []byte("before"), 0o600))
	tree, err := Clone(t.Context(), "data", dir, nil, func(from *os.File) (string, error) {
		name := filepath.Join(clones, from.Name())
		data, err := io.ReadAll(from)
		if err == nil {
			err = os.WriteFile(name, data, 0o600)
		}
		return name, err
	})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "note"), []byte("after it"), 0o600))
	var out bytes.Buffer
	must(t, Write(t.Context(), &out, meta("data"), 1<<30, tree))
	_, err = Read(&out, LimitsFor(1<<20), into(t, to))
	must(t, err)
	if got, err := os.ReadFile(filepath.Join(to, "data", "note")); err != nil || string(got) != "before" {
		t.Errorf("the note says %q, %v", got, err)
	}
}

// archive gives a stream with entries that somebody made by hand.
func archive(t testing.TB, m any, entries ...*tar.Header) []byte {
	t.Helper()
	var plain bytes.Buffer
	w := tar.NewWriter(&plain)
	data, err := json.Marshal(m)
	must(t, err)
	must(t, w.WriteHeader(&tar.Header{Name: metaName, Typeflag: tar.TypeReg, Size: int64(len(data))}))
	_, err = w.Write(data)
	must(t, err)
	for _, h := range entries {
		must(t, w.WriteHeader(h))
		if h.Typeflag == tar.TypeReg {
			_, err := io.Copy(w, io.LimitReader(letters{}, h.Size))
			must(t, err)
		}
	}
	must(t, w.Close())
	return plain.Bytes()
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func packed(t testing.TB, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out)
	must(t, err)
	_, err = w.Write(plain)
	must(t, errors.Join(err, w.Close()))
	return out.Bytes()
}

func dirEntry(name string) *tar.Header {
	return &tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}
}

func regular(name string, size int64) *tar.Header {
	return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size}
}

func link(typeflag byte, name, to string) *tar.Header {
	return &tar.Header{Name: name, Typeflag: typeflag, Linkname: to}
}

// hostile are streams that are refused, with a part of the reason.
func hostile(t testing.TB) map[string]struct {
	plain []byte
	why   string
} {
	m := meta("data")
	of := func(why string, entries ...*tar.Header) struct {
		plain []byte
		why   string
	} {
		return struct {
			plain []byte
			why   string
		}{archive(t, m, append([]*tar.Header{dirEntry("data/")}, entries...)...), why}
	}
	device := regular("data/null", 0)
	device.Typeflag, device.Devmajor, device.Devminor = tar.TypeChar, 1, 3
	late, twice, strange := meta("data"), meta("data", "data"), meta("../data")
	late.Format = Version + 1
	raw := func(m Meta) []byte { return archive(t, m, dirEntry("data/")) }
	type bad = struct {
		plain []byte
		why   string
	}
	return map[string]bad{
		"up":                      of("no name of a file", regular("data/../../evil", 1)),
		"absolute":                of("no name of a file", regular("/data/evil", 1)),
		"a dot":                   of("no name of a file", regular("data/./evil", 1)),
		"another volume":          of("none of its volumes", regular("logs/evil", 1)),
		"beside the volumes":      of("none of its volumes", regular("evil", 1)),
		"through a link":          of("directory of \"data/etc/evil\"", link(tar.TypeSymlink, "data/etc", "/etc"), regular("data/etc/evil", 1)),
		"a link as a directory":   of("twice", link(tar.TypeSymlink, "data/etc", "/etc"), dirEntry("data/etc/"), regular("data/etc/evil", 1)),
		"a file twice":            of("twice", regular("data/a", 1), regular("data/a", 2)),
		"a directory twice":       of("twice", dirEntry("data/a/"), dirEntry("data/a/")),
		"a file over a link":      of("twice", link(tar.TypeSymlink, "data/a", "/etc/evil"), regular("data/a", 1)),
		"a hard link up":          of("no name of a file", link(tar.TypeLink, "data/a", "data/../../etc/shadow")),
		"a hard link, absolute":   of("no name of a file", link(tar.TypeLink, "data/a", "/etc/shadow")),
		"a hard link to nothing":  of("leads to nothing", link(tar.TypeLink, "data/a", "data/b")),
		"a hard link to a volume": of("out of its volume", link(tar.TypeLink, "data/a", "data")),
		"a device":                of("of type", device),
		"a pipe":                  of("of type", &tar.Header{Name: "data/p", Typeflag: tar.TypeFifo}),
		"the volume as a file":    {archive(t, m, regular("data", 1)), "no directory"},
		"the volume as a link":    {archive(t, m, link(tar.TypeSymlink, "data", "/etc")), "no directory"},
		"no volume":               {archive(t, m), "is missing"},
		"larger than the room":    of("more than the room", regular("data/a", 2<<20)),
		"a later format":          {raw(late), "format is 2"},
		"volumes of one name":     {raw(twice), "there twice"},
		"a volume up":             {raw(strange), "is no volume"},
		"no volumes":              {raw(meta()), "0 volumes"},
		"no description":          {archive(t, "x"), metaName},
		"too many files": of("more files", func() (out []*tar.Header) {
			for i := range 2000 {
				out = append(out, regular(fmt.Sprintf("data/%d", i), 0))
			}
			return out
		}()...),
	}
}

// TestHostile refuses streams that somebody made to do harm, and leaves nothing beside the directories that it was given.
func TestHostile(t *testing.T) {
	for name, c := range hostile(t) {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			dir, lim := t.TempDir(), LimitsFor(1<<20)
			lim.Files = 1000
			_, err := Read(bytes.NewReader(packed(t, c.plain)), lim, into(t, dir))
			var bad *Invalid
			if !errors.As(err, &bad) || !strings.Contains(bad.Reason, c.why) {
				t.Errorf("refused with %v, want %q", err, c.why)
			}
			alone(t, dir)
		})
	}
	t.Run("bomb", func(t *testing.T) {
		// 32 MiB of zeros, which are never written, in some kilobytes.
		h := regular("data/zeros", 32<<20)
		var plain bytes.Buffer
		w, err := zstd.NewWriter(&plain)
		must(t, err)
		head := archive(t, meta("data"), dirEntry("data/"))
		_, err = w.Write(head[:len(head)-1024]) // without its end
		must(t, err)
		tw := tar.NewWriter(w)
		must(t, tw.WriteHeader(h))
		_, err = io.Copy(tw, io.LimitReader(nothing{}, h.Size))
		must(t, errors.Join(err, tw.Close(), w.Close()))
		_, err = Read(&plain, LimitsFor(1<<20), nil)
		if err == nil || !strings.Contains(err.Error(), "longer than the 16777216 bytes") {
			t.Errorf("it was taken: %v", err)
		}
	})
}

type nothing struct{}

func (nothing) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// alone fails if there is something beside the volume data in a directory.
func alone(t testing.TB, dir string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range list {
		if e.Name() != "data" && e.Name() != "logs" || !e.IsDir() {
			t.Errorf("it left %s", e.Name())
		}
	}
}

// FuzzRead unpacks whatever somebody sends: it ends, takes no more than it may, and leaves nothing beside the volumes.
func FuzzRead(f *testing.F) {
	f.Add(archive(f, meta("data", "logs"), dirEntry("data/"), regular("data/a", 3), link(tar.TypeLink, "data/b", "data/a"), link(tar.TypeSymlink, "data/c", "/etc"), dirEntry("logs/")))
	for name, c := range hostile(f) {
		if len(c.plain) < 8<<10 && name != "" {
			f.Add(c.plain)
		}
	}
	f.Fuzz(func(t *testing.T, plain []byte) {
		dir := filepath.Join(t.TempDir(), "in")
		must(t, os.Mkdir(dir, 0o755))
		lim := Limits{Bytes: 1 << 20, Files: 100, Length: 4 << 20}
		_, err := readTar(bytes.NewReader(plain), lim, func(m *Meta) (map[string]*os.Root, error) {
			if len(m.Volumes) > 2 {
				return nil, errors.New("enough")
			}
			return into(t, dir)(m)
		})
		beside, e := os.ReadDir(filepath.Dir(dir))
		must(t, e)
		if len(beside) != 1 {
			t.Errorf("it left %v (%v)", beside, err)
		}
		var sum int64
		must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return nil // a directory that its archive closed
			}
			var st unix.Stat_t
			if unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
				sum += st.Blocks * 512 / int64(max(st.Nlink, 1))
			}
			return nil
		}))
		if sum > lim.Bytes+lim.Files*block {
			t.Errorf("it wrote %d bytes", sum)
		}
	})
}
