package spec

import (
	"fmt"
	"strings"
	"testing"

	"skerry.dev/skerry"
)

// twoVersions is an application of which two services share a name.
func twoVersions() *Application {
	service := func(name string, port Port) ServiceSpec {
		return ServiceSpec{Name: name, Container: Container{Image: "web:1"}, Aliases: []string{"web"}, Ports: []Port{port}}
	}
	return &Application{APIVersion: APIVersion, Kind: KindApplication, Metadata: Metadata{Name: "shop"}, Spec: ApplicationSpec{
		Services: []ServiceSpec{service("web-1", Port{Port: 80}), service("web-2", Port{Port: 8080, ServicePort: 80}),
			{Name: "asks", Container: Container{Image: "asks:1"}}}}}
}

func TestAliases(t *testing.T) {
	none := 0
	for name, c := range map[string]struct {
		edit func(*Application)
		want string // "" for what is right
	}{
		"shared":    {func(*Application) {}, ""},
		"alone":     {func(a *Application) { a.Spec.Services[1].Aliases = []string{"other"} }, ""},
		"no name":   {func(a *Application) { a.Spec.Services[0].Aliases = []string{"Web"} }, "spec.services[0].aliases[0]"},
		"a policy":  {func(a *Application) { a.Spec.Services[0].Aliases = []string{"closest"} }, "is the name of a policy"},
		"a service": {func(a *Application) { a.Spec.Services[0].Aliases = []string{"asks"} }, `there is a service "asks"`},
		"twice":     {func(a *Application) { a.Spec.Services[0].Aliases = []string{"web", "web"} }, `alias "web" twice`},
		"too many":  {func(a *Application) { a.Spec.Services[0].Aliases = names(MaxAliases + 1) }, "spec.services[0].aliases"},
		"it may sleep": {func(a *Application) {
			a.Spec.Services[0].Scale, a.Spec.Services[0].Ingress = &ScaleSpec{Min: &none, Max: 2}, []Ingress{{Port: "80"}}
			a.Spec.Services[0].Resources.CPU = 100
		}, "may have no instance"},
		"clients": {func(a *Application) { a.Spec.Services[0].Ingress = []Ingress{{Port: "80", Alias: "web"}} }, ""},
		"clients at a service port": {func(a *Application) {
			a.Spec.Services[1].Ingress = []Ingress{{Port: "8080", Alias: "web"}}
		}, ""},
		"clients of another's": {func(a *Application) {
			a.Spec.Services[2].Ports, a.Spec.Services[2].Ingress = []Port{{Port: 80}}, []Ingress{{Port: "80", Alias: "web"}}
		}, `the service has no alias "web"`},
		"clients at a port that one lacks": {func(a *Application) {
			a.Spec.Services[0].Ingress, a.Spec.Services[1].Ports[0].ServicePort = []Ingress{{Port: "80", Alias: "web"}}, 0
		}, `the services with alias "web" are not all reached at the same port`},
	} {
		a := twoVersions()
		c.edit(a)
		if text := problemsOf(a.Validate()); c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, expected %q", name, text, c.want)
		}
	}
	a := twoVersions()
	got := a.Spec.Aliases()
	if len(got) != 1 || got[0].Name != "web" ||
		fmt.Sprint(got[0].Leads(skerry.AppKey{Namespace: "x", Name: "shop"})) != "[x/shop/web-1 x/shop/web-2]" {
		t.Errorf("the aliases are %+v", got)
	}
	if ports := got[0].Reached(); len(ports) != 2 {
		t.Errorf("it is reached at %+v", ports)
	}
}

func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("name-", i))
	}
	return out
}

// Whoever may ask for an alias runs where aliases are known. No instance is replaced for one.
func TestNeedAliases(t *testing.T) {
	a := twoVersions()
	before := a.Spec.Services[2].Revision()
	a.Spec.NeedAliases()
	for i := range a.Spec.Services {
		if got := LackedFeature(&a.Spec.Services[i], []string{FeatureUlimits}); got != FeatureAliases {
			t.Errorf("%s lacks %q", a.Spec.Services[i].Name, got)
		}
	}
	if a.Spec.Services[2].Revision() != before {
		t.Error("an alias of others makes a service another")
	}
	with := a.Spec.Services[0].Revision()
	a.Spec.Services[0].Aliases, a.Spec.Services[1].Aliases = nil, nil
	a.Spec.NeedAliases()
	if a.Spec.Services[0].Revision() != with || LackedFeature(&a.Spec.Services[0], nil) != "" ||
		LackedFeature(&a.Spec.Services[2], nil) != "" {
		t.Error("without aliases something is needed still, or runs another version")
	}
}
