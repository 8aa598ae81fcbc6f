package core

import (
	"strings"
	"testing"

	"skerry.dev/skerry/spec"
)

// An organisation below the level privileged has of NFS servers what the site's policy lists, and nothing beside or above that.
func TestAdmissionOfNFS(t *testing.T) {
	for name, c := range map[string]struct {
		policy Admission
		want   string
	}{
		"none is listed":     {Admission{}, "asks for the NFS server's nas:/media/films, which needs the security level privileged"},
		"another one":        {Admission{NFS: []spec.NFSGrant{{Server: "nas", Path: "/media/film"}}}, "nas:/media/films"},
		"it is listed":       {Admission{NFS: []spec.NFSGrant{{Server: "nas", Path: "/media"}}}, ""},
		"trusted":            {Admission{Trusted: []string{"home"}}, ""},
		"the level baseline": {Admission{Level: spec.LevelBaseline}, "nas:/media/films"},
	} {
		assigned := &spec.Assignment{Org: "home", Spec: spec.ServiceSpec{Volumes: []spec.Volume{{Name: "v",
			NFS: &spec.NFSVolume{Server: "nas", Path: "/media/films"}}}}}
		got := ""
		if why := c.policy.Check(assigned); why != nil {
			got = why.Text
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: refused by %q, expected %q", name, got, c.want)
		}
	}
	bad := &spec.Assignment{Org: "home", Spec: spec.ServiceSpec{Volumes: []spec.Volume{{Name: "v",
		NFS: &spec.NFSVolume{Server: "nas", Path: "/media/../etc"}}}}}
	policy := Admission{Level: spec.LevelPrivileged}
	if why := policy.Check(bad); why == nil || !strings.Contains(why.Text, "is not the path of an export") {
		t.Errorf("a path that leads elsewhere: %+v, expected a refusal", why)
	}
}
