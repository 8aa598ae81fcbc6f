package core

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"

	"skerry.dev/skerry/wire"
)

// extents says which site has which prefixes of instances' addresses. Sites choose them themselves, mostly without knowing of
// each other; the first that tells of one keeps it, and nobody is told that it belongs to another one.
type extents struct {
	codec *wire.Codec
	sites map[netip.Prefix]string
	heard map[string]heardSite
}

// heardSite is what a site said of itself last, and what others are told of that.
type heardSite struct {
	said, told []byte
	refused    []netip.Prefix
}

const keyExtents = "root/extents"

// maxExtents bounds the prefixes of one site.
const maxExtents = 256

func newExtents(codec *wire.Codec) *extents {
	return &extents{codec: codec, sites: map[netip.Prefix]string{}, heard: map[string]heardSite{}}
}

func (e *extents) load(value []byte) error {
	if err := json.Unmarshal(value, &e.sites); err != nil {
		return err
	}
	if e.sites == nil {
		e.sites = map[netip.Prefix]string{}
	}
	return nil
}

// introduce gives what others are told of a site, with the prefixes that it may not have left out; nil for what is none.
func (e *extents) introduce(site string, said []byte, fx *wire.Effects) heardSite {
	if h, ok := e.heard[site]; ok && bytes.Equal(h.said, said) {
		return h
	}
	h := heardSite{said: said}
	var info wire.SiteInfo
	if e.codec.Unmarshal(said, &info) == nil && string(info.Name) == site {
		if len(info.Extents) > 2*maxExtents { // each is compared with those of all others
			h.refused = append(h.refused, info.Extents[2*maxExtents])
			info.Extents = info.Extents[:2*maxExtents]
		}
		was := maps.Clone(e.sites)
		maps.DeleteFunc(e.sites, func(p netip.Prefix, holder string) bool { return holder == site && !slices.Contains(info.Extents, p) })
		var kept []netip.Prefix
		for _, p := range info.Extents {
			if !p.IsValid() || p != p.Masked() || len(kept) == maxExtents || e.taken(site, p) {
				h.refused = append(h.refused, p)
				continue
			}
			e.sites[p] = site
			kept = append(kept, p)
		}
		info.Extents = kept
		h.told = e.codec.Marshal(&info)
		if !maps.Equal(was, e.sites) {
			fx.Put(keyExtents, mustJSON(e.sites))
		}
	}
	e.heard[site] = h
	return h
}

// taken reports whether another site has an address of a prefix.
func (e *extents) taken(site string, p netip.Prefix) bool {
	for q, holder := range e.sites {
		if holder != site && q.Overlaps(p) {
			return true
		}
	}
	return false
}

// drop has the prefixes of a site that is removed be free again, and those looked at anew that were refused.
func (e *extents) drop(site string, fx *wire.Effects) {
	n := len(e.sites)
	maps.DeleteFunc(e.sites, func(_ netip.Prefix, holder string) bool { return holder == site })
	clear(e.heard)
	if len(e.sites) != n {
		fx.Put(keyExtents, mustJSON(e.sites))
	}
}
