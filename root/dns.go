package root

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/overlay/resolver"
	"skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
)

const (
	// hostTTL is how long clients remember to which site a host name leads.
	hostTTL = 5 * time.Second
	// namesEvery is how often it is looked what there is to answer.
	namesEvery = 500 * time.Millisecond
)

// zonesOf makes the root's zones: host names lead to the sites that offer something under them, and zones of sites are
// delegated to them.
func zonesOf(serial uint32, o *tier.NameOptions, sites []core.SiteNames) resolver.AuthorityConfig {
	c := resolver.AuthorityConfig{Serial: serial}
	hosts := map[string]bool{}
	for _, s := range sites {
		maps.Copy(hosts, s.Hosts)
	}
	for _, zone := range o.Zones {
		d := resolver.Domain{Name: zone, Servers: []resolver.NameServer{{Name: "ns." + zone, Addrs: o.Addrs}}}
		for _, h := range slices.Sorted(maps.Keys(hosts)) {
			if !spec.HostWithin(h, zone) {
				continue
			}
			x := resolver.Host{Name: h}
			for _, s := range sites {
				if healthy, ok := s.Hosts[h]; ok {
					x.Points = append(x.Points, resolver.Point{ID: s.Site, Alias: resolver.SiteName(h, s.Zone), Healthy: healthy})
				}
			}
			d.Hosts = append(d.Hosts, x)
		}
		for _, s := range sites {
			if s.Zone != zone && spec.HostWithin(s.Zone, zone) {
				d.Sites = append(d.Sites, resolver.Delegation{Name: s.Zone, Servers: []resolver.NameServer{{Name: "ns." + s.Zone, Addrs: s.Servers}}})
			}
		}
		c.Domains = append(c.Domains, d)
	}
	return c
}

// answerNames answers questions for host names until ctx ends.
func (s *Server) answerNames(ctx context.Context) error {
	a := resolver.NewAuthority(resolver.AuthorityOptions{TTL: hostTTL, Log: s.opt.Log})
	pc, l, err := s.opt.Names.Open()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = a.ServeUDP(pc) })
	wg.Go(func() { _ = a.ServeTCP(l) })
	defer wg.Wait()
	defer a.Close()
	t := time.NewTicker(namesEvery)
	defer t.Stop()
	serial := uint32(time.Now().Unix())
	var told []core.SiteNames
	for first := true; ; first = false {
		sites, err := tier.View(ctx, s.Role, func(c *core.Core) ([]core.SiteNames, error) { return c.Views().SiteNames(), nil })
		if err == nil && (first || !reflect.DeepEqual(sites, told)) {
			told = sites
			serial++
			a.Set(zonesOf(serial, &s.opt.Names, sites))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}
