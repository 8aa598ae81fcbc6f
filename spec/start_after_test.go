package spec

import (
	"net/netip"
	"strings"
	"testing"
)

func TestStartAfter(t *testing.T) {
	zero := 0
	for name, c := range map[string]struct {
		edit func(*Application)
		want string // "" for what is right
	}{
		"ready by default": {func(*Application) {}, ""},
		"a job":            {func(a *Application) { a.Spec.Services[1].Mode = ModeJob }, ""},
		"a job that runs": {func(a *Application) {
			a.Spec.Services[1].Mode, a.Spec.Services[0].StartAfter[0].Condition = ModeJob, AfterRunning
		}, "is a job"},
		"no job": {func(a *Application) { a.Spec.Services[0].StartAfter[0].Condition = AfterCompleted }, "is not a job"},
		"by a schedule": {func(a *Application) {
			a.Spec.Services[1].Mode, a.Spec.Services[1].Cron = ModeCron, &CronSpec{Schedule: "@daily"}
		}, "by its schedule"},
		"schedule waits": {func(a *Application) {
			a.Spec.Services[0].Mode, a.Spec.Services[0].Cron = ModeCron, &CronSpec{Schedule: "@daily"}
		}, "starts by its schedule"},
		"itself":       {func(a *Application) { a.Spec.Services[0].StartAfter[0].Service = "web" }, "wait for itself"},
		"nobody":       {func(a *Application) { a.Spec.Services[0].StartAfter[0].Service = "nobody" }, `no service "nobody"`},
		"no condition": {func(a *Application) { a.Spec.Services[0].StartAfter[0].Condition = "healthy" }, "is not known"},
		"twice": {func(a *Application) {
			a.Spec.Services[0].StartAfter = append(a.Spec.Services[0].StartAfter, StartAfter{Service: "db"})
		}, "twice"},
		"no instance": {func(a *Application) { a.Spec.Services[1].Replicas = &zero }, "may have no instance"},
		"a ring": {func(a *Application) {
			a.Spec.Services[1].StartAfter = []StartAfter{{Service: "third"}}
			a.Spec.Services[2].StartAfter = []StartAfter{{Service: "web"}}
		}, "web, which waits for db, which waits for third, which waits for web"},
	} {
		service := func(name string) ServiceSpec { return ServiceSpec{Name: name, Container: Container{Image: "x:1"}} }
		a := &Application{APIVersion: APIVersion, Kind: KindApplication, Metadata: Metadata{Name: "shop"}, Spec: ApplicationSpec{
			Services: []ServiceSpec{service("web"), service("db"), service("third")}}}
		a.Spec.Services[0].StartAfter = []StartAfter{{Service: "db"}}
		before := a.Spec.Services[0].Revision()
		c.edit(a)
		if text := problemsOf(a.Validate()); c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, expected %q", name, text, c.want)
		}
		if a.Spec.Services[0].Mode == "" && a.Spec.Services[0].Revision() != before {
			t.Errorf("%s: the order makes a service another", name)
		}
	}
}

func TestHooksHostsAndParts(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*ServiceSpec)
		want string // "" for what is right
	}{
		"a hook":     {func(s *ServiceSpec) { s.PreStop = &Hook{Exec: &ExecProbe{Command: []string{"x"}}} }, ""},
		"a request":  {func(s *ServiceSpec) { s.PreStop = &Hook{HTTP: &HTTPProbe{Port: 80, Path: "/bye"}} }, ""},
		"no hook":    {func(s *ServiceSpec) { s.PreStop = &Hook{} }, "0 kinds of hook"},
		"two hooks":  {func(s *ServiceSpec) { s.PreStop = &Hook{Sleep: 1, HTTP: &HTTPProbe{Port: 80}} }, "2 kinds of hook"},
		"no command": {func(s *ServiceSpec) { s.PreStop = &Hook{Exec: &ExecProbe{}} }, "a command is missing"},
		"beyond its end": {func(s *ServiceSpec) { s.PreStop = &Hook{Sleep: Duration(2 * DefaultGrace)} },
			"longer than terminationGrace"},
		"of init":                 {func(s *ServiceSpec) { s.Init = side(&Hook{Sleep: 1}) }, "an init container ends by itself"},
		"after the start":         {func(s *ServiceSpec) { s.PostStart = &Hook{Exec: &ExecProbe{Command: []string{"x"}}} }, ""},
		"long after":              {func(s *ServiceSpec) { s.PostStart = &Hook{Sleep: Duration(2 * DefaultGrace)} }, ""},
		"two after the start":     {func(s *ServiceSpec) { s.PostStart = &Hook{Sleep: 1, HTTP: &HTTPProbe{Port: 80}} }, "2 kinds of hook"},
		"after the start of init": {func(s *ServiceSpec) { s.Init = afterStart(&Hook{Sleep: 1}) }, "an init container runs alone"},
		"after the start of a module": {func(s *ServiceSpec) {
			s.Runtime, s.PostStart = RuntimeWasm, &Hook{Exec: &ExecProbe{Command: []string{"x"}}}
		}, "postStart.exec"},
		"of a sidecar": {func(s *ServiceSpec) { s.Sidecars = side(&Hook{Sleep: 1}) }, ""},
		"no processes": {func(s *ServiceSpec) {
			s.Runtime, s.PreStop = RuntimeWasm, &Hook{Exec: &ExecProbe{Command: []string{"x"}}}
		}, "preStop.exec"},
		"a name":           {func(s *ServiceSpec) { s.Hostname = "mail.example.org" }, ""},
		"no name":          {func(s *ServiceSpec) { s.Hostname = "Mail_1" }, "is not a host name"},
		"a long name":      {func(s *ServiceSpec) { s.Hostname = strings.Repeat("a.", 32) + "a" }, "is not a host name"},
		"name of a kernel": {func(s *ServiceSpec) { s.Runtime, s.Hostname = RuntimeUnikernel, "mail" }, "hostname"},
		"another host":     {func(s *ServiceSpec) { s.ExtraHosts = entry("203.0.113.1", "lighthouse") }, ""},
		"no address":       {func(s *ServiceSpec) { s.ExtraHosts = entry("0.0.0.0", "lighthouse") }, "no address of a host"},
		"nameless":         {func(s *ServiceSpec) { s.ExtraHosts = entry("203.0.113.1") }, "a name is missing"},
		"a line break":     {func(s *ServiceSpec) { s.ExtraHosts = entry("203.0.113.1", "a\n127.0.0.1 b") }, "is not a host name"},
		"the host's file":  {func(s *ServiceSpec) { s.Runtime, s.ExtraHosts = RuntimeNative, entry("203.0.113.1", "a") }, "extraHosts"},
		"a part":           {func(s *ServiceSpec) { s.Mounts[0].SubPath = "a/b" }, ""},
		"upwards":          {func(s *ServiceSpec) { s.Mounts[0].SubPath = "../b" }, "is not a path within a volume"},
		"from the root":    {func(s *ServiceSpec) { s.Mounts[0].SubPath = "/b" }, "is not a path within a volume"},
		"unclean":          {func(s *ServiceSpec) { s.Mounts[0].SubPath = "a//b" }, "is not a path within a volume"},
		"moved along": {func(s *ServiceSpec) {
			s.Mounts[0].SubPath, s.Migration.Mode = "a", MigrateCheckpoint
		}, "mounts a part of a volume"},
	} {
		s := ServiceSpec{Name: "web", Container: Container{Image: "web:1", Mounts: []Mount{{Volume: "v", Path: "/v"}}},
			Volumes: []Volume{{Name: "v", Empty: &EmptyVolume{}}}}
		c.edit(&s)
		a := Application{APIVersion: APIVersion, Kind: KindApplication, Metadata: Metadata{Name: "shop"},
			Spec: ApplicationSpec{Services: []ServiceSpec{s}}}
		if text := problemsOf(a.Validate()); c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, expected %q", name, text, c.want)
		}
	}
	s := ServiceSpec{Hostname: "x", ExtraHosts: entry("203.0.113.1", "a"), Sidecars: side(&Hook{Sleep: 1})}
	s.Sidecars = append(s.Sidecars, afterStart(&Hook{Sleep: 1})...)
	s.Mounts = []Mount{{SubPath: "a"}}
	if got := strings.Join(FeaturesOf(&s), " "); got != "extraHosts hostname postStart preStop subPath" {
		t.Errorf("an agent must know %q", got)
	}
}

func side(h *Hook) []SideContainer {
	return []SideContainer{{Name: "side", Container: Container{Image: "side:1", PreStop: h}}}
}

func entry(address string, names ...string) []HostEntry {
	return []HostEntry{{Address: netip.MustParseAddr(address), Names: names}}
}

func afterStart(h *Hook) []SideContainer {
	return []SideContainer{{Name: "late", Container: Container{Image: "side:1", PostStart: h}}}
}

// What a service writes to a network file system is no reason to keep it on its worker; what it writes to the worker's own disk is.
func TestPathsOfWorker(t *testing.T) {
	s := ServiceSpec{Volumes: []Volume{{Name: "far", Host: &HostVolume{Path: "/srv/nfs/nas", FileSystem: "nfs"}},
		{Name: "near", Host: &HostVolume{Path: "/var/data"}}}}
	s.Mounts = []Mount{{Volume: "far", Path: "/far"}, {Volume: "near", Path: "/near"}}
	if got := strings.Join(PathsOfWorker(&s), " "); got != "/var/data" {
		t.Errorf("it keeps data at %q of its worker, expected /var/data", got)
	}
	if got := strings.Join(FeaturesOf(&s), " "); got != "fileSystem" {
		t.Errorf("an agent must know %q, expected fileSystem", got)
	}
}
