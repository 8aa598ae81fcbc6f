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

// Pick gives the IDs of the page, and whether there are more after it. It looks at each ID once and keeps two pages of them at most:
// instances are large, and a page must not cost a copy of all. An index in order would have each new instance pay for it: with 100,000
// instances a page takes the time of a look at as many IDs and 0.1 MB (BenchmarkInstancePage), where a copy of all took tens of MB.
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

// Page gives a part of the instances.
func (l *ledger) Page(page *InstancePage) (out []*Instance, more bool) {
	picked, more := page.Pick(func(yield func(skerry.InstanceID, skerry.ServiceKey) bool) {
		for id, instance := range l.inst {
			if !yield(id, instance.Service) {
				return
			}
		}
	})
	for _, id := range picked {
		out = append(out, l.inst[id])
	}
	return out, more
}
