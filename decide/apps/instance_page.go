package apps

import (
	"iter"
	"slices"

	"skerry.dev/skerry"
)

// InstancePage asks for a part of the instances of a tier, in the order of their IDs.
type InstancePage struct {
	After                   skerry.InstanceID // exclusive; empty: from the first
	Limit                   int               // at least 1
	Namespace, App, Service string            // only of these; empty: of all
}

func (p *InstancePage) wants(service skerry.ServiceKey) bool {
	return (p.Namespace == "" || p.Namespace == service.App.Namespace) && (p.App == "" || p.App == service.App.Name) &&
		(p.Service == "" || p.Service == service.Service)
}

// Pick gives the IDs of the page out of instances in any order, and whether there are more after it. It looks at each ID once and keeps two
// pages of them at most.
func (p *InstancePage) Pick(all iter.Seq2[skerry.InstanceID, skerry.ServiceKey]) (page []skerry.InstanceID, more bool) {
	most := p.Limit + 1
	last := skerry.InstanceID("") // of a full page; what comes after it is not on the page
	for id, service := range all {
		if id <= p.After || last != "" && id >= last || !p.wants(service) {
			continue
		}
		if page = append(page, id); len(page) == 2*most {
			slices.Sort(page)
			page = page[:most]
			last = page[most-1]
		}
	}
	slices.Sort(page)
	if more = len(page) > p.Limit; more {
		page = page[:p.Limit]
	}
	return page, more
}

// Every goes over all instances, in no order.
func (l *ledger) Every(yield func(*Instance) bool) {
	for _, instance := range l.inst {
		if !yield(instance) {
			return
		}
	}
}

// Page gives a part of the instances. It looks at those of the page or, where a service or a namespace alone is asked for, at those between
// them.
func (l *ledger) Page(page *InstancePage) (out []*Instance, more bool) {
	if page.Namespace != "" && page.App != "" {
		return l.pageOfApp(page)
	}
	for _, i := range l.order.After(string(page.After)) {
		switch {
		case !page.wants(i.Service):
		case len(out) == page.Limit:
			return out, true
		default:
			out = append(out, i)
		}
	}
	return out, false
}

// pageOfApp is Page for one application, which has few of all instances.
func (l *ledger) pageOfApp(page *InstancePage) (out []*Instance, more bool) {
	app := skerry.AppKey{Namespace: page.Namespace, Name: page.App}
	picked, more := page.Pick(func(yield func(skerry.InstanceID, skerry.ServiceKey) bool) {
		for name := range l.ofApp[app] {
			service := skerry.ServiceKey{App: app, Service: name}
			for id := range l.byService[service] {
				if !yield(id, service) {
					return
				}
			}
		}
	})
	for _, id := range picked {
		out = append(out, l.inst[id])
	}
	return out, more
}
