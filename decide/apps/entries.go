package apps

import (
	"fmt"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// checkEntries refuses ways in from outside that another application has already: at one site the first that asked would keep the entry,
// and the other would never be reached. What an application asked for before is left to the sites.
func (c *catalog) checkEntries(app *spec.Application, org string, old *App) error {
	had := map[string]bool{}
	if old != nil {
		for i := range old.Manifest.Spec.Services {
			for _, g := range old.Manifest.Spec.Services[i].Ingress {
				had[g.Entry()] = true
			}
		}
	}
	type at struct {
		service *spec.ServiceSpec
		path    string
		g       spec.Ingress
	}
	asked := map[string]at{}
	for i := range app.Spec.Services {
		for j, g := range app.Spec.Services[i].Ingress {
			if !had[g.Entry()] {
				asked[g.Entry()] = at{&app.Spec.Services[i], fmt.Sprintf("spec.services[%d].ingress[%d]", i, j), g}
			}
		}
	}
	if len(asked) == 0 {
		return nil
	}
	for _, a := range c.Apps() {
		if a.Key() == app.Key() || a.Deleting {
			continue
		}
		for i := range a.Manifest.Spec.Services {
			s := &a.Manifest.Spec.Services[i]
			for _, g := range s.Ingress {
				mine, both := asked[g.Entry()]
				if !both || apart(&s.Placement, &mine.service.Placement) {
					continue
				}
				other := "an application of another organisation"
				if a.Org == org {
					other = "application " + a.Key().String()
				}
				host := mine.g.Host
				if host == "" {
					host = "any host"
				}
				return &skerry.Error{Code: skerry.CodeConflict, Message: "another application has this ingress already", Problems: []skerry.Problem{{Path: mine.path,
					Message: fmt.Sprintf("%s, port %d, path %s leads to %s", host, mine.g.Listen, orSlash(mine.g.Path), other),
					Hint:    "choose another host, path or port, or name different clusters in placement.cluster"}}}
			}
		}
	}
	return nil
}

// apart reports whether two services are certainly at different sites.
func apart(a, b *spec.Placement) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	return differ(a.Cluster, b.Cluster) || differ(a.Area, b.Area)
}

func orSlash(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

// checkShortNames refuses short names that another application of the organisation has given to a service of its own, in the same
// applications: those would reach one of both, and nobody would say which. What an application asked for before is left as it is.
func (c *catalog) checkShortNames(app *spec.Application, org string, old *App) error {
	had := map[spec.Export]bool{}
	if old != nil {
		for i := range old.Manifest.Spec.Services {
			for _, export := range old.Manifest.Spec.Services[i].Export {
				had[export] = true
			}
		}
	}
	for i := range app.Spec.Services {
		for j, export := range app.Spec.Services[i].Export {
			if export.As == "" || had[export] {
				continue
			}
			self := skerry.ServiceKey{App: app.Key(), Service: app.Spec.Services[i].Name}
			if other, taken := c.shortName(app, self, export, org); taken {
				return &skerry.Error{Code: skerry.CodeConflict, Message: "another service has this short name already", Problems: []skerry.Problem{{
					Path:    fmt.Sprintf("spec.services[%d].export[%d].as", i, j),
					Message: fmt.Sprintf("%s means %s in %s", export.As, other, export.To),
					Hint:    "choose another, or leave it out; the service is reached by its full name as well"}}}
			}
		}
	}
	return nil
}

// shortName finds another service of an organisation that has the short name of an export in an application to which that goes; app
// stands in the place of what is kept of it.
func (c *catalog) shortName(app *spec.Application, self skerry.ServiceKey, export spec.Export, org string) (skerry.ServiceKey, bool) {
	in := func(key skerry.AppKey, services []spec.ServiceSpec) (skerry.ServiceKey, bool) {
		for i := range services {
			at := skerry.ServiceKey{App: key, Service: services[i].Name}
			if at != self && slices.ContainsFunc(services[i].Export, func(e spec.Export) bool { return e.As == export.As && e.Meets(export) }) {
				return at, true
			}
		}
		return skerry.ServiceKey{}, false
	}
	if other, taken := in(app.Key(), app.Spec.Services); taken {
		return other, true
	}
	for _, a := range c.Apps() {
		if a.Key() == app.Key() || a.Deleting || a.Org != org {
			continue
		}
		if other, taken := in(a.Key(), a.Manifest.Spec.Services); taken {
			return other, true
		}
	}
	return skerry.ServiceKey{}, false
}
