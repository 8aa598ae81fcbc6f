package network

import (
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Far is which services have instances at other sites that limited links lead to from here, or from there, as the root says.
type Far struct {
	by map[skerry.AppKey][]wire.Far // by service, in order
}

// NewFar makes a site that knows of none.
func NewFar() *Far { return &Far{by: map[skerry.AppKey][]wire.Far{}} }

// Set takes what the root says of a service; nil: nothing any more.
func (f *Far) Set(k skerry.ServiceKey, is *wire.Far) {
	list := f.by[k.App]
	i, found := slices.BinarySearchFunc(list, k.Service, func(x wire.Far, s string) int { return strings.Compare(x.Service.Service, s) })
	switch list = slices.Clone(list); { // requests hold it
	case is == nil && !found:
		return
	case is == nil:
		list = slices.Delete(list, i, i+1)
	case found:
		list[i] = *is
	default:
		list = slices.Insert(list, i, *is)
	}
	if f.by[k.App] = list; len(list) == 0 {
		delete(f.by, k.App)
	}
}

// Of lists the services of an application that are known to be elsewhere.
func (f *Far) Of(app skerry.AppKey) []wire.Far { return f.by[app] }

// LeadsTo reports whether a limited link leads to a service here from one that is elsewhere.
func (f *Far) LeadsTo(k skerry.ServiceKey) bool {
	return slices.ContainsFunc(f.by[k.App], func(x wire.Far) bool {
		return slices.ContainsFunc(x.Links, func(l spec.Link) bool { return l.Limited() && l.Service == k.Service })
	})
}

// Places lists where the other ends of links from a service are elsewhere, without what leads from there to it: a limit that comes to be
// exceeded while both run is a matter of the end that asks for it, or both would move towards each other.
func (f *Far) Places(app skerry.AppKey) (out []wire.Far) {
	for _, x := range f.by[app] {
		x.Links = nil
		out = append(out, x)
	}
	return out
}
