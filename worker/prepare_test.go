//go:build linux

package worker

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// A site that knows no levels, one that trusts, and what is left where it does not.
func TestConfine(t *testing.T) {
	for _, c := range []struct {
		level  spec.SecurityLevel
		driver string
		user   string // that is asked for
		own    bool   // it gets a user of its own
		drop   []string
	}{
		{"", "oci", "", false, nil},
		{spec.LevelPrivileged, "oci", "", false, nil},
		{spec.LevelPrivileged, "native", "root", false, nil},
		{spec.LevelBaseline, "oci", "", false, nil},
		{spec.LevelBaseline, "native", "", true, nil},
		{spec.LevelRestricted, "oci", "33", false, []string{"ALL"}},
		{spec.LevelRestricted, "microvm", "", false, []string{"ALL"}},
		{spec.LevelRestricted, "wasm", "", false, nil},
		{spec.LevelRestricted, "native", "0:0", true, nil},
		{spec.LevelRestricted, "native", "daemon", true, nil},
	} {
		task := runtime.Spec{User: c.user}
		confine(&task, &spec.Assignment{ID: "web-r1", Level: c.level}, c.driver)
		if own := task.User != c.user; own != c.own || !slices.Equal(task.CapDrop, c.drop) {
			t.Errorf("%q, %s as %q: user %q, without %v", c.level, c.driver, c.user, task.User, task.CapDrop)
		}
	}
	if a, b := ownUser("web-r1"), ownUser("web-r2"); a == b || a < firstOwnUser {
		t.Errorf("users %d and %d", a, b)
	}
}

// driverOf is one of which nothing is asked.
type driverOf struct{ runtime.Driver }

// serverWith gives a server that has drivers, and nothing else.
func serverWith(drivers map[string]runtime.Driver) *Server {
	s := &Server{runtimes: &runtimes{named: drivers}}
	s.prober = &prober{driverOf: s.runtimes.of}
	return s
}

// A cluster that knows no classes sends what asks for one to the default shim: that is refused, for it would not be kept apart as it asks.
func TestRuntimeMustBeTheOneAskedFor(t *testing.T) {
	s := serverWith(map[string]runtime.Driver{"containerd": driverOf{}, "microvm": driverOf{}})
	for _, svc := range []spec.ServiceSpec{
		{Runtime: "containerd", RuntimeClass: "kata"},
		{Runtime: "containerd", Isolation: spec.IsolationHardware},
		{Runtime: "containerd", RuntimeClass: "kata", Isolation: spec.IsolationHardware},
	} {
		m := s.prepare(t.Context(), core.Prepare{A: spec.Assignment{ID: "web-r1", Spec: svc, Runtime: "containerd"}})
		if !m.Permanent || m.Err != "runtime containerd is not of the isolation or class that the service asks for" {
			t.Errorf("%+v: %+v", svc, m)
		}
	}
	m := s.prepare(t.Context(), core.Prepare{A: spec.Assignment{Spec: spec.ServiceSpec{Runtime: "containerd", RuntimeClass: "kata"},
		Runtime: "containerd/shared/kata"}})
	if !m.Permanent || m.Err != "this worker has no runtime containerd/shared/kata" {
		t.Errorf("%+v", m)
	}
	// A cluster that chose no runtime at all knows no classes either.
	if got := runtimeOf(&spec.Assignment{Spec: spec.ServiceSpec{Isolation: spec.IsolationHardware}}); got != "microvm" {
		t.Error(got)
	}
}

// A preparation that is repeated while a program runs does not empty its configuration under it, not even for a moment.
func TestConfigThatIsThereStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config", "0")
	file := spec.ConfigFile{Path: "/etc/app", Content: "level: 3\n"}
	if err := writeConfig(path, file); err != nil {
		t.Fatal(err)
	}
	was := time.Unix(1_700_000_000, 0)
	if err := os.Chtimes(path, was, was); err != nil {
		t.Fatal(err)
	}
	if err := writeConfig(path, file); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || !st.ModTime().Equal(was) {
		t.Errorf("it was written again: %v, %v", st.ModTime(), err)
	}
	file.Content, file.Mode = "level: 4\n", "0400"
	if err := writeConfig(path, file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if st, e := os.Stat(path); err != nil || e != nil || string(data) != file.Content || st.Mode().Perm() != 0o400 {
		t.Errorf("a new one is %q, %v", data, st.Mode())
	}
}
