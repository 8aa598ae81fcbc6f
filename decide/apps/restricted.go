package apps

import (
	"fmt"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// Restricted lists what applications have that takes no effect or would not be taken today: exports to another organisation that the
// other application does not import, their short names, and organisations that ask for more than their quotas.
func (c *Controller) Restricted() (out []view.Unadmitted) {
	return append(c.inVain(), c.beyondQuotas()...)
}

// inVain lists exports to another organisation that the other application does not import, and their short names.
func (ns *networks) inVain() (out []view.Unadmitted) {
	for _, o := range ns.exporting(skerry.AppKey{}) {
		if o.Delegated {
			continue // whoever owns it lists it
		}
		for i := range o.Manifest.Spec.Services {
			out = append(out, ns.unimported(o, &o.Manifest.Spec.Services[i])...)
		}
	}
	return out
}

// beyondQuotas lists the organisations that ask for more than their quotas.
func (ts *tenants) beyondQuotas() (out []view.Unadmitted) {
	for _, o := range ts.Orgs() {
		if what := o.Quota.exceeded(ts.Usage(o.Name, skerry.AppKey{})); what != "" {
			out = append(out, view.Unadmitted{Org: o.Name, Reason: wire.Reason{What: "quota",
				Text: fmt.Sprintf("organisation %s is above its quota: %s, which counts limits, and defaults where nothing is said; what runs goes on, and nothing that asks for more is accepted", o.Name, what),
				Hint: fmt.Sprintf("raise it with `skerry org quota %s`, or ask for less", o.Name)}})
		}
	}
	return out
}

// exceeded names the bounds that are exceeded, or gives "".
func (q Quota) exceeded(u Usage) (out string) {
	over := func(more bool, what string, used, limit any) {
		if !more {
			return
		}
		if out != "" {
			out += ", "
		}
		out += fmt.Sprintf("%v %s of %v", used, what, limit)
	}
	over(q.CPU > 0 && u.Need.CPU > q.CPU, "cores", u.Need.CPU, q.CPU)
	over(q.Memory > 0 && u.Need.Memory > q.Memory, "of memory", u.Need.Memory, q.Memory)
	over(q.Storage > 0 && u.Need.Storage > q.Storage, "of storage", u.Need.Storage, q.Storage)
	over(q.Instances > 0 && u.Instances > q.Instances, "instances", u.Instances, q.Instances)
	over(q.ServiceAddresses > 0 && u.ServiceAddresses > q.ServiceAddresses, "service addresses", u.ServiceAddresses, q.ServiceAddresses)
	return out
}

// unimported lists the applications of other organisations that a service is exported to in vain.
func (ns *networks) unimported(o *App, s *spec.ServiceSpec) (out []view.Unadmitted) {
	for _, a := range ns.catalog.Apps() {
		if a.Org == o.Org || a.Deleting {
			continue
		}
		i := slices.IndexFunc(s.Export, func(e spec.Export) bool { return e.Org == a.Org && e.Covers(a.Key()) })
		if i < 0 {
			continue
		}
		why := wire.Reason{What: "export",
			Text: fmt.Sprintf("export[%d] takes no effect for application %s of organisation %s, whose manifest does not import it", i, a.Key(), a.Org),
			Hint: fmt.Sprintf("if that application uses the service, add \"imports: [{from: %s, org: %s}]\" to spec in its manifest (%s), and apply it", o.Key(), o.Org, a.Key())}
		if a.Manifest.Spec.Wants(o.Key(), o.Org) {
			if s.Export[i].As == "" {
				continue
			}
			why.Text = fmt.Sprintf("the short name %q of export[%d] takes no effect for application %s of organisation %s, which reaches the service by its full name", s.Export[i].As, i, a.Key(), a.Org)
			why.Hint = fmt.Sprintf("use the full name in %s, then remove as from export[%d]", a.Key(), i)
		}
		out = append(out, view.Unadmitted{Service: skerry.ServiceKey{App: o.Key(), Service: s.Name}, Org: o.Org, Reason: why})
	}
	return out
}
