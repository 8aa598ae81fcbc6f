package core

import (
	"encoding/json"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// keyGrants is that of the record of what the root's users may do here. It is gone while they may do nothing: programs that know no grants
// then open the store.
const keyGrants = "grants"

// SetGrant gives something to the users of the root, or takes it back.
type SetGrant struct {
	Grant wire.Grant
	Given bool
	By    string
}

// grants owns what the site lets the users of its root do inside it. Without a record they may do nothing.
type grants struct {
	list []wire.Granted // in the order in which they were given
}

func (g *grants) load(value []byte) error { return json.Unmarshal(value, &g.list) }

// set gives or takes back a grant, and reports whether that changes anything.
func (g *grants) set(now time.Time, m SetGrant, fx *wire.Effects) (changed bool) {
	if !slices.Contains(wire.Grants(), m.Grant) {
		var known []string
		for _, k := range wire.Grants() {
			known = append(known, string(k))
		}
		fx.Err = skerry.Errorf(skerry.CodeInvalid, "there is no grant %.64q", m.Grant).WithHint("%s", spec.Suggest(string(m.Grant), known))
		return false
	}
	if g.has(m.Grant) == m.Given {
		return false
	}
	if m.Given {
		g.list = append(g.list, wire.Granted{Grant: m.Grant, By: m.By, At: now})
	} else {
		g.list = slices.DeleteFunc(g.list, func(have wire.Granted) bool { return have.Grant == m.Grant })
	}
	if len(g.list) == 0 {
		fx.Delete(keyGrants)
		return true
	}
	data, err := json.Marshal(g.list)
	if err != nil {
		panic("grants always marshal: " + err.Error())
	}
	fx.Put(keyGrants, data)
	return true
}

func (g *grants) has(grant wire.Grant) bool {
	return slices.ContainsFunc(g.list, func(have wire.Granted) bool { return have.Grant == grant })
}

// names gives the grants alone.
func (g *grants) names() (out []wire.Grant) {
	for _, k := range g.list {
		out = append(out, k.Grant)
	}
	return wire.KnownGrants(out)
}
