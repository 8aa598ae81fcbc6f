package spec

import (
	"strings"
	"testing"

	"skerry.dev/skerry"
)

// A parent that was taken over sends what no manifest may hold: names that lead out of a worker's directory.
func TestNamesOfAssignments(t *testing.T) {
	good := func() *Assignment {
		a := &Assignment{ID: "web-r1b2-w1", Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "guest", Name: "shop"}, Service: "web"}}
		a.Spec.Image = "guest/web:1"
		a.Spec.Volumes = []Volume{{Name: "data", Empty: &EmptyVolume{}}}
		a.Spec.Mounts = []Mount{{Volume: "data", Path: "/data"}}
		a.Spec.Sidecars = []SideContainer{{Name: "log"}}
		return a
	}
	if a := good(); a.CheckNames() != nil || a.CheckPlaces() != nil {
		t.Fatal(a.CheckNames(), a.CheckPlaces())
	}
	for name, edit := range map[string]func(a *Assignment){
		"id":                           func(a *Assignment) { a.ID = "../../../etc" },
		"id ":                          func(a *Assignment) { a.ID = ".." },
		"id  ":                         func(a *Assignment) { a.ID = skerry.InstanceID(strings.Repeat("a", 300)) },
		"service.app.namespace":        func(a *Assignment) { a.Service.App.Namespace = "../.." },
		"service.app.name":             func(a *Assignment) { a.Service.App.Name = "." },
		"service.service":              func(a *Assignment) { a.Service.Service = "a/b" },
		"ordinal":                      func(a *Assignment) { a.Ordinal = -1 },
		"spec.volumes[0].name":         func(a *Assignment) { a.Spec.Volumes[0].Name = "../../../../etc" },
		"spec.sidecars[0].name":        func(a *Assignment) { a.Spec.Sidecars[0].Name = "../x" },
		"spec.mounts[0].path":          func(a *Assignment) { a.Spec.Mounts[0].Path = "/../../etc" },
		"spec.workingDir":              func(a *Assignment) { a.Spec.WorkingDir = "etc" },
		"spec.config[0].path":          func(a *Assignment) { a.Spec.Config = []ConfigFile{{Path: "../etc/passwd"}} },
		"spec.config[0].mode":          func(a *Assignment) { a.Spec.Config = []ConfigFile{{Path: "/x", Mode: "4755"}} },
		"spec.secrets[0].name":         func(a *Assignment) { a.Spec.Secrets = []SecretUse{{Name: "../db"}} },
		"spec.ports[0].port":           func(a *Assignment) { a.Spec.Ports = []Port{{Port: 70000}} },
		"spec.resources.cpu":           func(a *Assignment) { a.Spec.Resources.CPU = -1000 },
		"spec.volumes[0].empty.size":   func(a *Assignment) { a.Spec.Volumes[0].Empty.Size = -1 },
		"spec.sidecars[0].workingDir":  func(a *Assignment) { a.Spec.Sidecars[0].WorkingDir = "/a/../.." },
		"spec.sidecars[0].mounts[0].p": func(a *Assignment) { a.Spec.Sidecars[0].Mounts = []Mount{{Volume: "data", Path: ".."}} },
	} {
		a := good()
		edit(a)
		err := a.CheckNames()
		if err == nil {
			err = a.CheckPlaces()
		}
		if err == nil || !strings.HasPrefix(err.Error(), strings.TrimSpace(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
