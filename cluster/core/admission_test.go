package core

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func TestAdmission(t *testing.T) {
	as := func(org string, edit func(*spec.ServiceSpec)) *spec.Assignment {
		a := &spec.Assignment{Org: org}
		a.Spec.Image = "shop/web:1"
		if edit != nil {
			edit(&a.Spec)
		}
		return a
	}
	native := func(s *spec.ServiceSpec) { s.Runtime = "native" }
	port := func(s *spec.ServiceSpec) { s.Ports = []spec.Port{{Port: 80, HostPort: 80}} }
	autoPort := func(s *spec.ServiceSpec) { s.Ports = []spec.Port{{Port: 80, HostPort: -1}} }
	path := func(p string) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) {
			s.Volumes = []spec.Volume{{Name: "v", Host: &spec.HostVolume{Path: p}}}
		}
	}
	privileged := func(s *spec.ServiceSpec) {
		s.Sidecars = []spec.SideContainer{{Container: spec.Container{Security: spec.Security{Privileged: true}}}}
	}
	caps := func(list ...string) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { s.Security.AddCaps = list }
	}
	allow := func(networks ...string) (e spec.Egress) {
		for _, n := range networks {
			e.Allow = append(e.Allow, spec.EgressRule{CIDR: netip.MustParsePrefix(n)})
		}
		return e
	}
	egress := func(networks ...string) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { e := allow(networks...); s.Egress = &e }
	}
	only := func(org string, networks ...string) map[string]spec.Egress {
		return map[string]spec.Egress{org: allow(networks...)}
	}
	both := func(a, b func(*spec.ServiceSpec)) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { a(s); b(s) }
	}
	elsewhere := func(s *spec.ServiceSpec) { s.Image = "evil.example/x:1" }
	elsewhereBeside := func(s *spec.ServiceSpec) {
		s.Sidecars = []spec.SideContainer{{Container: spec.Container{Image: "evil.example/x:1"}}}
	}
	large := func(s *spec.ServiceSpec) { s.Resources.Memory = 8 * skerry.GiB }
	pinned := func(org, repo string) *spec.Assignment {
		a := as(org, nil)
		a.Digest = map[string]string{a.Spec.Image: repo + "@sha256:" + strings.Repeat("0", 64)}
		return a
	}
	for _, c := range []struct {
		name   string
		policy Admission
		a      *spec.Assignment
		want   string // part of the reason; empty: admitted
	}{
		{"a plain service of anybody", Admission{}, as("guest", nil), ""},
		{"native", Admission{}, as("guest", native), "runtime asks for a process of the host, which needs the security level privileged; organisation guest has restricted"},
		{"priority", Admission{}, as("guest", func(s *spec.ServiceSpec) { s.Placement.Priority = 1 }), "no priority above 0"},
		{"priority up to what is allowed", Admission{MaxPriority: 5}, as("guest", func(s *spec.ServiceSpec) { s.Placement.Priority = 5 }), ""},
		{"a registry of another organisation", Admission{Trusted: []string{"guest"}, RegistryOrgs: map[string][]string{"evil.example": {"home"}}}, as("guest", elsewhere),
			"registry evil.example is not there for organisation guest"},
		{"a pinned image of one", Admission{RegistryOrgs: map[string][]string{"docker.io": {"home"}}}, pinned("guest", "docker.io/shop/web"), "registry docker.io is not there"},
		{"a registry of one's own", Admission{RegistryOrgs: map[string][]string{"evil.example": {"home"}}}, as("home", elsewhere), ""},
		{"native of one's own", Admission{Trusted: []string{"home"}}, as("home", native), ""},
		{"native allowed", Admission{Native: true}, as("guest", native), ""},
		{"a capability of the host's", Admission{Native: true, Level: spec.LevelBaseline}, as("guest", func(s *spec.ServiceSpec) {
			native(s)
			caps("DAC_OVERRIDE")(s)
		}), "the capability DAC_OVERRIDE, which needs the security level privileged"},
		{"fixed host port", Admission{}, as("guest", port), "ports[0].hostPort asks for the host's port 80"},
		{"chosen host port", Admission{}, as("guest", autoPort), ""},
		{"host path", Admission{}, as("guest", path("/srv/x")), "volumes[0].host asks for the host's path /srv/x"},
		{"host path allowed", Admission{HostPaths: []spec.HostPath{{Path: "/srv"}}}, as("guest", path("/srv/x")), ""},
		{"a path that only begins alike", Admission{HostPaths: []spec.HostPath{{Path: "/srv"}}}, as("guest", path("/srvx")), "host's path /srvx"},
		{"a path that leads out", Admission{HostPaths: []spec.HostPath{{Path: "/srv"}}}, as("guest", path("/srv/../etc")), "host's path /srv/../etc"},
		{"one volume of two", Admission{HostPaths: []spec.HostPath{{Path: "/srv"}}}, as("guest", func(s *spec.ServiceSpec) {
			path("/srv/x")(s)
			s.Volumes = append(s.Volumes, spec.Volume{Host: &spec.HostVolume{Path: "/etc"}})
		}), "host's path"},
		{"privileged side container", Admission{}, as("guest", privileged), "sidecars[0].security.privileged asks for a privileged container"},
		{"a capability that reads every file", Admission{}, as("guest", caps("DAC_READ_SEARCH")), "security.addCaps asks for the capability DAC_READ_SEARCH, which needs the security level privileged"},
		{"in small letters", Admission{}, as("guest", caps("cap_sys_admin")), "the capability SYS_ADMIN"},
		{"that one at baseline", Admission{Level: spec.LevelBaseline}, as("guest", caps("DAC_READ_SEARCH")), "organisation guest has baseline"},
		{"a harmless one", Admission{}, as("guest", caps("NET_BIND_SERVICE")), ""},
		{"one of the usual", Admission{}, as("guest", caps("CHOWN")), "needs the security level baseline"},
		{"one of the usual at baseline", Admission{Levels: map[string]spec.SecurityLevel{"guest": spec.LevelBaseline}}, as("guest", caps("CHOWN")), ""},
		{"another's level", Admission{Levels: map[string]spec.SecurityLevel{"home": spec.LevelPrivileged}}, as("guest", caps("CHOWN")), "needs the security level baseline"},
		{"less than others", Admission{Level: spec.LevelPrivileged, Levels: map[string]spec.SecurityLevel{"guest": spec.LevelRestricted}}, as("guest", native), "needs the security level privileged"},
		{"no filter", Admission{}, as("guest", func(s *spec.ServiceSpec) { s.Security.Seccomp = "unconfined" }), "no system call filter"},
		{"the default filter by name", Admission{}, as("guest", func(s *spec.ServiceSpec) { s.Security.Seccomp = "default" }), ""},
		{"new privileges", Admission{}, as("guest", func(s *spec.ServiceSpec) { s.Security.NewPrivs = true }), "needs the security level baseline"},
		{"an init container's", Admission{}, as("guest", func(s *spec.ServiceSpec) {
			s.Init = []spec.SideContainer{{}, {Container: spec.Container{Security: spec.Security{NewPrivs: true}}}}
		}), "init[1].security.newPrivileges"},
		{"a device", Admission{}, as("guest", func(s *spec.ServiceSpec) { s.Devices = []spec.DeviceRequest{{CDI: "acme.org/gpu"}} }), "devices asks for a device, which needs the security level baseline"},
		{"its memory restored by the host", Admission{}, as("guest", func(s *spec.ServiceSpec) { s.Migration.Mode = spec.MigrateCheckpoint }), "migration.mode asks for"},
		{"registry", Admission{Registries: []string{""}}, as("guest", elsewhere), "no images from evil.example"},
		{"registry of a sidecar", Admission{Registries: []string{""}}, as("guest", elsewhereBeside), "no images from evil.example"},
		{"registry allowed", Admission{Registries: []string{""}}, as("guest", nil), ""},
		{"denied", Admission{Denied: []string{"guest"}}, as("guest", nil), "organisation guest is not served"},
		{"not among the allowed", Admission{Allowed: []string{"friends"}}, as("guest", nil), "organisation guest is not served"},
		{"egress of its own", Admission{}, as("guest", egress("0.0.0.0/0")), ""},
		{"egress within the site's", Admission{Egress: only("guest", "203.0.113.0/24")}, as("guest", egress("203.0.113.8/29")), ""},
		{"none, and the site's", Admission{Egress: only("guest", "203.0.113.0/24")}, as("guest", nil), ""},
		{"egress beyond the site's", Admission{Egress: only("guest", "203.0.113.0/24")}, as("guest", egress("203.0.113.8/29", "0.0.0.0/0")), "egress.allow[1] asks for 0.0.0.0/0, and organisation guest may reach 203.0.113.0/24"},
		{"egress where there is to be none", Admission{Egress: only("guest")}, as("guest", egress("203.0.113.0/24")), "organisation guest may reach nothing"},
		{"egress of all others", Admission{Egress: only("*")}, as("guest", egress("203.0.113.0/24")), "organisation guest may reach nothing"},
		{"egress of another", Admission{Egress: only("home")}, as("guest", egress("203.0.113.0/24")), ""},
		{"egress of the trusted", Admission{Trusted: []string{"home"}, Egress: only("*")}, as("home", egress("203.0.113.0/24")), ""},
		{"egress of the trusted by name", Admission{Trusted: []string{"home"}, Egress: only("home")}, as("home", egress("203.0.113.0/24")), "organisation home may reach nothing"},
		{"privileged beside egress", Admission{Trusted: []string{"home"}}, as("home", both(egress(), privileged)), "sidecars[0].security.privileged asks for a privileged container, which could change the rules that hold it to egress of its manifest"},
		{"privileged beside the site's", Admission{Privileged: true, Egress: only("guest")}, as("guest", privileged), "hold it to the site's policy for organisation guest"},
		{"root of the host beside egress", Admission{Trusted: []string{"home"}}, as("home", both(egress(), native)), "runtime asks for a process of the host, which could change the rules"},
		{"native of a user of its own", Admission{Native: true}, as("guest", both(egress(), native)), ""},
		{"a capability of the host's beside egress", Admission{Trusted: []string{"home"}}, as("home", both(egress(), caps("SYS_ADMIN"))), "the capability SYS_ADMIN, which could change"},
		{"a harmless capability beside egress", Admission{Trusted: []string{"home"}}, as("home", both(egress(), caps("CHOWN"))), ""},
		{"too large", Admission{MaxPerInstance: spec.Resources{Memory: skerry.GiB}}, as("guest", large), "more memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.policy.Check(c.a)
			switch {
			case c.want == "" && r != nil:
				t.Error(r.Text)
			case c.want != "" && (r == nil || !strings.Contains(r.Text, c.want)):
				t.Errorf("%+v, want %q", r, c.want)
			case r != nil && r.Hint == "":
				t.Error("no hint")
			}
		})
	}
}

func TestSiteQuota(t *testing.T) {
	p := Admission{Quotas: map[string]SiteQuota{"guest": {Resources: spec.Resources{CPU: 1000}}}}
	half := &spec.Assignment{Org: "guest"}
	half.Spec.Resources = spec.Resources{CPU: 500, Memory: skerry.GiB}
	var used siteUse
	used.add(half)
	if r := p.CheckQuota(used, half); r != nil {
		t.Error(r.Text)
	}
	used.add(half)
	if r := p.CheckQuota(used, half); r == nil || r.Hint == "" {
		t.Errorf("%+v", r)
	}
	huge := *half // one that was admitted by an earlier version
	huge.Spec.Resources = spec.Resources{CPU: math.MaxInt64 / 2}
	for range 3 {
		if r := p.CheckQuota(used, &huge); r == nil {
			t.Error("a sum that is no number any more is within the quota")
		}
		used.add(&huge)
	}
	other := *half
	other.Org = "other"
	if r := p.CheckQuota(used, &other); r != nil {
		t.Error(r.Text)
	}
}

// Instances and service addresses are bounded at the site, too, those of copies among them.
func TestSiteQuotaCounts(t *testing.T) {
	for _, v := range []struct {
		quota SiteQuota
		mode  spec.Mode
		fits  int
		what  string
	}{
		{SiteQuota{Instances: 2}, spec.ModeService, 2, "instances"},
		{SiteQuota{ServiceAddresses: 6}, spec.ModeService, 3, "service addresses"},
		{SiteQuota{ServiceAddresses: 2}, spec.ModeService, 0, "service addresses"},
		{SiteQuota{ServiceAddresses: 3}, spec.ModePerWorker, 4, ""},
		{SiteQuota{Instances: 3}, spec.ModePerWorker, 3, ""},
		{SiteQuota{ServiceAddresses: 2}, spec.ModePerWorker, 0, ""},
	} {
		s := newOverlayNetSite(t)
		for n := range 4 {
			s.join(n + 1)
		}
		s.c.opt.Admission = Admission{Trusted: []string{"acme"}, Quotas: map[string]SiteQuota{"acme": v.quota}}
		svc := spec.ServiceSpec{Name: "web", Mode: v.mode, Resources: spec.Resources{CPU: 50, Memory: 8 * skerry.MiB}}
		if v.mode == spec.ModeService {
			four := 4
			svc.Replicas = &four
		}
		svc.Image = "web:1"
		a := spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication, Metadata: spec.Metadata{Name: "shop", Namespace: "acme"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{svc}}}
		fits := 0
		plan, err := s.c.PlanApp(s.now, a, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range plan.List {
			if p.Worker != "" {
				fits++
			}
		}
		s.do(apps.Apply{App: a})
		got := 0
		for _, p := range s.c.places {
			if p.Worker != "" && !p.Refused {
				got++
			}
		}
		if got != v.fits || v.mode == spec.ModeService && fits != v.fits {
			t.Errorf("%+v, %s: %d are planned and %d placed, want %d", v.quota, v.mode, fits, got, v.fits)
		}
		if v.what != "" && !slices.ContainsFunc(s.c.Apps.Instances(key("acme", "shop")), func(i *apps.Instance) bool { return strings.Contains(fmt.Sprint(i.Refusals, i.Why), v.what) }) {
			t.Errorf("%+v: no instance says why it has no place", v.quota)
		}
	}
}

// What runs when a site becomes stricter runs on, and is told of; what comes is held to the new level.
func TestUnadmitted(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1, Policies: sched.Policies(), Standalone: true, Admission: Admission{Trusted: []string{"default"}}})
	c.Start(now)
	c.Step(now, ChildUp{Hello: &wire.Hello{Name: "w", Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}})
	c.Step(now, ChildFrame{Name: "w", Msg: &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&wire.WorkerReport{Facts: &wire.WorkerFacts{
		Arch: "amd64", Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}}, Capacity: spec.Resources{CPU: 4000, Memory: 8 * skerry.GiB}}})}})
	c.Step(now, apps.PutOrg{Org: apps.Org{Name: "default"}})
	c.Step(now, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
	one := 1
	plain := spec.ServiceSpec{Name: "plain", Replicas: &one}
	plain.Image = "web:1"
	asks := plain
	asks.Name, asks.Security.AddCaps = "asks", []string{"SYS_ADMIN"}
	if fx := c.Step(now, apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Name: "shop"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{plain, asks}}}}); fx.Err != nil {
		t.Fatal(fx.Err)
	}
	for id, p := range c.places {
		if p.Worker != "w" || p.A.Level != spec.LevelPrivileged {
			t.Fatalf("%s is at %q with level %q: %+v", id, p.Worker, p.A.Level, p.Obs)
		}
	}
	if got := c.Unadmitted(); len(c.places) != 2 || len(got) != 0 {
		t.Fatalf("%d instances, told of %+v", len(c.places), got)
	}

	// Above a quota of the site, which counts 4Gi of storage for each instance that says nothing.
	c.opt.Admission.Quotas = map[string]SiteQuota{"default": {Resources: spec.Resources{Storage: 6 * skerry.GiB}}}
	if got := c.Unadmitted(); len(got) != 1 || got[0].Org != "default" || got[0].Instance != "" || !strings.Contains(got[0].Reason.Text, "above the site's quota of storage") || got[0].Reason.Hint == "" {
		t.Errorf("told of %+v", got)
	}

	c.opt.Admission = Admission{}
	got := c.Unadmitted()
	if len(got) != 1 || got[0].Service.Service != "asks" || got[0].Level != spec.LevelRestricted || !strings.Contains(got[0].Reason.Text, "SYS_ADMIN") || got[0].Reason.Hint == "" {
		t.Errorf("told of %+v", got)
	}
	for _, p := range c.places {
		if p.Worker != "w" || p.Removing {
			t.Errorf("%s was ended", p.A.ID)
		}
		p.A.Level = "" // as one of before there were levels
	}
	for id := range c.places {
		if v, _, _ := c.Instance(id); v.Resources.MostMemory() != 0 {
			t.Errorf("%s is said to have %s of memory", id, v.Resources.MostMemory())
		}
	}
	if got := c.Unadmitted(); len(got) != 2 || !strings.Contains(got[0].Reason.Text+got[1].Reason.Text, "placed before there were levels") {
		t.Errorf("told of %+v", got)
	}
}

// A worker learns of a site's directories those that the service's volumes are in, unless its organisation is held to none.
func TestConfine(t *testing.T) {
	p := Admission{Trusted: []string{"home"}, HostPaths: []spec.HostPath{{Path: "/srv/media"}, {Path: "/srv", Writable: true}, {Path: "/opt"}}}
	a := &spec.Assignment{Org: "guest", Spec: spec.ServiceSpec{Volumes: []spec.Volume{{Empty: &spec.EmptyVolume{}}, {Host: &spec.HostVolume{Path: "/srv/media/a"}}}}}
	p.confine(a)
	if a.Level != spec.LevelRestricted || !slices.Equal(a.HostPaths, p.HostPaths[:2]) {
		t.Errorf("%s, %v", a.Level, a.HostPaths)
	}
	a.Org = "home"
	p.confine(a)
	if a.Level != spec.LevelPrivileged || a.HostPaths != nil {
		t.Errorf("%s, %v", a.Level, a.HostPaths)
	}
}

// An instance is held to its manifest's egress, else to the site's for its organisation, from when it is placed: what runs keeps its own,
// and is told of.
func TestEgressInForce(t *testing.T) {
	site := map[string]spec.Egress{"guest": {Allow: []spec.EgressRule{{CIDR: netip.MustParsePrefix("203.0.113.0/24")}}}}
	p := Admission{Egress: site}
	a := &spec.Assignment{Org: "guest"}
	if p.confine(a); a.Egress.String() != "203.0.113.0/24" {
		t.Errorf("the site's: %s", a.Egress)
	}
	a.Spec.Egress = &spec.Egress{}
	if p.confine(a); a.Egress.String() != "nothing" {
		t.Errorf("its own: %s", a.Egress)
	}
	a.Org, a.Spec.Egress = "home", nil
	if p.confine(a); a.Egress != nil {
		t.Errorf("none: %s", a.Egress)
	}
	codec := wire.New()
	for _, e := range []*spec.Egress{nil, {}, {Allow: []spec.EgressRule{{CIDR: netip.MustParsePrefix("2001:db8::/32"), Except: []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/48")},
		Ports: []spec.EgressPort{{Port: 53, Protocol: "udp"}}}}}} {
		a.Egress = e
		for _, data := range [][]byte{codec.Marshal(a), codec.Text(a)} {
			var got spec.Assignment
			if err := codec.Unmarshal(data, &got); err != nil || got.Egress.String() != e.String() {
				t.Errorf("%s arrives as %s, %v", e, got.Egress, err)
			}
		}
	}
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1, Policies: sched.Policies(), Standalone: true, Admission: p})
	c.places["i"] = &placement{A: spec.Assignment{ID: "i", Org: "guest", Level: spec.LevelRestricted}, location: location{Worker: "w"}}
	if got := c.Unadmitted(); len(got) != 1 || !strings.Contains(got[0].Reason.Text, "once it is placed anew it reaches 203.0.113.0/24") || got[0].Reason.Hint == "" {
		t.Errorf("told of %+v", got)
	}
	c.places["i"].A.Egress = &spec.Egress{}
	if got := c.Unadmitted(); len(got) != 0 {
		t.Errorf("told of %+v", got)
	}
}

// TestApplicationsForElsewhere: a site does not take, by its own API, what its manifest has run at another, nor what names labels.
func TestApplicationsForElsewhere(t *testing.T) {
	for _, row := range []struct {
		what  string
		place spec.Placement
		want  string // "": taken
	}{
		{"nothing said", spec.Placement{}, ""},
		{"here", spec.Placement{Cluster: "harbour"}, ""},
		{"here, too", spec.Placement{Clusters: []string{"hill", "harbour"}}, ""},
		{"at another", spec.Placement{Cluster: "hill"}, "only at cluster hill"},
		{"at others", spec.Placement{Clusters: []string{"hill", "moor"}}, "only at clusters hill, moor"},
		{"by labels", spec.Placement{ClusterLabels: map[string]string{"region": "west"}}, "does not know its labels"},
	} {
		c, now := New(Options{Name: "harbour", Incarnation: "a1", Term: 1, Policies: sched.Policies(), Standalone: true}), time.Unix(1000, 0)
		c.Start(now)
		c.Step(now, apps.PutOrg{Org: apps.Org{Name: "default"}})
		c.Step(now, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
		service := spec.ServiceSpec{Name: "web", Placement: row.place}
		service.Image = "web:1"
		fx := c.Step(now, apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
			Metadata: spec.Metadata{Name: "shop", Namespace: "default"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{service}}}})
		got := ""
		if fx.Err != nil {
			got = fx.Err.Error()
		}
		if row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: got %q, want %q", row.what, got, row.want)
		}
	}
}
