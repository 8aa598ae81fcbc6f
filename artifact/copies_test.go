//go:build linux

package artifact

import (
	"archive/tar"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
)

const (
	mule  = 0x7400_0000
	heron = 0x7401_0000
)

// herd has two layers, with what is not to be lost in a copy.
func herd(t testing.TB, s *Store) digest.Digest {
	t.Helper()
	return addImage(t, s, "herd", HostPlatform(), gz,
		layerTar(t, entry{kind: tar.TypeDir, name: "bin/"}, entry{kind: tar.TypeReg, name: "bin/su", body: "su", mode: 0o4755}, entry{kind: tar.TypeLink, name: "bin/sudo", link: "bin/su"},
			entry{kind: tar.TypeReg, name: "bin/ping", body: "ping", mode: 0o755, pax: map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"}}),
		layerTar(t, entry{kind: tar.TypeReg, name: "note", body: strings.Repeat("hay ", 1000)}, entry{kind: tar.TypeReg, name: ".wh.etc"}))
}

func ownerIn(t *testing.T, dir, name string) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil {
		t.Fatal(err)
	}
	return st.Uid
}

// Each organisation has its own copy of a layer, made once; it belongs to its users, and the layer to whom it did.
func TestCopies(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{})
	d := herd(t, s)
	var wg sync.WaitGroup
	got := make([][]string, 8)
	for i := range got {
		wg.Go(func() {
			var err error
			if got[i], err = s.Copies.RootFS(ctx, d, HostPlatform(), []uint32{mule, heron}[i%2]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	plain, err := s.RootFS(ctx, d, HostPlatform())
	if err != nil {
		t.Fatal(err)
	}
	for i, dirs := range got {
		first := []uint32{mule, heron}[i%2]
		if !slices.Equal(dirs, got[i%2]) || len(dirs) != 2 || slices.Equal(dirs, plain) {
			t.Fatalf("%v, and %v before; the layers are %v", dirs, got[i%2], plain)
		}
		if a, b := ownerIn(t, dirs[1], "bin/su"), ownerIn(t, plain[1], "bin/su"); a != first || b != 0 {
			t.Errorf("it belongs to %d, and the layer's to %d", a, b)
		}
	}
	if st, err := os.Stat(filepath.Join(got[0][1], "bin/su")); err != nil || st.Mode()&os.ModeSetuid == 0 || st.ModTime().Unix() != 1000 {
		t.Errorf("%v, %v", st, err)
	}
	if a, b := stat(t, filepath.Join(got[0][1], "bin/su")), stat(t, filepath.Join(got[0][1], "bin/sudo")); a.Ino != b.Ino {
		t.Error("a link has become a file of its own")
	}
	caps := make([]byte, 64)
	if n, err := unix.Lgetxattr(filepath.Join(got[0][1], "bin/ping"), "security.capability", caps); n != 24 || caps[3] != 3 || caps[23] != mule>>24 {
		t.Errorf("capabilities %x, %v", caps[:max(n, 0)], err)
	}
	if st := stat(t, filepath.Join(got[0][0], "etc")); st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
		t.Errorf("what hides a folder is %o", st.Mode)
	}
	if users := s.Copies.Users(); !slices.Equal(users, []uint32{mule, heron}) {
		t.Errorf("copies for %v", users)
	}
	if left, _ := os.ReadDir(filepath.Join(s.dir, "tmp")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func stat(t *testing.T, file string) (st unix.Stat_t) {
	t.Helper()
	if err := unix.Lstat(file, &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// A copy that was being made when the process ended is not taken for one.
func TestCopiesAfterCrash(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "images")
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := herd(t, s)
	if _, err := s.RootFS(ctx, d, HostPlatform()); err != nil {
		t.Fatal(err)
	}
	dead, cancel := context.WithCancel(ctx)
	cancel()
	if dirs, err := s.Copies.RootFS(dead, d, HostPlatform(), mule); !errors.Is(err, context.Canceled) || dirs != nil {
		t.Fatalf("%v, %v", dirs, err)
	}
	half := s.tmpName("shift-")
	if err := errors.Join(os.MkdirAll(filepath.Join(half, "bin"), 0o755), s.Close()); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := os.Stat(half); err == nil || len(s.Copies.Users()) > 0 {
		t.Errorf("half a copy is left, or is one: %v", s.Copies.Users())
	}
	dirs, err := s.Copies.RootFS(ctx, d, HostPlatform(), mule)
	if err != nil || len(dirs) != 2 || ownerIn(t, dirs[1], "bin/ping") != mule {
		t.Errorf("%v, %v", dirs, err)
	}
}

// What is damaged in a copy, or in the layer and its copy, is found and put right in both.
func TestMendCopies(t *testing.T) {
	ctx := context.Background()
	f := startForeign(t)
	s := openStore(t, Options{})
	f.push(t, "app:1", amd64, 100_000, 1)
	img, err := s.Pull(ctx, f.host+"/app:1", amd64, nil, &Source{})
	if err != nil {
		t.Fatal(err)
	}
	pinned := f.host + "/app@" + string(img.Digest)
	copied, err := s.Copies.RootFS(ctx, img.Digest, amd64, mule)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := s.RootFS(ctx, img.Digest, amd64)
	if err != nil {
		t.Fatal(err)
	}
	list, err := filepath.Glob(filepath.Join(copied[0], "*"))
	if err != nil || len(list) == 0 {
		t.Fatal("an empty layer", err)
	}
	name := filepath.Base(list[0])
	was, err := os.ReadFile(list[0])
	if err != nil {
		t.Fatal(err)
	}
	inCopy := "/" + name + " (for users from 1946157056) of layer " + string(img.layers[0])
	for what, c := range map[string]struct {
		harm func()
		want []string
	}{
		"a bit of a copy":        {func() { flip(t, list[0]) }, []string{inCopy}},
		"the owner of a copy":    {func() { _ = os.Chown(list[0], heron, heron) }, []string{inCopy}},
		"a file of a copy":       {func() { _ = os.Remove(list[0]) }, []string{inCopy}},
		"a bit of both":          {func() { flip(t, list[0]); flip(t, filepath.Join(plain[0], name)) }, []string{"/" + name + " of layer " + string(img.layers[0]), inCopy}},
		"a bit before it copied": {func() { flip(t, filepath.Join(plain[0], name)) }, []string{"/" + name + " of layer " + string(img.layers[0])}},
	} {
		t.Run(what, func(t *testing.T) {
			c.harm()
			mended, err := Mend(ctx, s, pinned, amd64, &Source{})
			if err != nil || !slices.Equal(mended, c.want) {
				t.Fatalf("mended %q, %v; want %q", mended, err, c.want)
			}
			if again, err := Mend(ctx, s, pinned, amd64, &Source{}); err != nil || len(again) != 0 {
				t.Errorf("then: %q, %v", again, err)
			}
			if now, err := os.ReadFile(list[0]); err != nil || string(now) != string(was) || ownerIn(t, copied[0], name) != mule {
				t.Errorf("it is not what it was: %v", err)
			}
		})
	}
}

// Copies go when their organisation has no use for them, and with the image.
func TestDropCopies(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{})
	d := herd(t, s)
	other := addImage(t, s, "other", HostPlatform(), gz, layerTar(t, entry{kind: tar.TypeReg, name: "x", body: "x"}))
	for _, first := range []uint32{mule, heron} {
		for _, image := range []digest.Digest{d, other} {
			if _, err := s.Copies.RootFS(ctx, image, HostPlatform(), first); err != nil {
				t.Fatal(err)
			}
		}
	}
	count := func() int {
		t.Helper()
		list, err := filepath.Glob(filepath.Join(s.dir, "layers", "*", "74*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	now := time.Now()
	later := now.Add(time.Hour)
	if n, err := s.Copies.Drop(nil, now.Add(-time.Hour)); n != 0 || err != nil || count() != 6 {
		t.Errorf("what has just been used went: %d, %v", n, err)
	}
	release := s.pin(layersOf(t, s, other)...)
	if n, err := s.Copies.Drop(map[uint32][]digest.Digest{mule: {d}, heron: {d}}, later); n != 0 || err != nil || count() != 6 {
		t.Errorf("what a running call needs went: %d, %v", n, err)
	}
	release()
	if n, err := s.Copies.Drop(map[uint32][]digest.Digest{mule: {d}, heron: {other}}, later); n < 4000 || err != nil || count() != 3 || len(s.Copies.Users()) != 2 {
		t.Errorf("%d bytes went, %d copies are left, %v", n, count(), err)
	}
	if n, err := s.Copies.Drop(map[uint32][]digest.Digest{mule: {d}}, later); n != 1 || err != nil || count() != 2 || !slices.Equal(s.Copies.Users(), []uint32{mule}) {
		t.Errorf("%d bytes went, %d copies are left, %v", n, count(), err)
	}
	if _, err := s.Prune(nil, later, func(e Entry) bool { return e.Digest == other }); err != nil || count() != 0 {
		t.Errorf("%d copies outlive their image, %v", count(), err)
	}
	if left, _ := os.ReadDir(filepath.Join(s.dir, "tmp")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func layersOf(t *testing.T, s *Store, d digest.Digest) []digest.Digest {
	t.Helper()
	img, err := s.Image(d, HostPlatform())
	if err != nil {
		t.Fatal(err)
	}
	return img.diffIDs
}
