package core

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// zones says which site has which zone of host names. A site names its zone itself, and whoever has a zone answers for every
// name in it; so the first one keeps it, and a zone that takes in what somebody else has is refused.
type zones struct {
	sites   map[string]string // by zone
	refused map[string]string // by site: what was told about it last
}

const keyZones = "root/zones"

func newZones() zones { return zones{sites: map[string]string{}, refused: map[string]string{}} }

func (z *zones) load(value []byte) error {
	if err := json.Unmarshal(value, &z.sites); err != nil {
		return err
	}
	if z.sites == nil {
		z.sites = map[string]string{}
	}
	return nil
}

// claimZone takes note of the zone that a site says it answers for.
func (c *Core) claimZone(now time.Time, site, zone string, fx *wire.Effects) {
	z := &c.zones
	if z.sites[zone] == site {
		delete(z.refused, site)
		return
	}
	if why := c.zoneTaken(site, zone); why != "" {
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

// zoneTaken gives the reason for which a site does not get a zone, or "".
func (c *Core) zoneTaken(site, zone string) string {
	if err := spec.CheckHost(zone); err != nil {
		return err.Error()
	}
	for _, other := range slices.Sorted(maps.Keys(c.zones.sites)) {
		if s := c.zones.sites[other]; s != site && (spec.HostWithin(zone, other) || spec.HostWithin(other, zone)) {
			return fmt.Sprintf("zone %s and zone %s of cluster %s have names in common", zone, other, s)
		}
	}
	for _, a := range c.Apps.Apps() {
		if c.nets.sites[a.Key()][site] {
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

// dropZones has the zone of a site that is removed be free again.
func (c *Core) dropZones(site string, fx *wire.Effects) {
	n := len(c.zones.sites)
	maps.DeleteFunc(c.zones.sites, func(_, s string) bool { return s == site })
	delete(c.zones.refused, site)
	if len(c.zones.sites) != n {
		fx.Put(keyZones, mustJSON(c.zones.sites))
	}
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	return b
}
