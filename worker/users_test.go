//go:build linux

package worker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// ranges are of a directory with some instances and a pool for four.
func ranges(t *testing.T, dir string, ids ...skerry.InstanceID) *userRanges {
	t.Helper()
	for _, id := range ids {
		if err := os.MkdirAll(filepath.Join(dir, string(id)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	u := newUserRanges(dir, UserPool{First: 0x7400_0000, Size: 4 * usersEach}, "")
	u.taken = []string{filepath.Join(dir, "subuid")}
	return u
}

// Each instance has its own users, keeps them over a restart of the agent, also one with another pool, and leaves them to others when it is gone.
func TestUserRanges(t *testing.T) {
	dir := t.TempDir()
	u := ranges(t, dir, "a", "b", "c", "d", "e")
	// The second range belongs to somebody of the host.
	if err := os.WriteFile(filepath.Join(dir, "subuid"), []byte("# mine\nmule:1946222592:10\nmule:x:1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got := map[skerry.InstanceID]runtime.UserNamespace{}
	seen := map[uint32]bool{0x7401_0000: true}
	for _, id := range []skerry.InstanceID{"a", "b", "c"} {
		m, err := u.take(id)
		if err != nil || m.Size != usersEach || m.First < 0x7400_0000 || m.First > 0x7403_0000 || m.First%usersEach != 0 || seen[m.First] {
			t.Fatalf("%s: %+v, %v", id, m, err)
		}
		seen[m.First], got[id] = true, *m
	}
	if _, err := u.take("d"); err == nil || !strings.Contains(err.Error(), "--user-namespaces") {
		t.Errorf("a fourth: %v", err)
	}
	for _, later := range []*userRanges{u, ranges(t, dir), newUserRanges(dir, UserPool{First: 0x7500_0000, Size: usersEach}, "")} {
		for id, want := range got {
			if m, err := later.take(id); err != nil || *m != want {
				t.Errorf("%s: %+v, %v, not %+v", id, m, err, want)
			}
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if m, err := ranges(t, dir).take("e"); err != nil || *m != got["b"] {
		t.Errorf("%+v, %v, not what b had", m, err)
	}
	// A range that a changed pool would cut.
	cut := newUserRanges(dir, UserPool{First: got["a"].First - usersEach/2, Size: usersEach}, "")
	if m, err := cut.take("d"); err == nil {
		t.Errorf("%+v, which %+v has, too", m, got["a"])
	}
}

// Whom files on the disk belong to is not read again for each instance that starts, but before a range that was left is given again, and
// before the pool counts as used up.
func TestUserRangesLookOnce(t *testing.T) {
	dir := t.TempDir()
	u := ranges(t, dir, "a", "b", "c", "d", "e")
	looks := 0
	var held []uint32
	u.held = func() []uint32 { looks++; return held }
	take := func(id skerry.InstanceID, wantLooks int) uint32 {
		t.Helper()
		m, err := u.take(id)
		if err != nil {
			t.Fatalf("take %s: %v", id, err)
		}
		if looks != wantLooks {
			t.Errorf("after %s, got %d looks at the disk, want %d", id, looks, wantLooks)
		}
		return m.First
	}
	left := take("a", 1)
	take("b", 1)
	take("b", 1)
	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	held = []uint32{left} // a volume that outlives it
	u.give("a")
	take("c", 2)
	take("d", 2)
	if m, err := u.take("e"); err == nil || looks != 3 {
		t.Errorf("got %+v, %v after %d looks, want an error after 3, as a volume has the last range", m, err, looks)
	}
	held = nil
	if got := take("e", 4); got != left {
		t.Errorf("got users from %d, want the last range, from %d", got, left)
	}
}

// Workers of one machine give no users twice, also when the agent of one is down, and take those that ended. Two that had the same before
// they knew of each other find out.
func TestUserRangesOfTwoWorkers(t *testing.T) {
	dir := t.TempDir()
	all := filepath.Join(dir, "run", "users")
	worker := func(name string, ids ...skerry.InstanceID) *userRanges {
		u := ranges(t, filepath.Join(dir, name), ids...)
		u.all = userRegistry(all)
		return u
	}
	one, two := worker("one", "a", "b", "same"), worker("two", "a", "b", "c", "same")
	seen := map[uint32]bool{}
	for _, u := range []*userRanges{one, two} {
		for _, id := range []skerry.InstanceID{"a", "b"} {
			m, err := u.take(id)
			if err != nil || seen[m.First] {
				t.Fatalf("%s of %s: %+v, %v", id, u.dir, m, err)
			}
			seen[m.First] = true
		}
	}
	if info, err := os.Stat(filepath.Dir(all)); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("got a directory with %v, %v beside which directories of workers are, want one that users of theirs can enter", info.Mode(), err)
	}
	if m, err := two.take("c"); err == nil {
		t.Errorf("a fifth of four: %+v", m)
	}
	// Nobody tells that an instance of the first worker ended, and its agent is gone.
	if err := os.RemoveAll(filepath.Join(dir, "one", "a")); err != nil {
		t.Fatal(err)
	}
	if m, err := two.take("c"); err != nil || !seen[m.First] {
		t.Errorf("what was left: %+v, %v", m, err)
	}
	if m, err := two.take("a"); err != nil || !seen[m.First] {
		t.Errorf("its own again: %+v, %v", m, err)
	}
	for _, id := range []skerry.InstanceID{"a", "b", "c"} {
		if err := os.RemoveAll(filepath.Join(two.dir, string(id))); err != nil {
			t.Fatal(err)
		}
		two.give(id)
	}
	if err := os.RemoveAll(one.dir); err != nil {
		t.Fatal(err)
	}
	if err := TidyUsers(all); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(all); err == nil {
		t.Error("the registry is left")
	}
	// As from versions that did not look.
	ranges(t, one.dir, "same")
	for _, name := range []string{"one", "two"} {
		if err := os.WriteFile(filepath.Join(dir, name, "same", usersFile), []byte("1979711488"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := worker("one").take("same"); err != nil {
		t.Error(err)
	}
	if m, err := worker("two").take("same"); err == nil || !strings.Contains(err.Error(), "one/same of another worker of this machine") {
		t.Errorf("the same users: %+v, %v", m, err)
	}
}

func TestUserRangesAreFreed(t *testing.T) {
	dir := t.TempDir()
	u := ranges(t, dir, "a", "b")
	u.pool.Size = usersEach
	one, err := u.take("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.take("b"); err == nil {
		t.Error("two have the same users")
	}
	u.give("a")
	if two, err := u.take("b"); err != nil || *two != *one {
		t.Errorf("%+v, %v", two, err)
	}
}

func TestParseUserPool(t *testing.T) {
	for text, want := range map[string]UserPool{
		"": {}, "off": {Off: true}, "100000-165535": {First: 100000, Size: 1 << 16}, "1879048192-2147287039": defaultUsers,
	} {
		if got, err := ParseUserPool(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"1", "on", "-", "5-100000", "100000-100001", "200000-100000", "1073741824-1073807360", "0-4294967295", "2147287040-2147352575", "100000--1"} {
		if got, err := ParseUserPool(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if d := defaultUsers; uint64(d.First) < firstOwnUser+ownUsers || d.First+d.Size > runtime.ProbeUsers().First {
		t.Error("the default pool has users of others")
	}
}

func FuzzSubIDs(f *testing.F) {
	f.Add("root:100000:65536\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseSubIDs(strings.NewReader(text))
		if err != nil && len(text) < 1<<16 {
			t.Error(err)
		}
		for _, r := range list {
			if r.last < r.first || !strings.Contains(text, ":") {
				t.Errorf("%+v of %q", r, text)
			}
		}
	})
}

func TestHostUsers(t *testing.T) {
	host := []spec.Volume{{Name: "v", Host: &spec.HostVolume{Path: "/srv"}}}
	for name, c := range map[string]struct {
		level spec.SecurityLevel
		spec  runtime.Spec
		k     spec.Container
		vols  []spec.Volume
		why   string
		err   string
	}{
		"restricted":                 {level: spec.LevelRestricted},
		"baseline":                   {level: spec.LevelBaseline, k: spec.Container{Security: spec.Security{AddCaps: []string{"MKNOD"}}}},
		"trusted":                    {level: spec.LevelPrivileged},
		"of an older site":           {},
		"privileged":                 {level: spec.LevelRestricted, spec: runtime.Spec{Privileged: true}, why: "it is privileged"},
		"moves":                      {level: spec.LevelBaseline, spec: runtime.Spec{Checkpoint: true}, why: "memory"},
		"a high user":                {level: spec.LevelPrivileged, spec: runtime.Spec{User: "70000"}, why: "70000:0"},
		"a high user, restricted":    {level: spec.LevelRestricted, spec: runtime.Spec{User: "1:65536"}, err: "user: 1:65536 is above"},
		"the highest user":           {level: spec.LevelRestricted, spec: runtime.Spec{User: "65535"}},
		"hooks":                      {level: spec.LevelBaseline, spec: runtime.Spec{Hooks: []runtime.Hook{{}}}, why: "programs"},
		"a device":                   {level: spec.LevelPrivileged, spec: runtime.Spec{Devices: []runtime.Device{{}}}, why: "a device"},
		"a device that is granted":   {level: spec.LevelBaseline, spec: runtime.Spec{Devices: []runtime.Device{{}}}},
		"a path":                     {level: spec.LevelPrivileged, k: spec.Container{Mounts: []spec.Mount{{Volume: "v", Path: "/x"}}}, vols: host, why: "/srv"},
		"a path of an older site":    {k: spec.Container{Mounts: []spec.Mount{{Volume: "v", Path: "/x"}}}, vols: host, why: "/srv"},
		"a path of another":          {level: spec.LevelPrivileged, vols: host},
		"a path that is granted":     {level: spec.LevelRestricted, k: spec.Container{Mounts: []spec.Mount{{Volume: "v", Path: "/x"}}}, vols: host},
		"a capability of the host":   {level: spec.LevelPrivileged, k: spec.Container{Security: spec.Security{AddCaps: []string{"cap_net_admin"}}}, why: "NET_ADMIN"},
		"all capabilities":           {level: spec.LevelPrivileged, k: spec.Container{Security: spec.Security{AddCaps: []string{"ALL"}}}, why: "ALL"},
		"a capability of its own":    {level: spec.LevelPrivileged, k: spec.Container{Security: spec.Security{AddCaps: []string{"DAC_READ_SEARCH"}}}},
		"a capability that all have": {level: spec.LevelPrivileged, k: spec.Container{Security: spec.Security{AddCaps: []string{"CHOWN"}}}},
	} {
		a := spec.Assignment{Org: "mule", Level: c.level, Spec: spec.ServiceSpec{Volumes: c.vols}}
		why, err := hostUsers(&c.spec, &c.k, &a)
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v", name, why, err)
		}
	}
}

// A file that cannot be read is no reason to give away users that may be somebody's.
func TestUserRangesCannotLook(t *testing.T) {
	u := ranges(t, t.TempDir(), "a")
	u.taken = []string{u.dir}
	if _, err := u.take("a"); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
