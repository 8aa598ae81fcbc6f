package cluster

import (
	"fmt"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/autonomy"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// ofRoot reports whether an application belongs to the root, and something of it is here.
func (c *Core) ofRoot(k skerry.AppKey) bool {
	if c.ownApp(k) != nil {
		return false
	}
	if c.overrides.Has(k) {
		return true
	}
	for _, p := range c.byApp[k] {
		if p.Origin == "root" {
			return true
		}
	}
	return false
}

// amend changes an application that belongs to the root, which is away.
func (c *Core) amend(now time.Time, k skerry.AppKey, msg any, fx *wire.Effects) {
	if c.Up.Connected {
		fx.Err = skerry.Errorf(skerry.CodeWrongTier, "application %s belongs to the root; this site only runs it", k).
			WithHint("make the change at the root (`skerry context use`); here it can be changed while the root is away")
		return
	}
	if s := c.overrides.Change(now, k, msg, fx); s != nil {
		c.amendEvent(now, k, wire.EventWarning, "Amended", "changed at site "+c.opt.Name+" while the root is away, by "+orNobody(s.Author)+": "+s.Text, fx)
	}
}

func orNobody(actor string) string {
	if actor == "" {
		return "the system"
	}
	return actor
}

// amendEvent tells of an amendment here, and in its turn at the root.
func (c *Core) amendEvent(now time.Time, k skerry.AppKey, t wire.EventType, reason, text string, fx *wire.Effects) {
	e := wire.Event{At: now, Type: t, Reason: reason, Text: text, App: k, Org: c.overrides.Org(k), Cluster: skerry.ClusterName(c.opt.Name)}
	fx.Events = append(fx.Events, e)
	if reason == "Amended" {
		_, _ = c.Up.Events.Append(c.codec.Marshal(e)) // one that is too large to travel stays here
	}
}

// tellAmendments tells the root, which is back, what was changed here. Until it answers nothing more is.
func (c *Core) tellAmendments(now time.Time, fx *wire.Effects) {
	c.Apps.Freeze(true)
	for _, k := range c.overrides.Apps() {
		if told := c.overrides.Tell(k, c.number(fx), fx); told != nil {
			if _, err := c.Up.Observed.Put(wire.AmendmentKey(k), c.codec.Marshal(told)); err == nil {
				continue
			}
			c.amendEvent(now, k, wire.EventWarning, "Conflict", "what was changed here is too large to be told to the root, and is dropped", fx)
		}
		c.giveBack(now, k, fx) // what runs is what the root wants
	}
}

// amendedItem takes the root's answer to an amendment.
func (c *Core) amendedItem(now time.Time, key string, value []byte, fx *wire.Effects) {
	k, _ := wire.ParseAmendedKey(key)
	var answer wire.Amended
	if c.codec.Unmarshal(value, &answer) != nil || answer.App != k || !c.overrides.Awaits(&answer) {
		return
	}
	if answer.Adopted != 0 {
		c.amendEvent(now, k, wire.EventNormal, "Adopted", fmt.Sprintf("the root adopted what was changed here, as generation %d", answer.Adopted), fx)
	} else {
		c.amendEvent(now, k, wire.EventWarning, "Conflict", "the root did not adopt what was changed here: "+answer.Why, fx)
	}
	c.giveBack(now, k, fx)
}

// giveBack makes a borrowed application the root's again, and has here what the root wants here.
func (c *Core) giveBack(now time.Time, k skerry.AppKey, fx *wire.Effects) {
	c.overrides.Close(k, fx)
	c.Up.Observed.Delete(wire.AmendmentKey(k))
	wanted := map[skerry.InstanceID]spec.Assignment{}
	for key, value := range c.Up.Desired.All() {
		var a spec.Assignment
		if strings.HasPrefix(key, "inst/") && c.codec.Unmarshal(value, &a) == nil && wire.AssignmentKey(a.ID) == key && a.Service.App == k {
			wanted[a.ID] = a
		}
	}
	for _, id := range sortedIDs(c.byApp[k]) {
		p := c.places[id]
		if p == nil || p.Group != "" {
			continue
		}
		a, ok := wanted[id]
		if !ok {
			p.Origin = "root"
			c.remove(now, p, fx)
			continue
		}
		p.Origin, p.A.Gen = "root", 0 // taken up below, whatever its number
		p.Extra = 0
		if p.A.Restart > a.Restart {
			p.Extra = p.A.Restart - a.Restart
		}
	}
	for _, id := range sortedIDs(wanted) {
		c.intake.accept(now, wanted[id], "root", fx)
	}
	c.redirected(k)
}

// loans is what overrides see of a site.
type loans struct{ h *herald }

// Held implements autonomy.Site.
func (l loans) Held(k skerry.AppKey) (out []autonomy.Held) {
	for _, id := range sortedIDs(l.h.byApp[k]) {
		p := l.h.places[id]
		if p.Origin == "root" && p.Group == "" && p.A.Spec.Mode == spec.ModeService && !p.Removing && !p.Refused && !p.ended() {
			out = append(out, autonomy.Held{A: &p.A, Shown: l.h.show(p)})
		}
	}
	return out
}

// Token implements autonomy.Site.
func (l loans) Token(id skerry.InstanceID) (f skerry.Fence, here bool) {
	if p := l.h.places[id]; p != nil {
		return p.A.Fence, true
	}
	return f, false
}
