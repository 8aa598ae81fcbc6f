package core

import (
	"skerry.dev/skerry"
	"skerry.dev/skerry/view"
)

// showIngress adds the ways in to the view of an application: by which clusters each is offered.
func (c *Views) showIngress(v *view.AppView) {
	a := c.Apps.App(v.Key)
	if a == nil {
		return
	}
	for i := range v.Services {
		s := a.Manifest.Spec.Service(v.Services[i].Name)
		if s == nil {
			continue
		}
		for _, g := range s.Ingress {
			w := view.IngressView{Host: g.Host, Path: g.Path, Listen: g.Listen, Protocol: g.Protocol, TLS: g.TLS, Policy: g.Policy}
			k := skerry.ServiceKey{App: v.Key, Service: s.Name}
			for _, name := range c.Children.Names() {
				r := c.reports[name]
				if r == nil || r.report.Ingress == nil || !c.networks[v.Key][name] {
					continue
				}
				for _, d := range r.report.Ingress.Entries {
					switch {
					case d.Service != k || d.Entry != g.Entry():
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
			v.Services[i].Ingress = append(v.Services[i].Ingress, w)
		}
	}
}
