//go:build linux

package snapshot

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
)

// names unpacks a stream in memory, and gives what is in it.
func names(t *testing.T, stream []byte) map[string]string {
	t.Helper()
	z, err := zstd.NewReader(bytes.NewReader(stream))
	must(t, err)
	defer z.Close()
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		must(t, err)
		data, err := io.ReadAll(r)
		must(t, err)
		out[h.Name] = string(data)
	}
}

// hook calls something before the first byte is written.
type hook struct {
	io.Writer
	do func()
}

func (h *hook) Write(p []byte) (int, error) {
	if h.do != nil {
		h.do()
		h.do = nil
	}
	return h.Writer.Write(p)
}

const secret = "of the host"

// trap makes a volume with many directories that each have a file, and a directory of the host with a file of the same name. spring puts
// links to the latter in the place of all directories.
func trap(t *testing.T) (volume string, spring func()) {
	t.Helper()
	volume, host := filepath.Join(t.TempDir(), "volume"), t.TempDir()
	must(t, os.WriteFile(filepath.Join(host, "key"), []byte(secret), 0o600))
	for n := range 20 {
		dir := filepath.Join(volume, fmt.Sprint(n))
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "key"), bytes.Repeat([]byte("x"), len(secret)), 0o600))
	}
	return volume, func() {
		for n := range 20 {
			dir := filepath.Join(volume, fmt.Sprint(n))
			must(t, errors.Join(os.Rename(dir, fmt.Sprint(dir, "-was")), os.Symlink(host, dir)))
		}
	}
}

func noSecret(t *testing.T, stream []byte) {
	t.Helper()
	for name, data := range names(t, stream) {
		if strings.Contains(data, secret) {
			t.Errorf("%s is a file of the host", name)
		}
	}
}

// TestLinksMeanwhile has somebody put links to the host in the place of directories while a volume is copied, which containers that start
// meanwhile can do: nothing of the host is copied.
func TestLinksMeanwhile(t *testing.T) {
	t.Run("written", func(t *testing.T) {
		volume, spring := trap(t)
		large := make([]byte, 4<<20) // more than the compressor keeps back
		for i := range large {
			large[i] = byte(i * i >> 7)
		}
		must(t, os.WriteFile(filepath.Join(volume, "large"), large, 0o600))
		var out bytes.Buffer
		if err := Write(t.Context(), &hook{&out, spring}, meta("data"), 1<<30, Dir("data", volume, nil)); err == nil {
			noSecret(t, out.Bytes())
		}
	})
	t.Run("cloned", func(t *testing.T) {
		volume, spring := trap(t)
		n, clones, sprung := 0, t.TempDir(), false
		tree, err := Clone(t.Context(), "data", volume, nil, func(from *os.File) (string, error) {
			if !sprung {
				sprung = true
				spring()
			}
			n++
			to := filepath.Join(clones, fmt.Sprint(n))
			data, err := io.ReadAll(from)
			return to, errors.Join(err, os.WriteFile(to, data, 0o600))
		})
		must(t, err)
		var out bytes.Buffer
		must(t, Write(t.Context(), &out, meta("data"), 1<<30, tree))
		noSecret(t, out.Bytes())
	})
	t.Run("at any moment", func(t *testing.T) {
		volume, _ := trap(t)
		host := filepath.Join(t.TempDir(), "host")
		must(t, os.MkdirAll(host, 0o755))
		must(t, os.WriteFile(filepath.Join(host, "key"), []byte(secret), 0o600))
		must(t, os.Symlink(host, filepath.Join(volume, "0-link")))
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
				}
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(volume, "0"), unix.AT_FDCWD, filepath.Join(volume, "0-link"), unix.RENAME_EXCHANGE)
			}
		}()
		for range 50 {
			var out bytes.Buffer
			if err := Write(t.Context(), &out, meta("data"), 1<<30, Dir("data", volume, nil)); err == nil {
				noSecret(t, out.Bytes())
			}
		}
		close(stop)
		<-done
	})
}

// TestManyFiles copies a volume with many long names, and reads the stream of one with many directories, in little memory: a tenant chooses
// how many there are.
func TestManyFiles(t *testing.T) {
	volume := filepath.Join(t.TempDir(), "volume")
	deep := volume
	for range 14 {
		deep = filepath.Join(deep, strings.Repeat("d", 240))
	}
	must(t, os.MkdirAll(deep, 0o755))
	const files = 18_000 // with names of 3.4 kB: 61 MB, without what else is remembered of each
	must(t, os.WriteFile(filepath.Join(volume, "one"), nil, 0o600))
	for n := range files {
		must(t, os.Symlink("x", filepath.Join(deep, fmt.Sprint(n))))
	}
	m := newMemory()
	must(t, Write(t.Context(), m, meta("data"), 1<<30, Dir("data", volume, nil)))
	m.under(t, 32<<20)
	if _, err := Clone(t.Context(), "data", volume, nil, nil); !errors.Is(err, ErrLong) {
		t.Errorf("all of them are listed: %v", err)
	}
	must(t, os.RemoveAll(volume))
	must(t, os.MkdirAll(volume, 0o755))
	must(t, os.WriteFile(filepath.Join(volume, "holes"), nil, 0o600))
	must(t, os.Truncate(filepath.Join(volume, "holes"), 1<<40))
	err := Write(t.Context(), io.Discard, meta("data"), 1<<30, Dir("data", volume, nil))
	if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeQuota || e.Hint == "" || !strings.Contains(e.Message, "holes") {
		t.Errorf("a file of a tebibyte of nothing: %v", err)
	}
}

// TestManyDirectories reads a small stream with many directories of long names, which is remembered of no longer than they are open.
func TestManyDirectories(t *testing.T) {
	long := strings.Repeat(strings.Repeat("d", 200)+"/", 15)
	stream := func(yield func(*tar.Header) bool) {
		for n := 1; n < len(long); n += 201 {
			if !yield(dirEntry("data/" + long[:n+199])) {
				return
			}
		}
		for n := range 10_000 { // 30 MB of names
			if !yield(dirEntry(fmt.Sprintf("data/%s%d", long, n))) {
				return
			}
		}
	}
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed)
	must(t, err)
	head := archive(t, meta("data"), dirEntry("data/"))
	_, err = z.Write(head[:len(head)-1024])
	must(t, err)
	w := tar.NewWriter(z)
	for h := range stream {
		must(t, w.WriteHeader(h))
	}
	must(t, errors.Join(w.Close(), z.Close()))
	if packed.Len() > 4<<20 {
		t.Fatalf("the stream has %d bytes", packed.Len())
	}
	m := newMemory()
	m.from = &packed
	_, err = Read(m, LimitsFor(1<<30), nil)
	must(t, err)
	m.under(t, 24<<20)
}

// memory notes how much memory is in use while something is read from it, or written to it.
type memory struct {
	from         io.Reader
	n            int
	before, most uint64
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func newMemory() *memory { return &memory{before: heap()} }

func (m *memory) note() {
	if m.n++; m.n%64 == 0 {
		m.most = max(m.most, heap())
	}
}

func (m *memory) Read(p []byte) (int, error) {
	m.note()
	return m.from.Read(p[:min(len(p), 16<<10)])
}

func (m *memory) Write(p []byte) (int, error) {
	m.note()
	return len(p), nil
}

func (m *memory) under(t *testing.T, most int64) {
	t.Helper()
	if m.most == 0 {
		t.Fatalf("nothing was measured in %d steps", m.n)
	}
	if n := int64(m.most) - int64(m.before); n > most {
		t.Errorf("%d MiB were held", n>>20)
	}
}

// TestLooseRoom bounds what a stream may put into volumes without a size, which no file system bounds.
func TestLooseRoom(t *testing.T) {
	m := meta("data", "logs")
	m.Volumes[1].Size = 0
	entries := []*tar.Header{dirEntry("data/"), regular("data/a", 1<<20), dirEntry("logs/"), regular("logs/a", 100<<10), regular("logs/b", 100<<10)}
	read := func(bytes_, files int64) error {
		lim := LimitsFor(8 << 20)
		lim.Loose.Bytes, lim.Loose.Files = bytes_, files
		_, err := Read(bytes.NewReader(packed(t, archive(t, m, entries...))), lim, into(t, t.TempDir()))
		return err
	}
	must(t, read(300<<10, 10))
	must(t, read(0, 0))
	for _, err := range []error{read(150<<10, 10), read(300<<10, 3)} {
		if _, bad := errors.AsType[*Invalid](err); !bad || !strings.Contains(err.Error(), "volume logs") {
			t.Errorf("%v", err)
		}
	}
}
