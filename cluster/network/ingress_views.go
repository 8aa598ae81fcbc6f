package network

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// maxEntries bounds what a site tells the root of.
const maxEntries = 2000

// problem says why a worker does not lead clients to an entry, or nothing.
func (g *Ingress) problem(at *IngressWorker, d *AppIngress) (text string) {
	st := g.states[at.Worker]
	switch {
	case !at.Connected:
		return "worker " + at.Worker + " is not connected"
	case at.Unaware && d.Alias != "":
		return "worker " + at.Worker + " knows no aliases; upgrade its agent"
	case st == nil || !slices.Contains(st.Serving, d.App):
		return "worker " + at.Worker + " does not serve it yet"
	}
	for _, p := range st.Problems {
		if p.Service == (skerry.ServiceKey{App: d.App, Service: d.Service}) && p.Entry == d.entry {
			text = at.Worker + ": " + p.Text
		}
	}
	return text
}

// Views shows the ways in to the services of an application, by service.
func (g *Ingress) Views(app skerry.AppKey) map[string][]view.IngressView {
	out := map[string][]view.IngressView{}
	if len(g.asked[app]) == 0 {
		return out
	}
	workers := g.site.Open()
	for i := range g.asked[app] {
		d := &g.asked[app][i]
		v := view.IngressView{Host: d.Host, Path: d.Path, Listen: d.Listen, Protocol: d.Protocol, TLS: d.TLS, Policy: d.Policy}
		if why, no := g.refused[app][d.entry]; no {
			v.Problems = []string{why}
		} else {
			for i := range workers {
				if problem := g.problem(&workers[i], d); problem != "" {
					v.Problems = append(v.Problems, problem)
				} else {
					v.At = append(v.At, workers[i].Worker)
				}
			}
		}
		if len(v.At)+len(v.Problems) == 0 {
			v.Problems = []string{"no worker has an ingress"}
		}
		out[d.Service] = append(out[d.Service], v)
	}
	return out
}

// Entries sums up the entries of the applications that are not the site's own, for the root. Workers are looked at once.
func (g *Ingress) Entries(own func(app skerry.AppKey) bool) (out []wire.IngressDoor) {
	if len(g.asked) == 0 {
		return nil
	}
	serving, waiting := map[skerry.AppKey]int{}, map[skerry.ServiceKey]bool{}
	without, unaware := map[wire.IngressDoor]int{}, map[skerry.AppKey]int{}
	for _, at := range g.site.Open() {
		st := g.states[at.Worker]
		if st == nil || !at.Connected {
			continue
		}
		for _, app := range st.Serving {
			serving[app]++
			if at.Unaware {
				unaware[app]++
			}
		}
		for _, k := range st.Waiting {
			waiting[k] = true
		}
		for _, p := range st.Problems {
			without[wire.IngressDoor{Service: p.Service, Entry: p.Entry}]++
		}
	}
	for app, list := range g.asked {
		if own(app) {
			continue
		}
		for i := range list {
			a := &list[i]
			d := wire.IngressDoor{Service: skerry.ServiceKey{App: app, Service: a.Service}, Entry: a.entry}
			n := serving[app] - without[d]
			if a.Alias != "" {
				n -= unaware[app]
			}
			if d.Problem = g.refused[app][a.entry]; d.Problem == "" && n > 0 && slices.ContainsFunc(g.site.Ends(a), g.site.Ready) {
				d.Workers, d.Waiting = n, waiting[d.Service]
			}
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b wire.IngressDoor) int {
		return cmp.Or(strings.Compare(a.Service.String(), b.Service.String()), strings.Compare(a.Entry, b.Entry))
	})
	return out[:min(len(out), maxEntries)]
}

// Entry is a worker that a host name may lead clients to.
type Entry struct {
	Worker  string
	Addrs   []netip.Addr
	Near    []netip.Prefix // networks that the worker is in
	Healthy bool
}

// HostEntries is a host name with the workers that offer something under it.
type HostEntries struct {
	Host    string
	Entries []Entry
}

// Hosts lists the host names that the site offers something under, by name.
func (g *Ingress) Hosts() (out []HostEntries) {
	if len(g.asked) == 0 {
		return nil
	}
	by := map[string]map[string]*Entry{}
	workers := g.site.Open()
	for app, list := range g.asked {
		for i := range list {
			entry := &list[i]
			if _, no := g.refused[app][entry.entry]; no || entry.Host == "" {
				continue
			}
			ready := slices.ContainsFunc(g.site.Ends(entry), g.site.Ready)
			for i := range workers {
				at := &workers[i]
				addrs := slices.DeleteFunc(slices.Clone(at.Addrs), netip.Addr.IsUnspecified)
				if len(addrs) == 0 {
					continue
				}
				if by[entry.Host] == nil {
					by[entry.Host] = map[string]*Entry{}
				}
				e := by[entry.Host][at.Worker]
				if e == nil {
					e = &Entry{Worker: at.Worker, Addrs: addrs, Near: at.Networks}
					by[entry.Host][at.Worker] = e
				}
				e.Healthy = e.Healthy || ready && g.problem(at, entry) == ""
			}
		}
	}
	for _, host := range slices.Sorted(maps.Keys(by)) {
		h := HostEntries{Host: host}
		for _, w := range slices.Sorted(maps.Keys(by[host])) {
			h.Entries = append(h.Entries, *by[host][w])
		}
		out = append(out, h)
	}
	return out
}
