//go:build linux

package owners

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{})) }

const (
	mine   = 0x7400_0000
	theirs = 0x7401_0000
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip(&testenv.Unsupported{What: "files of other users", Why: "they need root"})
	}
}

// caps gives the capability NET_BIND_SERVICE, for a root of a namespace if that is not 0.
func caps(root uint32) []byte {
	out := binary.LittleEndian.AppendUint32(nil, caps2|1)
	out = append(out, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	if root != 0 {
		binary.LittleEndian.PutUint32(out, caps3|1)
		out = binary.LittleEndian.AppendUint32(out, root)
	}
	return out
}

// acl lets a user and a group read.
func acl(user, group uint32) []byte {
	out := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 6, 1<<32 - 1}, {aclUser, 4, user}, {4, 4, 1<<32 - 1}, {aclGroup, 4, group}, {0x10, 4, 1<<32 - 1}, {0x20, 0, 1<<32 - 1}} {
		out = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(out, e.tag), e.perm)
		out = binary.LittleEndian.AppendUint32(out, e.id)
	}
	return out
}

// tree makes one with everything that there may be in it, whose users have numbers from first on.
func tree(t *testing.T, first uint32) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tree")
	at := func(name string) string { return filepath.Join(dir, name) }
	own := func(name string, uid, gid uint32, mode uint32) {
		t.Helper()
		must(t, os.Lchown(at(name), int(first+uid), int(first+gid)))
		if mode != 0 {
			must(t, unix.Chmod(at(name), mode))
		}
	}
	must(t, os.MkdirAll(at("bin/deep/deeper"), 0o755), os.Mkdir(at("tmp"), 0o755), os.Mkdir(at("shared"), 0o755))
	for _, name := range []string{"bin/su", "bin/ping", "bin/plain", "bin/listed", "bin/high", "tmp/mule", "bin/deep/deeper/one"} {
		must(t, os.WriteFile(at(name), []byte(name), 0o644))
	}
	must(t, os.Link(at("bin/plain"), at("tmp/again")), os.Symlink("/etc/shadow", at("link")), unix.Mkfifo(at("pipe"), 0o600), unix.Mknod(at("gone"), unix.S_IFCHR, 0))
	own(".", 0, 0, 0o755)
	for _, name := range []string{"bin", "bin/deep", "bin/deep/deeper"} {
		own(name, 0, 0, 0o755)
	}
	own("tmp", 0, 0, 0o1777)
	own("shared", 0, 50, 0o2775)
	own("bin/su", 0, 0, 0o4755)
	own("bin/ping", 0, 0, 0o755)
	own("bin/plain", 0, 8, 0o755)
	own("bin/listed", 1, 1, 0o640)
	own("bin/high", 0, 0, 0o644)
	must(t, os.Lchown(at("bin/high"), 70000, 70001), unix.Chmod(at("bin/high"), 0o6755))
	own("bin/deep/deeper/one", 65535, 65535, 0o600)
	own("tmp/mule", 1234, 5678, 0o6750)
	own("link", 7, 7, 0)
	own("pipe", 1, 1, 0o640)
	own("gone", 0, 0, 0)
	must(t, unix.Lsetxattr(at("bin/ping"), capsAttr, caps(first), 0), unix.Lsetxattr(at("bin/listed"), accessAttr, acl(first+5, first+6), 0), unix.Lsetxattr(at("shared"), defaultAttr, acl(first+5, first+6), 0),
		unix.Lsetxattr(at("tmp/mule"), "user.note", []byte("hay"), 0), unix.Lsetxattr(at("bin/deep"), "trusted.overlay.opaque", []byte("y"), 0))
	long := []unix.Timespec{{Sec: 1000, Nsec: 7}, {Sec: 2000, Nsec: 9}}
	must(t, filepath.WalkDir(dir, func(file string, _ fs.DirEntry, err error) error {
		return errors.Join(err, unix.UtimesNanoAt(unix.AT_FDCWD, file, long, unix.AT_SYMLINK_NOFOLLOW))
	}))
	return dir
}

// look gives a line for each file, with all that is to stay or to change.
func look(t *testing.T, dir string) map[string]string {
	t.Helper()
	out, inodes := map[string]string{}, map[uint64]string{}
	must(t, filepath.WalkDir(dir, func(file string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		must(t, err, unix.Lstat(file, &st))
		name, _ := filepath.Rel(dir, file)
		line := fmt.Sprintf("%d:%d %o %d.%d %x", st.Uid, st.Gid, st.Mode, st.Mtim.Sec, st.Mtim.Nsec, st.Rdev)
		if st.Nlink > 1 && st.Mode&unix.S_IFMT == unix.S_IFREG {
			if inodes[st.Ino] == "" {
				inodes[st.Ino] = name
			}
			line += " is " + inodes[st.Ino]
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(file)
			must(t, err)
			line += fmt.Sprintf(" %q", data)
		case unix.S_IFLNK:
			to, err := os.Readlink(file)
			must(t, err)
			line += " " + to
		}
		names, err := listAttrs(file)
		must(t, err)
		slices.Sort(names)
		for _, n := range names {
			value, err := getAttr(file, n)
			must(t, err)
			line += fmt.Sprintf(" %s=%x", n, value)
		}
		out[name] = line
		return nil
	}))
	return out
}

func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, line := range want {
		if got[name] != line {
			t.Errorf("%s:\n got %s\nwant %s", name, got[name], line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d files, not %d", len(got), len(want))
	}
}

// nobodys is what becomes of a file in a copy whose owner the range does not have.
func nobodys(lines map[string]string, first uint32) {
	lines["bin/high"] = strings.Replace(strings.Replace(lines["bin/high"], "70000:70001", fmt.Sprintf("%d:%d", first+nobody, first+nobody), 1), " 106755 ", " 100755 ", 1)
}

func TestCopy(t *testing.T) {
	needRoot(t)
	from, to := tree(t, 0), t.TempDir()
	before := look(t, from)
	must(t, Copy(t.Context(), from, to, mine))
	want := look(t, tree(t, mine))
	nobodys(want, mine)
	compare(t, look(t, to), want)
	compare(t, look(t, from), before)
	// A copy with a hole in the middle is no copy.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Copy(ctx, from, t.TempDir(), mine); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := Copy(t.Context(), from, to, mine); err == nil {
		t.Error("over another copy")
	}
}

// A tree goes to a range, to another one, and back, and nothing but its owners has changed.
func TestSettle(t *testing.T) {
	needRoot(t)
	dir := tree(t, 0)
	r := Record(filepath.Join(filepath.Dir(dir), "owners"))
	for _, to := range []uint32{mine, mine, theirs, 0, 0, mine, 0} {
		must(t, r.Settle(t.Context(), dir, to))
		compare(t, look(t, dir), look(t, tree(t, to)))
		if ok, err := r.Settled(dir, to); !ok || err != nil {
			t.Errorf("not settled: %v", err)
		}
		if ok, err := r.Settled(dir, to^0x2_0000); ok || err != nil {
			t.Errorf("settled for another: %v", err)
		}
		if have, err := r.Ranges(); err != nil || (to == 0) != (len(have) == 0) || to != 0 && !slices.Equal(have, []uint32{to}) {
			t.Errorf("%v, %v", have, err)
		}
	}
}

// dying ends after some questions.
type dying struct {
	context.Context
	left int
}

func (d *dying) Err() error {
	if d.left--; d.left < 0 {
		return context.Canceled
	}
	return nil
}

// An exchange that was interrupted anywhere goes on, or back, or elsewhere.
func TestSettleIsInterrupted(t *testing.T) {
	needRoot(t)
	for _, from := range []uint32{0, mine} {
		for _, then := range []uint32{0, mine, theirs} {
			dir := tree(t, from)
			r := Record(filepath.Join(filepath.Dir(dir), "owners"))
			if from != 0 {
				must(t, r.write([]uint32{from}))
			}
			ended := false
			for n := 0; !ended; n++ {
				err := r.Settle(&dying{t.Context(), n}, dir, theirs)
				if ended = err == nil; !ended && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				if have, err := r.Ranges(); err != nil || !slices.Contains(have, uint32(theirs)) {
					t.Fatalf("it is not recorded: %v, %v", have, err)
				}
				must(t, r.Settle(t.Context(), dir, then))
				compare(t, look(t, dir), look(t, tree(t, then)))
			}
		}
	}
}

// What the kernel takes away with the owner is given back by whoever goes on.
func TestChangeIsInterruptedInAFile(t *testing.T) {
	needRoot(t)
	dir := tree(t, 0)
	for name, value := range map[string][]byte{"bin/su": binary.LittleEndian.AppendUint32(nil, 0o4755), "bin/ping": append(binary.LittleEndian.AppendUint32(nil, 0o755), caps(mine)...)} {
		file := filepath.Join(dir, name)
		must(t, unix.Lsetxattr(file, markAttr, value, 0), os.Lchown(file, mine, mine))
	}
	if st, err := os.Stat(filepath.Join(dir, "bin/su")); err != nil || st.Mode()&os.ModeSetuid != 0 {
		t.Fatalf("the kernel takes nothing: %v, %v", st.Mode(), err)
	}
	must(t, Change(t.Context(), dir, Map{From: []uint32{mine}, To: mine}))
	compare(t, look(t, dir), look(t, tree(t, mine)))
}

// A tree whose owner wants to hold the agent up is refused.
func TestChangeDeep(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	at, err := os.Open(dir)
	must(t, err)
	for range maxDepth + 2 {
		must(t, unix.Mkdirat(int(at.Fd()), "d", 0o755))
		next, err := openAt(at, "d", unix.O_RDONLY)
		must(t, err, at.Close())
		at = next
	}
	must(t, at.Close())
	if err := Change(t.Context(), dir, Map{To: mine}); !errors.Is(err, ErrDeep) {
		t.Errorf("%v", err)
	}
}

// Two do not settle the same tree at once.
func TestLock(t *testing.T) {
	r := Record(filepath.Join(t.TempDir(), "owners"))
	dir, err := os.Open(filepath.Dir(string(r)))
	must(t, err)
	defer dir.Close()
	unlock, err := r.Lock()
	must(t, err)
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("both have it: %v", err)
	}
	unlock()
	must(t, unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}

func TestRecordIsDamaged(t *testing.T) {
	r := Record(filepath.Join(t.TempDir(), "owners"))
	for _, text := range []string{"x", "1", "-1", "65535", "4294967296"} {
		must(t, os.WriteFile(string(r), []byte(text), 0o600))
		if have, err := r.Ranges(); err == nil {
			t.Errorf("%q: %v", text, have)
		}
	}
}

// FuzzAttributes reads what an image may have as attributes.
func FuzzAttributes(f *testing.F) {
	f.Add(caps(0))
	f.Add(caps(mine))
	f.Add(acl(5, 70000))
	f.Fuzz(func(t *testing.T, value []byte) {
		there, back := Map{To: mine}, Map{From: []uint32{mine}}
		to := func(m Map) func(uint32) (uint32, bool) { return func(n uint32) (uint32, bool) { return m.ID(n), true } }
		if c := fileCaps(value, copied(mine)); c != nil && (len(c) != caps3Len || binary.LittleEndian.Uint32(c[caps2Len:])-mine >= Size) {
			t.Errorf("capabilities of %x for another: %x", value, c)
		}
		if l := accessList(value, copied(mine)); l != nil {
			for e := range slices.Chunk(l[aclHead:], aclEntry) {
				if tag := binary.LittleEndian.Uint16(e); (tag == aclUser || tag == aclGroup) && binary.LittleEndian.Uint32(e[4:])-mine >= Size {
					t.Errorf("an entry of %x for another: %x", value, e)
				}
			}
		}
		l := accessList(value, to(back))
		if again := accessList(accessList(l, to(there)), to(back)); !bytes.Equal(l, again) {
			t.Errorf("%x there and back: %x", l, again)
		}
	})
}
