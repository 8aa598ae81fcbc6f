package core

import (
	"skerry.dev/skerry"
	"skerry.dev/skerry/view"
)

// showIngress adds the ways in to the view of an application: by which clusters each is offered.
func (c *Views) showIngress(shown *view.AppView) {
	app := c.Apps.App(shown.Key)
	if app == nil {
		return
	}
	for i := range shown.Services {
		service := app.Manifest.Spec.Service(shown.Services[i].Name)
		if service == nil {
			continue
		}
		for _, way := range service.Ingress {
			w := view.IngressView{Host: way.Host, Path: way.Path, Listen: way.Listen, Protocol: way.Protocol, TLS: way.TLS, Policy: way.Policy}
			key := skerry.ServiceKey{App: shown.Key, Service: service.Name}
			for _, name := range c.Children.Names() {
				r := c.reports[name]
				if r == nil || r.report.Ingress == nil || !c.nets.sites[shown.Key][name] {
					continue
				}
				for _, d := range r.report.Ingress.Entries {
					switch {
					case d.Service != key || d.Entry != way.Entry():
					case d.Problem != "":
						w.Problems = append(w.Problems, "cluster "+name+": "+d.Problem)
					case d.Workers > 0 && c.Children.Get(name).Connected:
						w.At = append(w.At, name)
					default:
						w.Problems = append(w.Problems, "cluster "+name+": no worker offers it now")
					}
				}
			}
			if len(w.At)+len(w.Problems) == 0 {
				w.Problems = []string{"no cluster offers it yet"}
			}
			shown.Services[i].Ingress = append(shown.Services[i].Ingress, w)
		}
	}
}
