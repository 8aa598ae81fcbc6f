//go:build linux

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime/oci"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker"
)

// ownerOf gives the user of the host that a process runs as.
func ownerOf(t *testing.T, pid int) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d", pid), &st); err != nil {
		t.Fatal(err)
	}
	return st.Uid
}

// TestUserNamespaces upgrades a worker from an agent without user namespaces: what runs is left alone, its next instance has users of its own
// and finds its files as they were; instances have different users; and what needs the host's users has them.
func TestUserNamespaces(t *testing.T) {
	s := &site{t: t, users: worker.UserPool{Off: true}, log: logger(t)}
	s.open()
	s.image("test/workload:1", workload)
	version := func(n string) {
		t.Helper()
		s.do(app("ledger",
			service("db", "test/workload:1", func(x *spec.ServiceSpec) {
				x.Args, x.Env, x.User = []string{"sleep"}, map[string]string{"VERSION": n}, "1234"
				x.Volumes = []spec.Volume{{Name: "data", Local: &spec.LocalVolume{}}, {Name: "memory", Empty: &spec.EmptyVolume{Memory: true, Size: skerry.MiB}}}
				x.Mounts = []spec.Mount{{Volume: "data", Path: "/data"}, {Volume: "memory", Path: "/memory"}}
				x.Config = []spec.ConfigFile{{Path: "/etc/ledger", Content: "for root\n", Mode: "0400"}}
			}),
			service("web", "test/workload:1", func(x *spec.ServiceSpec) {
				x.Args, x.Env = []string{"sleep"}, map[string]string{"VERSION": n}
				x.Config = []spec.ConfigFile{{Path: "/etc/web", Content: "for root\n", Mode: "0400"}}
			}),
			service("admin", "test/workload:1", func(x *spec.ServiceSpec) {
				x.Args, x.Env = []string{"sleep"}, map[string]string{"VERSION": n}
				x.Volumes = []spec.Volume{{Name: "host", Host: &spec.HostVolume{Path: "/etc"}}}
				x.Mounts = []spec.Mount{{Volume: "host", Path: "/host", ReadOnly: true}}
			})))
	}
	of := func(service string) (id skerry.InstanceID) {
		t.Helper()
		list, err := s.Root.Instances(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			if i.Service.Service == service {
				id = i.ID
			}
		}
		return id
	}
	reports := func() wire.RuntimeReport {
		t.Helper()
		list := s.Worker.Runtimes()
		n := slices.IndexFunc(list, func(r wire.RuntimeReport) bool { return r.Name == spec.RuntimeOCI })
		return list[n]
	}
	version("1")
	s.await("all are ready", s.ready(3))
	if r := reports(); !r.NoUserNamespaces() || !strings.Contains(r.Cause, "--user-namespaces") {
		t.Errorf("%+v", r)
	}
	before := s.pids()
	if uid := ownerOf(t, before[of("web")]); uid != 0 {
		t.Fatalf("without user namespaces it is user %d", uid)
	}
	if out, code := s.insideOf(of("db"), "write", "/data/note", "kept"); code != 0 {
		t.Fatal(out)
	}

	restart := func() {
		t.Helper()
		s.stopAgent()
		if err := s.Worker.Close(); err != nil {
			t.Fatal(err)
		}
		s.startWorker("")
		s.await("the worker is back", func() bool {
			ws, err := s.Cluster.Workers(context.Background())
			return err == nil && len(ws) == 1 && ws[0].Connected && s.ready(3)()
		})
	}
	s.users = worker.UserPool{}
	restart()
	if r := reports(); r.NoUserNamespaces() {
		t.Fatalf("%+v", r)
	}
	for id, pid := range s.pids() {
		if before[id] != pid {
			t.Errorf("%s was started anew", id)
		}
	}

	next := func(n string) map[skerry.InstanceID]int {
		t.Helper()
		before := s.pids()
		version(n)
		s.await("all were replaced", func() bool {
			now := s.pids()
			for id := range before {
				if _, there := now[id]; there {
					return false
				}
			}
			return len(now) == 3 && s.ready(3)()
		})
		return s.pids()
	}
	now := next("2")
	web, db := ownerOf(t, now[of("web")]), ownerOf(t, now[of("db")])
	if web < 0x7000_0000 || db < 0x7000_0000 || web%(1<<16) != 0 || db%(1<<16) != 1234 || web == db-1234 {
		t.Errorf("the users of the host are %d and %d", web, db)
	}
	if uid := ownerOf(t, now[of("admin")]); uid != 0 {
		t.Errorf("a trusted container with the host's path is user %d", uid)
	}
	type look struct {
		service string
		args    []string
		want    string
	}
	inside := func(endpoints string) []look {
		return []look{
			{"db", []string{"read", "/data/note"}, "kept"},
			{"db", []string{"owner", "/data/note"}, "1234 0644 memory=false\n"},
			{"db", []string{"write", "/data/more", "x"}, "written\n"},
			{"db", []string{"write", "/memory/x", "x"}, "written\n"},
			{"db", []string{"owner", "/memory/x"}, "1234 0644 memory=true\n"},
			{"web", []string{"read", "/etc/web"}, "for root\n"},
			{"web", []string{"owner", "/etc/web"}, "0 0400 memory=false\n"},
			{"web", []string{"owner", "/run/skerry/endpoints.json"}, endpoints + " 0644 memory=false\n"},
		}
	}
	see := func(list []look) {
		t.Helper()
		for _, c := range list {
			if out, code := s.insideOf(of(c.service), c.args...); code != 0 || out != c.want {
				t.Errorf("%s %v: %d %q", c.service, c.args, code, out)
			}
		}
	}
	see(inside("0"))
	if out, code := s.insideOf(of("db"), "read", "/etc/ledger"); code == 0 {
		t.Errorf("a user reads what is for root: %q", out)
	}
	// Where owners cannot be mapped an organisation has the users, and its files go to them, and back. What runs is left alone, and an agent that is
	// started anew knows whose users are whose.
	s.owners = oci.OwnersCopied
	restart()
	if out, code := s.insideOf(of("web"), "reopen"); code != 0 || out != "/dev/stdout\n/dev/stderr\n" {
		t.Errorf("%d %q", code, out)
	}
	if r := reports(); !r.SharedUsers() || r.NoUserNamespaces() {
		t.Fatalf("%+v", r)
	}
	now = next("3")
	web, db = ownerOf(t, now[of("web")]), ownerOf(t, now[of("db")])
	if web < 0x7000_0000 || web%(1<<16) != 0 || db != web+1234 {
		t.Errorf("the users of the host are %d and %d", web, db)
	}
	if uid := ownerOf(t, now[of("admin")]); uid != 0 {
		t.Errorf("a trusted container with the host's path is user %d", uid)
	}
	see(inside("65534"))
	s.owners = oci.OwnersMapped
	restart()
	now = next("4")
	if again := ownerOf(t, now[of("web")]); again == web {
		t.Errorf("an instance has the users of its organisation, %d", web)
	}
	see(inside("0"))
}
