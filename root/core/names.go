package core

import "net/netip"

// SiteNames is what a site offers under host names.
type SiteNames struct {
	Site, Zone string
	Servers    []netip.Addr
	Hosts      map[string]bool // healthy
}

// SiteNames lists the sites that answer for host names themselves, by name.
func (c *Views) SiteNames() []SiteNames {
	var out []SiteNames
	for _, name := range c.Children.Names() {
		report := c.reports[name]
		if report == nil || report.report.Ingress == nil || c.zones.sites[report.report.Ingress.Zone] != name {
			continue
		}
		s := SiteNames{Site: name, Zone: report.report.Ingress.Zone, Servers: report.report.Ingress.Servers, Hosts: map[string]bool{}}
		for _, d := range report.report.Ingress.Entries {
			a := c.Apps.App(d.Service.App)
			if a == nil || d.Problem != "" || !c.nets.sites[d.Service.App][name] {
				continue // clients of what a site has not been given are not sent there
			}
			spec := a.Manifest.Spec.Service(d.Service.Service)
			if spec == nil {
				continue
			}
			for _, g := range spec.Ingress {
				if g.Entry() == d.Entry && g.Host != "" {
					s.Hosts[g.Host] = s.Hosts[g.Host] || d.Workers > 0 && c.Children.Get(name).Connected
				}
			}
		}
		out = append(out, s)
	}
	return out
}
