package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/wire"
)

// A site that was changed while the root was away tells what it has (wire.Amendment). The root adopts it as the next
// generation if the one that was changed is still current; else its own newer word counts, and the amendment is kept for undo.
// It adopts nothing by which a site would get more than it was given, and nothing of a time in which it was in touch: a person
// decides about that, for the site may be another's by now.
// The answer comes to the site together with the assignments of all that it is to keep: what it has started goes on under a
// token of the root's.

// What the root adopts by itself of what sites were changed to while it was away; the rest is kept for undo.
const (
	// AmendmentsLocal, the default, are those of services that run at the site alone, and numbers of instances: who operates a
	// site does not decide what runs at others.
	AmendmentsLocal = "own"
	// AmendmentsAll are those of services that run at others, too. What a site may not decide by itself waits all the same.
	AmendmentsAll  = "all"
	AmendmentsNone = "none"
)

// amendment takes an item of a site's observed set.
func (c *Core) amendment(now time.Time, site, key string, value []byte, fx *wire.Effects) {
	app, ok := wire.ParseAmendmentKey(key)
	var change wire.Amendment
	if !ok || c.codec.Unmarshal(value, &change) != nil || change.App != app {
		return // a hostile or broken site harms only itself
	}
	child := c.Children.Get(site)
	var before wire.Amended
	if old, ok := child.Desired.Get(wire.AmendedKey(app)); ok && c.codec.Unmarshal(old, &before) == nil {
		if before.Seq >= change.Seq {
			return // it was answered
		}
		if a := c.Apps.App(app); before.Adopted != 0 && a != nil && a.Gen == before.Adopted {
			change.Base = a.Gen // it was away again before it heard that; what it had done by then is in this, too
		}
	}
	answer := wire.Amended{App: app, Seq: change.Seq}
	var started, ended []*apps.Instance
	err := error(skerry.Errorf(skerry.CodeForbidden, "this root adopts nothing by itself"))
	switch {
	case !c.nets.holds(site, app) && before.Adopted != 0 && change.Base == before.Adopted && c.Apps.App(app) != nil:
		err = nil // of what it ended, the last was adopted
	case !c.nets.holds(site, app):
	case !c.away.wasAutonomous(now, child.Since, site, change.At):
		err = &apps.WaitsError{Why: "the root does not know that the site was out of touch at " + change.At.UTC().Format(time.RFC3339)}
	case c.foreignImage(&change) != "":
		answer.Why = "image " + c.foreignImage(&change) + " belongs to another organisation, whose images a site does not deploy; apply it here as somebody who has images:read there"
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "AmendmentRefused",
			Cluster: skerry.ClusterName(site), App: app, Text: "cluster " + site + ": " + answer.Why})
	case misplacedPin(&change) != "":
		answer.Why = misplacedPin(&change)
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "AmendmentRefused",
			Cluster: skerry.ClusterName(site), App: app, Text: "cluster " + site + ": " + answer.Why})
	case c.opt.Amendments != AmendmentsNone:
		started, ended, err = c.Apps.Adopt(now, site, &change, c.opt.Amendments == AmendmentsAll, c.tokens.mint, fx)
	}
	switch {
	case answer.Why != "": // not even kept for undo
	case err != nil && !c.nets.holds(site, app):
		if c.Apps.App(app) == nil && !c.strangers.answers(site) {
			return
		}
		answer.Why = "the site holds nothing of it"
		c.strangers.named(now, site, "AmendmentRefused",
			"cluster "+site+" tells of a change of application "+app.String()+", of which it holds nothing", fx)
	case err != nil:
		answer.Why = whyNot(err)
		c.Apps.KeepAmendment(now, site, &change, err, fx)
	default:
		answer.Adopted = c.Apps.App(app).Gen
		c.amended(now, site, started, ended, fx)
	}
	_ = c.Children.Put(site, wire.AmendedKey(app), c.codec.Marshal(&answer)) // it is small
}

// foreignImage gives an image of the built-in registry that an amendment has an application run anew, and that belongs to another
// organisation than the application, or "".
func (c *Core) foreignImage(amendment *wire.Amendment) string {
	app := c.Apps.App(amendment.App)
	if app == nil {
		return ""
	}
	has := map[string]bool{}
	for i := range app.Manifest.Spec.Services {
		for _, ref := range app.Manifest.Spec.Services[i].Images() {
			has[ref], has[app.Digests[ref]] = true, true
		}
	}
	foreign := func(ref string) bool {
		name, _ := strings.CutPrefix(ref, imageref.BuiltIn+"/")
		space, _, nested := strings.Cut(name, "/")
		org := c.Apps.OrgOf(space)
		return !has[ref] && nested && org != "" && org != app.Org
	}
	for _, s := range amendment.Services {
		if s.Spec == nil {
			continue
		}
		for _, ref := range s.Spec.Images() {
			if foreign(ref) {
				return ref
			}
		}
	}
	for _, pinned := range amendment.Digests {
		if foreign(pinned) {
			return pinned
		}
	}
	return ""
}

// misplacedPin tells of a digest that an amendment has for an image which it cannot stand for, or gives "": it pins an image within the
// repository of its reference, and leads to no other.
func misplacedPin(m *wire.Amendment) string {
	for _, ref := range slices.Sorted(maps.Keys(m.Digests)) {
		if !imageref.Pins(ref, m.Digests[ref]) {
			return fmt.Sprintf("image %.200q is not what %.200q stands for", m.Digests[ref], ref)
		}
	}
	return ""
}

func (c *Core) amended(now time.Time, site string, started, ended []*apps.Instance, fx *wire.Effects) {
	for _, i := range started {
		c.assign(now, i, fx)
		c.track(i)
	}
	for _, i := range ended {
		c.Children.Delete(site, wire.AssignmentKey(i.ID))
		delete(c.failover.stranded, i.ID)
		c.nets.dirty[i.Service.App] = true
	}
}

// whyNot is what a site is told of an amendment that is not adopted.
func whyNot(err error) string {
	if w, ok := errors.AsType[*apps.WaitsError](err); ok {
		return w.Error()
	}
	return skerry.AsError(err).Message
}
