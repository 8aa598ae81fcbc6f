package core

import (
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/wire"
)

// networks owns which sites have the directory of an application, its network and its service addresses. It says who may know what of an
// application; what sites are given is published by the core.
type networks struct {
	apps     *apps.Controller
	children *members.Children
	sites    map[skerry.AppKey]map[string]bool
	dirty    map[skerry.AppKey]bool // to be looked at again
}

func newNetworks(a *apps.Controller, children *members.Children) *networks {
	return &networks{a, children, map[skerry.AppKey]map[string]bool{}, map[skerry.AppKey]bool{}}
}

// load finds out which sites an earlier life gave the directory of which application.
func (n *networks) load() {
	for _, name := range n.children.Names() {
		for _, key := range n.children.Get(name).Desired.Keys() {
			if rest, ok := strings.CutPrefix(key, "net/"); ok {
				if app, err := skerry.ParseAppKey(rest, ""); err == nil {
					n.gave(app, name)
				}
			}
		}
	}
	for app := range n.sites {
		n.dirty[app] = true
	}
}

func (n *networks) gave(app skerry.AppKey, site string) {
	if n.sites[app] == nil {
		n.sites[app] = map[string]bool{}
	}
	n.sites[app][site] = true
}

// mayWant reports whether a site may know the routes of a service: it holds something of the application, or of one that
// the service is exported to.
func (n *networks) mayWant(site string, k skerry.ServiceKey) bool {
	if n.sites[k.App][site] {
		return true
	}
	a := n.apps.App(k.App)
	if a == nil {
		return false
	}
	if s := a.Manifest.Spec.Service(k.Service); s == nil || len(s.Export) == 0 {
		return false
	}
	for app, at := range n.sites {
		if at[site] && n.apps.Exported(app, k) {
			return true
		}
	}
	return false
}

// asleep gives the services of an application that no site has an instance of, until something comes for them (scale.min: 0); also
// one that was woken and has no place yet.
func (n *networks) asleep(app skerry.AppKey) (out []skerry.ServiceKey) {
	a := n.apps.App(app)
	if a == nil || !a.Deployed || a.Deleting {
		return nil
	}
	for i := range a.Manifest.Spec.Services {
		s := &a.Manifest.Spec.Services[i]
		k := skerry.ServiceKey{App: app, Service: s.Name}
		if s.Sleeps() && !slices.ContainsFunc(n.apps.Instances(k), func(i *apps.Instance) bool { return len(holders(i)) > 0 }) {
			out = append(out, k)
		}
	}
	return out
}

// awaited takes for which services clients wait at a site. Only one that has to do with an application can wake it.
func (n *networks) awaited(now time.Time, site string, r *wire.ClusterReport) {
	var list []skerry.ServiceKey
	if r.Ingress != nil {
		for _, d := range r.Ingress.Entries {
			if d.Waiting && n.sites[d.Service.App][site] {
				list = append(list, d.Service)
			}
		}
	}
	n.apps.Waits(now, site, list)
}

// lookAgain has the sites that are there for what sleeps looked at again.
func (n *networks) lookAgain(site string) {
	for app, at := range n.sites {
		if at[site] {
			n.dirty[app] = true
		}
	}
}

// holds reports whether a site has a part in an application.
func (n *networks) holds(site string, k skerry.AppKey) bool {
	return slices.ContainsFunc(n.apps.InstancesOf(k), func(i *apps.Instance) bool { return slices.Contains(holders(i), site) })
}
