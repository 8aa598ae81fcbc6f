//go:build linux

package worker

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/internal/loopfs"
	"skerry.dev/skerry/internal/owners"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// orgRanges are of a worker's directory, with a pool for four.
func orgRanges(t *testing.T, dir string) *userRanges {
	t.Helper()
	u := ranges(t, filepath.Join(dir, "instances"))
	u.known = nil
	return u
}

func first(t *testing.T, u *userRanges, org string) uint32 {
	t.Helper()
	m, err := u.organisation(org)
	if err != nil || m.Size != usersEach {
		t.Fatalf("%s: %+v, %v", org, m, err)
	}
	return m.First
}

// An organisation has its users for as long as something belongs to them, and nobody else has them: no other organisation, no instance and
// nobody of the host.
func TestUsersOfOrganisations(t *testing.T) {
	dir := t.TempDir()
	u := orgRanges(t, dir)
	u.known = []string{filepath.Join(dir, "passwd")}
	if err := os.WriteFile(u.known[0], []byte("root:x:0:0::/:/bin/sh\n# no\nmule:x:1946157057:1::/:/bin/sh\nx:y\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var held []uint32
	u.held = func() []uint32 { return held }
	mule, heron := first(t, u, "mule"), first(t, u, "heron")
	if err := os.MkdirAll(filepath.Join(u.dir, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if mule == heron || mule == 0x7400_0000 || heron == 0x7400_0000 {
		t.Fatalf("the users begin at %d and %d", mule, heron)
	}
	held = []uint32{mule} // what belongs to them keeps them
	a, err := u.take("a")
	if err != nil || a.First == mule || a.First == heron {
		t.Fatalf("an instance has %+v, %v", a, err)
	}
	if m, err := u.organisation("third"); err == nil {
		t.Errorf("a fourth of three: %+v", m)
	}
	for _, later := range []*userRanges{u, orgRanges(t, dir), newUserRanges(u.dir, UserPool{First: 0x7500_0000, Size: usersEach}, "")} {
		if first(t, later, "mule") != mule || first(t, later, "heron") != heron {
			t.Error("they have others now")
		}
	}
	since := time.Now()
	u = orgRanges(t, dir)
	u.held = func() []uint32 { return held }
	for range 2 {
		if err := u.release(map[string]bool{"other": true}, since); err != nil {
			t.Fatal(err)
		}
		if got := u.organisations(); len(got) != 1 || got["mule"] != mule {
			t.Fatalf("they are kept for %v", got)
		}
	}
	held = nil
	if err := u.release(map[string]bool{"mule": true}, since); err != nil || len(u.organisations()) != 1 {
		t.Errorf("an instance was here: %v, %v", u.organisations(), err)
	}
	first(t, u, "mule")
	if err := u.release(nil, since); err != nil || len(u.organisations()) != 1 {
		t.Errorf("somebody has just asked: %v, %v", u.organisations(), err)
	}
	if err := u.release(nil, time.Now().Add(time.Second)); err != nil || len(u.organisations()) != 0 {
		t.Errorf("nothing is left: %v, %v", u.organisations(), err)
	}
	for _, org := range []string{"../etc", "A B", "-"} {
		if m, err := u.organisation(org); err == nil {
			t.Errorf("%q: %+v", org, m)
		}
	}
	if none := first(t, u, ""); u.organisations()[""] != none {
		t.Errorf("of no organisation: %v", u.organisations())
	}
}

// Two workers of a machine give no users twice, also to organisations. After a restart of the machine, when nothing runs, the one that comes later
// has others, and what it has on the disk follows.
func TestUsersOfOrganisationsOfTwoWorkers(t *testing.T) {
	dir := t.TempDir()
	all := filepath.Join(dir, "run", "users")
	worker := func(name string) *userRanges {
		u := orgRanges(t, filepath.Join(dir, name))
		u.all = userRegistry(all)
		return u
	}
	one, two := first(t, worker("one"), "mule"), first(t, worker("two"), "mule")
	if one == two {
		t.Fatal("both have the same")
	}
	if err := errors.Join(os.RemoveAll(all), os.WriteFile(filepath.Join(dir, "two", organisationsDir, "mule", usersFile), []byte("1946157056"), 0o644),
		os.WriteFile(filepath.Join(dir, "one", organisationsDir, "mule", usersFile), []byte("1946157056"), 0o644)); err != nil {
		t.Fatal(err)
	}
	first(t, worker("one"), "other") // it tells of all that it has
	later := worker("two")
	later.held = func() []uint32 { return []uint32{0x7400_0000} }
	if got := first(t, later, "mule"); got == 0x7400_0000 || got == first(t, worker("one"), "other") {
		t.Errorf("both have %d", got)
	}
	if got := first(t, worker("one"), "mule"); got != 0x7400_0000 {
		t.Errorf("the first one has %d", got)
	}
}

func FuzzAccounts(f *testing.F) {
	f.Add("mule:x:1946157056:1::/:/bin/sh\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseAccounts(strings.NewReader(text))
		if err != nil && len(text) < 1<<16 {
			t.Error(err)
		}
		for _, r := range list {
			if r.last != r.first || !strings.Contains(text, ":") {
				t.Errorf("%+v of %q", r, text)
			}
		}
	})
}

// owned gives the user that a file belongs to.
func owned(t *testing.T, file string) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(file, &st); err != nil {
		t.Fatal(err)
	}
	return st.Uid
}

// withVolumes is an instance with a volume of each kind, in which files of user 1234 are.
func withVolumes(t *testing.T, s *Server) (*spec.Assignment, map[string]string) {
	t.Helper()
	a := &spec.Assignment{ID: "db-1", Service: ledgerDB.Service, Org: "mule", Runtime: "oci", Spec: spec.ServiceSpec{
		Container: spec.Container{Mounts: []spec.Mount{{Volume: "plain", Path: "/a"}, {Volume: "sized", Path: "/b"}, {Volume: "empty", Path: "/c"}, {Volume: "memory", Path: "/d"}, {Volume: "host", Path: "/e"}}},
		Volumes: []spec.Volume{{Name: "plain", Local: &spec.LocalVolume{}}, {Name: "sized", Local: &spec.LocalVolume{Size: 16 * skerry.MiB}}, {Name: "empty", Empty: &spec.EmptyVolume{}},
			{Name: "memory", Empty: &spec.EmptyVolume{Memory: true, Size: skerry.MiB}}, {Name: "host", Host: &spec.HostVolume{Path: t.TempDir()}}, {Name: "unused", Local: &spec.LocalVolume{}}},
		Config: []spec.ConfigFile{{Path: "/etc/x", Content: "for root", Mode: "0400"}},
	}}
	if err := s.makeFiles(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{}
	for i := range a.Spec.Volumes {
		v := &a.Spec.Volumes[i]
		dirs[v.Name] = s.volumeSource(a, v)
		file := filepath.Join(dirs[v.Name], "file")
		if err := errors.Join(os.WriteFile(file, []byte("x"), 0o600), os.Chown(file, 1234, 5678)); err != nil {
			t.Fatal(err)
		}
	}
	return a, dirs
}

// What a container sees goes to its users and back, and to nobody else's: not what it does not mount, and never what is the host's.
func TestSettleVolumes(t *testing.T) {
	s := withSnapshots(t, t.TempDir(), nil, nil)
	a, dirs := withVolumes(t, s)
	k := &a.Spec.Container
	for _, to := range []uint32{0x7400_0000, 0x7400_0000, 0x7401_0000, 0, 0x7400_0000} {
		list, err := s.mounts(t.Context(), a, k, "oci")
		if err != nil {
			t.Fatal(err)
		}
		spec := runtime.Spec{Mounts: list}
		if err := settleVolumes(t.Context(), s, a, k, &spec, to); err != nil {
			t.Fatal(err)
		}
		for name, dir := range dirs {
			want := to
			if name == "host" || name == "unused" {
				want = 0
			}
			if got, root := owned(t, filepath.Join(dir, "file")), owned(t, dir); got != want+1234 || root != want {
				t.Errorf("%s for %d: its file belongs to %d, and itself to %d", name, to, got, root)
			}
		}
		if st, err := os.Stat(s.configFile(a.ID, 0)); err != nil || owned(t, s.configFile(a.ID, 0)) != to || st.Mode().Perm() != 0o400 {
			t.Errorf("the file belongs to %d, %v", owned(t, s.configFile(a.ID, 0)), err)
		}
		shifted := 0
		for _, m := range spec.Mounts {
			if m.Shifted {
				shifted++
			}
			if m.Shifted && (m.Source == dirs["host"] || to == 0) {
				t.Errorf("%+v", m)
			}
		}
		if want := map[bool]int{true: 0, false: 6}[to == 0]; shifted != want {
			t.Errorf("%d of the mounts are shifted, want %d: %+v", shifted, want, spec.Mounts)
		}
	}
	if err := os.WriteFile(filepath.Join(s.instanceDir(a.ID), "owners", ".data-1"), []byte("1946353664"), 0o600); err != nil { // a power cut left it
		t.Fatal(err)
	}
	held := heldUsers(s)
	if len(held) != 4 || held[0] != 0x7400_0000 {
		t.Errorf("on the disk are files of %v", held)
	}
	// A file system in memory is a new one after a restart of the machine.
	if err := unix.Unmount(dirs["memory"], 0); err != nil {
		t.Fatal(err)
	}
	if err := s.makeFiles(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if err := settleVolumes(t.Context(), s, a, k, &runtime.Spec{}, 0x7400_0000); err != nil || owned(t, dirs["memory"]) != 0x7400_0000 {
		t.Errorf("it belongs to %d, %v", owned(t, dirs["memory"]), err)
	}
}

// Nobody's files change hands while they are in use.
func TestSettleVolumesInUse(t *testing.T) {
	svc := &spec.ServiceSpec{Volumes: []spec.Volume{{Name: "data", Local: &spec.LocalVolume{}}, {Name: "other", Local: &spec.LocalVolume{}}},
		Container: spec.Container{Mounts: []spec.Mount{{Volume: "data", Path: "/data"}}}}
	s := withSnapshots(t, t.TempDir(), &program{}, svc)
	dirs := volumeDirs(t, s, map[string]skerry.Bytes{"data": 0, "other": 0})
	a := &spec.Assignment{ID: "db-1", Service: ledgerDB.Service, Org: "default", Spec: *svc}
	err := settleVolume(t.Context(), s, a, &svc.Volumes[0], 0x7400_0000)
	if se, ok := errors.AsType[*runtime.StartError](err); !ok || !strings.Contains(err.Error(), "container main, which runs") || !strings.Contains(se.Hint, "skerry restart") {
		t.Errorf("%v", err)
	}
	if err := settleVolume(t.Context(), s, a, &svc.Volumes[0], 0); err != nil {
		t.Errorf("as it is: %v", err)
	}
	if err := settleVolume(t.Context(), s, a, &svc.Volumes[1], 0x7400_0000); err != nil {
		t.Errorf("one that nobody has: %v", err)
	}
	if x, y := owned(t, dirs["data"]), owned(t, dirs["other"]); x != 0 || y != 0x7400_0000 {
		t.Errorf("they belong to %d and %d", x, y)
	}
}

// A snapshot has the numbers that users have inside, wherever it is taken, and a volume that is made of it belongs to nobody yet.
func TestSnapshotsOfSettledVolumes(t *testing.T) {
	s, other := withSnapshots(t, t.TempDir(), nil, nil), withSnapshots(t, t.TempDir(), nil, nil)
	a, dirs := withVolumes(t, s)
	for n, to := range []uint32{0x7400_0000, 0} {
		if err := settleVolumes(t.Context(), s, a, &a.Spec.Container, &runtime.Spec{}, to); err != nil {
			t.Fatal(err)
		}
		id := []string{"one", "two"}[n]
		snap, _, err := askWorker(s, http.MethodPost, "/snapshots/"+id, takeBody(t, takeSnapshot{Claim: ledgerDB}))
		if err != nil {
			t.Fatal(err)
		}
		if got := owned(t, filepath.Join(dirs["plain"], "file")); got != to+1234 {
			t.Errorf("the volume belongs to %d now", got)
		}
		_, stream, err := askWorker(s, http.MethodGet, "/snapshots/"+id, nil)
		if err != nil {
			t.Fatal(err)
		}
		q := url.Values{"claim": {ledgerDB.Key()}, "sha256": {snap.SHA256}, "stream": {"true"}}
		for _, at := range []*Server{other, s} { // of which one may have been given to users before
			if _, _, err := askWorker(at, http.MethodPost, "/snapshots/"+id+"/restore?"+q.Encode(), bytes.NewReader(stream)); err != nil {
				t.Fatal(err)
			}
			dir := at.claimDir(ledgerDB)
			if _, err := loopfs.Ensure(t.Context(), loopfs.Options{Image: filepath.Join(dir, "sized", "image"), Dir: filepath.Join(dir, "sized", "data"), Lasting: true}); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"plain", "sized"} {
				if ranges, err := ownersOf(dir, name).Ranges(); err != nil || len(ranges) > 0 {
					t.Errorf("%s belongs to %v, %v", name, ranges, err)
				}
				if got := owned(t, filepath.Join(dir, name, "data", "file")); got != 1234 {
					t.Errorf("of a snapshot with %d, a file in %s belongs to %d", to, name, got)
				}
			}
			b := *a
			if err := errors.Join(at.makeFiles(t.Context(), &b), settleVolumes(t.Context(), at, &b, &b.Spec.Container, &runtime.Spec{}, 0x7401_0000)); err != nil {
				t.Fatal(err)
			}
			if got := owned(t, filepath.Join(dir, "sized", "data", "file")); got != 0x7401_0000+1234 {
				t.Errorf("then it belongs to %d", got)
			}
		}
	}
}

// mover is a driver that makes checkpoints.
type mover struct {
	*program
	runtime.Checkpointer
}

func (mover) CanCheckpoint(context.Context) error { return nil }

// What shares files with a container that has the host's users has them, too, where owners cannot be mapped.
func TestBesideHostUsers(t *testing.T) {
	data := []spec.Volume{{Name: "data", Local: &spec.LocalVolume{}}, {Name: "own", Empty: &spec.EmptyVolume{}}, {Name: "host", Host: &spec.HostVolume{Path: "/srv"}}}
	at := func(volume string) spec.Container {
		return spec.Container{Mounts: []spec.Mount{{Volume: volume, Path: "/data"}}}
	}
	trusted := func(k spec.Container) spec.Container { k.Security.Privileged = true; return k }
	for name, c := range map[string]struct {
		main, side spec.Container
		init       bool
		moves      bool           // main asks for a checkpoint
		driver     runtime.Driver // that may make it
		of         string
		why        string
	}{
		"neither":                  {main: at("data"), side: at("data"), of: "side"},
		"a privileged main":        {main: trusted(at("data")), side: at("data"), of: "side", why: "it shares the volume data with main, which has them (it is privileged)"},
		"a privileged sidecar":     {main: at("data"), side: trusted(at("data")), of: spec.MainContainer, why: "it shares the volume data with side"},
		"itself":                   {main: at("data"), side: trusted(at("data")), of: "side"},
		"another volume":           {main: at("data"), side: trusted(at("own")), of: spec.MainContainer},
		"the host's":               {main: at("host"), side: trusted(at("host")), of: spec.MainContainer},
		"one that is over by then": {main: at("data"), side: trusted(at("data")), init: true, of: spec.MainContainer},
		"one that cannot move":     {main: at("data"), side: at("data"), moves: true, driver: &program{}, of: "side"},
		"one that can move":        {main: at("data"), side: at("data"), moves: true, driver: mover{program: &program{}}, of: "side", why: "migration by checkpoint"},
		"one that is before":       {main: trusted(at("data")), side: at("data"), init: true, of: "side"},
	} {
		a := &spec.Assignment{ID: "db-1", Org: "mule", Level: spec.LevelRestricted, Spec: spec.ServiceSpec{Container: c.main, Volumes: data}}
		list := []spec.SideContainer{{Name: "side", Container: c.side}}
		if c.init {
			a.Spec.Init = list
		} else {
			a.Spec.Sidecars = list
		}
		if c.moves {
			a.Spec.Migration.Mode = spec.MigrateCheckpoint
		}
		k, _ := containerOf(&a.Spec, c.of)
		server := serverWith(map[string]runtime.Driver{spec.RuntimeOCI: c.driver})
		server.attach = &attachables{}
		why, err := beside(t.Context(), server, a, k, c.of)
		if err != nil || (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q, %v", name, why, err)
		}
	}
}

// A container has the users of its organisation, and an image that belongs to them, where owners cannot be mapped; elsewhere its instance's own,
// and the image as it is. What has the host's users has neither.
func TestSettleUsers(t *testing.T) {
	s := withSnapshots(t, t.TempDir(), nil, nil)
	var err error
	if s.opt.Images, err = artifact.Open(filepath.Join(t.TempDir(), "images"), artifact.Options{}); err != nil {
		t.Fatal(err)
	}
	defer s.opt.Images.Close()
	source := t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "x"), []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	img, err := s.opt.Images.Build(t.Context(), artifact.BuildOptions{Source: source, Tag: "skerry.local/x:1", Platform: artifact.HostPlatform(), Entrypoint: []string{"/x"}})
	if err != nil {
		t.Fatal(err)
	}
	lower, err := s.opt.Images.RootFS(t.Context(), img.Digest, artifact.HostPlatform())
	if err != nil {
		t.Fatal(err)
	}
	s.runtimes.mu.Lock()
	s.runtimes.reports = []wire.RuntimeReport{{Name: spec.RuntimeOCI, Cause: "the disk is full"}}
	s.runtimes.mu.Unlock()
	a := &spec.Assignment{ID: "z", Org: "mule", Runtime: spec.RuntimeOCI}
	err = settleUsers(t.Context(), s, a, &a.Spec.Container, spec.MainContainer, &runtime.Spec{}, img)
	if err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("after a self-test that failed, the error is %v, want one that gives its reason", err)
	}
	can := func(abilities ...string) {
		s.runtimes.mu.Lock()
		s.runtimes.reports = []wire.RuntimeReport{{Name: spec.RuntimeOCI, Passed: true, Abilities: abilities}}
		s.runtimes.mu.Unlock()
	}
	start := func(id skerry.InstanceID, org string, k spec.Container) (users uint32, image uint32) {
		t.Helper()
		k.Image = "x:1"
		a := &spec.Assignment{ID: id, Org: org, Level: spec.LevelRestricted, Runtime: spec.RuntimeOCI, Spec: spec.ServiceSpec{Container: k}}
		if err := errors.Join(os.MkdirAll(s.instanceDir(id), 0o755), prepareCopies(t.Context(), s, a, k.Image, img.Digest)); err != nil {
			t.Fatal(err)
		}
		made := s.opt.Images.Copies.Users()
		svc := runtime.Spec{Privileged: k.Security.Privileged}
		if svc.RootFS, err = rootFS(spec.RuntimeOCI, lower); err != nil {
			t.Fatal(err)
		}
		if err := settleUsers(t.Context(), s, a, &k, spec.MainContainer, &svc, img); err != nil {
			t.Fatal(err)
		}
		if later := s.opt.Images.Copies.Users(); len(later) != len(made) {
			t.Errorf("%s: copies for %v when it was prepared, and for %v when it starts", id, made, later)
		}
		dirs, _, err := runtime.OverlayDirs(svc.RootFS[0].Options)
		if err != nil {
			t.Fatal(err)
		}
		dir := dirs[0]
		if svc.RootFS[0].Shifted != (dir != lower[0]) {
			t.Errorf("%s: %+v", id, svc.RootFS)
		}
		if svc.UserNS != nil {
			users = svc.UserNS.First
		}
		return users, owned(t, filepath.Join(dir, "x"))
	}
	can(spec.AbilityUserNS, spec.AbilityUserNSCopies)
	mule, of := start("a", "mule", spec.Container{})
	again, _ := start("b", "mule", spec.Container{})
	heron, theirs := start("c", "heron", spec.Container{})
	if mule == 0 || again != mule || of != mule || heron == mule || theirs != heron {
		t.Errorf("users from %d and %d with files of %d, of another organisation from %d with files of %d", mule, again, of, heron, theirs)
	}
	if users, image := start("d", "third", spec.Container{Security: spec.Security{Privileged: true}}); users != 0 || image != 0 || len(s.opt.Images.Copies.Users()) != 2 {
		t.Errorf("one with the host's users has some from %d, and files of %d", users, image)
	}
	// What only an image says decides, too, for those beside it.
	if img, err = s.opt.Images.Build(t.Context(), artifact.BuildOptions{Source: source, Tag: "skerry.local/high:1", Platform: artifact.HostPlatform(), Entrypoint: []string{"/x"}, User: "70000"}); err != nil {
		t.Fatal(err)
	}
	high := &spec.Assignment{ID: "high", Org: "mule", Level: spec.LevelPrivileged, Runtime: spec.RuntimeOCI, Digest: map[string]string{"high:1": "skerry.local/high@" + string(img.Digest)},
		Spec: spec.ServiceSpec{Container: spec.Container{Image: "high:1"}}}
	if why, err := hostUsersOf(t.Context(), s, high, spec.MainContainer); err != nil || !strings.Contains(why, "70000") {
		t.Errorf("%q, %v", why, err)
	}
	can(spec.AbilityUserNS)
	if users, image := start("a", "mule", spec.Container{}); users == 0 || users == mule || users == heron || image != 0 {
		t.Errorf("with mapped owners an instance has users from %d, and files of %d", users, image)
	}
	can()
	if users, image := start("e", "mule", spec.Container{}); users != 0 || image != 0 {
		t.Errorf("without user namespaces it has users from %d, and files of %d", users, image)
	}
}

// What nothing of an organisation is left of is forgotten, and nothing else.
func TestPruneUsers(t *testing.T) {
	s := withSnapshots(t, t.TempDir(), nil, nil)
	images, err := artifact.Open(filepath.Join(t.TempDir(), "images"), artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer images.Close()
	s.opt.Images = images
	a, _ := withVolumes(t, s)
	mule := first(t, s.users, "mule")
	first(t, s.users, "heron")
	if err := settleVolumes(t.Context(), s, a, &a.Spec.Container, &runtime.Spec{}, mule); err != nil {
		t.Fatal(err)
	}
	pruneUsers(t.Context(), s, time.Now())
	if got := s.users.organisations(); len(got) != 1 || got["mule"] != mule {
		t.Errorf("they are kept for %v", got)
	}
	if err := errors.Join(s.removeFiles(a.ID), owners.Record(ownersOf(s.claimDir(ledgerDB), "plain")).Settle(t.Context(), filepath.Join(s.claimDir(ledgerDB), "plain", "data"), 0)); err != nil {
		t.Fatal(err)
	}
	pruneUsers(t.Context(), s, time.Now())
	if got := s.users.organisations(); len(got) != 1 {
		t.Errorf("the volume with a size is forgotten: %v", got)
	}
	s.removeVolumes(ledgerDB)
	pruneUsers(t.Context(), s, time.Now())
	if got := s.users.organisations(); len(got) != 0 {
		t.Errorf("they are kept for %v", got)
	}
}
