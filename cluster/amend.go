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

// amender changes what is the root's while that is away: by overrides, as operators and loads ask, and by ending what may not run for so long.
//
//	a change ─► amend ─► overrides ─► intake     the root is back ─► tellAmendments ─► its answer ─► giveBack
type amender struct {
	*lifecycle
	intake    *intake
	overlay   *overlay
	overrides *autonomy.Overrides
}

// ofRoot reports whether an application belongs to the root, and something of it is here.
func (am *amender) ofRoot(k skerry.AppKey) bool {
	if am.ownApp(k) != nil {
		return false
	}
	if am.overrides.Has(k) {
		return true
	}
	for _, p := range am.byApp[k] {
		if p.Origin == "root" {
			return true
		}
	}
	return false
}

// amend changes an application that belongs to the root, which is away.
func (am *amender) amend(now time.Time, k skerry.AppKey, msg any, fx *wire.Effects) {
	if am.Up.Connected {
		fx.Err = skerry.Errorf(skerry.CodeWrongTier, "application %s belongs to the root; this site only runs it", k).
			WithHint("make the change at the root (`skerry context use`); here it can be changed while the root is away")
		return
	}
	if s := am.overrides.Change(now, k, msg, fx); s != nil {
		am.amendEvent(now, k, wire.EventWarning, "Amended", "changed at site "+am.name+" while the root is away, by "+orNobody(s.Author)+": "+s.Text, fx)
	}
}

func orNobody(actor string) string {
	if actor == "" {
		return "the system"
	}
	return actor
}

// amendEvent tells of an amendment here, and in its turn at the root.
func (am *amender) amendEvent(now time.Time, k skerry.AppKey, t wire.EventType, reason, text string, fx *wire.Effects) {
	e := wire.Event{At: now, Type: t, Reason: reason, Text: text, App: k, Org: am.overrides.Org(k), Cluster: skerry.ClusterName(am.name)}
	fx.Events = append(fx.Events, e)
	if reason == "Amended" {
		_, _ = am.Up.Events.Append(am.codec.Marshal(e)) // one that is too large to travel stays here
	}
}

// tellAmendments tells the root, which is back, what was changed here. Until it answers nothing more is.
func (am *amender) tellAmendments(now time.Time, fx *wire.Effects) {
	am.Apps.Freeze(true)
	for _, k := range am.overrides.Apps() {
		if told := am.overrides.Tell(k, am.number(fx), fx); told != nil {
			if _, err := am.Up.Observed.Put(wire.AmendmentKey(k), am.codec.Marshal(told)); err == nil {
				continue
			}
			am.amendEvent(now, k, wire.EventWarning, "Conflict", "what was changed here is too large to be told to the root, and is dropped", fx)
		}
		am.giveBack(now, k, fx) // what runs is what the root wants
	}
}

// amendedItem takes the root's answer to an amendment.
func (am *amender) amendedItem(now time.Time, key string, value []byte, fx *wire.Effects) {
	k, _ := wire.ParseAmendedKey(key)
	var answer wire.Amended
	if am.codec.Unmarshal(value, &answer) != nil || answer.App != k || !am.overrides.Awaits(&answer) {
		return
	}
	if answer.Adopted != 0 {
		am.amendEvent(now, k, wire.EventNormal, "Adopted", fmt.Sprintf("the root adopted what was changed here, as generation %d", answer.Adopted), fx)
	} else {
		am.amendEvent(now, k, wire.EventWarning, "Conflict", "the root did not adopt what was changed here: "+answer.Why, fx)
	}
	am.giveBack(now, k, fx)
}

// giveBack makes a borrowed application the root's again, and has here what the root wants here.
func (am *amender) giveBack(now time.Time, k skerry.AppKey, fx *wire.Effects) {
	am.overrides.Close(k, fx)
	am.Up.Observed.Delete(wire.AmendmentKey(k))
	wanted := map[skerry.InstanceID]spec.Assignment{}
	for key, value := range am.Up.Desired.All() {
		var a spec.Assignment
		if strings.HasPrefix(key, "inst/") && am.codec.Unmarshal(value, &a) == nil && wire.AssignmentKey(a.ID) == key && a.Service.App == k {
			wanted[a.ID] = a
		}
	}
	for _, id := range sortedIDs(am.byApp[k]) {
		p := am.places[id]
		if p == nil || p.Group != "" {
			continue
		}
		a, ok := wanted[id]
		if !ok {
			p.Origin = "root"
			am.remove(now, p, fx)
			continue
		}
		p.Origin, p.A.Gen = "root", 0 // taken up below, whatever its number
		p.Extra = 0
		if p.A.Restart > a.Restart {
			p.Extra = p.A.Restart - a.Restart
		}
	}
	for _, id := range sortedIDs(wanted) {
		am.intake.accept(now, wanted[id], "root", fx)
	}
	am.overlay.redirected(k)
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
