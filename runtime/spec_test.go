package runtime

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

func TestSpecCheck(t *testing.T) {
	good := func() Spec { return Spec{ID: "web-1.main.1", Args: []string{"/bin/web"}} }
	s := good()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if s.LogMax() != DefaultLogMax || s.Signal() != 15 {
		t.Errorf("%s, %v", s.LogMax(), s.Signal())
	}
	for field, change := range map[string]func(*Spec){
		"id":               func(s *Spec) { s.ID = "" },
		"id ":              func(s *Spec) { s.ID = ".hidden" },
		"id  ":             func(s *Spec) { s.ID = TaskID(strings.Repeat("x", 201)) },
		"id   ":            func(s *Spec) { s.ID = "a/b" },
		"previous":         func(s *Spec) { s.Previous = "../x" },
		"args":             func(s *Spec) { s.Args = []string{""} },
		"args[1]":          func(s *Spec) { s.Args = []string{"a", "b\x00c"} },
		"env[0]":           func(s *Spec) { s.Env = []string{"=x"} },
		"env[1]":           func(s *Spec) { s.Env = []string{"A=", "B"} },
		"dir":              func(s *Spec) { s.Dir = "tmp" },
		"mounts[0].target": func(s *Spec) { s.Mounts = []Mount{{Type: "tmpfs", Target: "/a/.."}} },
		"mounts[0].type":   func(s *Spec) { s.Mounts = []Mount{{Type: "nfs", Target: "/a"}} },
		"mounts[0].source": func(s *Spec) { s.Mounts = []Mount{{Type: "bind", Source: "a", Target: "/a"}} },
		"resources":        func(s *Spec) { s.Resources.Pids = -1 },
		"resources.cpu":    func(s *Spec) { s.Resources.CPU = 1 },
		"resources.memory": func(s *Spec) { s.Resources.Memory = 5 },
		"seccomp":          func(s *Spec) { s.Seccomp = "lax" },
		"hostNetwork":      func(s *Spec) { s.Network, s.HostNetwork = &wire.Attachment{}, true },
	} {
		s := good()
		change(&s)
		err := s.Check()
		if e, ok := errors.AsType[*InvalidSpec](err); !ok || e.Field != strings.TrimSpace(field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	s.LogMaxBytes = 1
	if s.LogMax() != 64*skerry.KiB {
		t.Error(s.LogMax())
	}
}

func TestCapabilityNames(t *testing.T) {
	got, err := CapabilityNames("capAdd", []string{"net_raw", "CAP_CHOWN"})
	if err != nil || !slices.Equal(got, []string{"CAP_NET_RAW", "CAP_CHOWN"}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, _ := CapabilityNames("capAdd", []string{"all"}); len(got) != 41 || got[21] != "CAP_SYS_ADMIN" || got[40] != "CAP_CHECKPOINT_RESTORE" {
		t.Errorf("%v", got)
	}
	if _, err := CapabilityNames("capDrop", []string{"KILL", "FLY"}); err == nil || !strings.HasPrefix(err.Error(), "capDrop[1]: ") {
		t.Error(err)
	}
}

func TestNetworkFiles(t *testing.T) {
	a := &wire.Attachment{Addresses: []netip.Prefix{netip.MustParsePrefix("10.31.0.2/24")}}
	if got := ResolvConf(a); !strings.HasPrefix(got, "#") {
		t.Error(got)
	}
	if got := Hosts(a, "", nil); strings.Contains(got, "10.31") {
		t.Error(got)
	}
	if got := Hosts(a, "web", nil); !strings.HasSuffix(got, "10.31.0.2 web\n") {
		t.Error(got)
	}
}
