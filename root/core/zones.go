package core

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// zones says which site has which zone of host names. A site names its zone itself, and whoever has a zone answers for every
// name in it; so the first one keeps it, and a zone that takes in what somebody else has is refused.
type zones struct {
	apps    *apps.Controller
	nets    *networks
	sites   map[string]string // by zone
	refused map[string]string // by site: what was told about it last
}

const keyZones = "root/zones"

func newZones(a *apps.Controller, n *networks) *zones {
	return &zones{apps: a, nets: n, sites: map[string]string{}, refused: map[string]string{}}
}

func (z *zones) load(value []byte) error {
	if err := json.Unmarshal(value, &z.sites); err != nil {
		return err
	}
	if z.sites == nil {
		z.sites = map[string]string{}
	}
	return nil
}

// claim takes note of the zone that a site says it answers for.
func (z *zones) claim(now time.Time, site, zone string, fx *wire.Effects) {
	if z.sites[zone] == site {
		delete(z.refused, site)
		return
	}
	if why := z.taken(site, zone); why != "" {
		if z.refused[site] != why {
			z.refused[site] = why
			fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "ZoneRefused", Cluster: skerry.ClusterName(site),
				Text: "the zone of cluster " + site + " is not used: " + why})
		}
		return
	}
	delete(z.refused, site)
	maps.DeleteFunc(z.sites, func(_, s string) bool { return s == site })
	z.sites[zone] = site
	fx.Put(keyZones, mustJSON(z.sites))
}

// taken gives the reason for which a site does not get a zone, or "".
func (z *zones) taken(site, zone string) string {
	if err := spec.CheckHost(zone); err != nil {
		return err.Error()
	}
	for _, other := range slices.Sorted(maps.Keys(z.sites)) {
		if s := z.sites[other]; s != site && (spec.HostWithin(zone, other) || spec.HostWithin(other, zone)) {
			return fmt.Sprintf("zone %s and zone %s of cluster %s have names in common", zone, other, s)
		}
	}
	for _, a := range z.apps.Apps() {
		if z.nets.sites[a.Key()][site] {
			continue // it may answer for that anyway
		}
		for i := range a.Manifest.Spec.Services {
			for _, g := range a.Manifest.Spec.Services[i].Ingress {
				if g.Host != "" && spec.HostWithin(g.Host, zone) {
					return fmt.Sprintf("host %s of application %s is in zone %s", g.Host, a.Key(), zone)
				}
			}
		}
	}
	return ""
}

// drop has the zone of a site that is removed be free again.
func (z *zones) drop(site string, fx *wire.Effects) {
	n := len(z.sites)
	maps.DeleteFunc(z.sites, func(_, s string) bool { return s == site })
	delete(z.refused, site)
	if len(z.sites) != n {
		fx.Put(keyZones, mustJSON(z.sites))
	}
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	return b
}
