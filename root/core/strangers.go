package core

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/wire"
)

const (
	// strangersNamed is how many events tell of what one site has on a connection and the root does not know, of each kind: a site that
	// says it has very many would fill the events, the store and the log.
	strangersNamed = 64
	// maxRefusedAmendments bounds the answers to a site about applications that the root does not have: each is kept, and there may be
	// any number.
	maxRefusedAmendments = 1024
)

// strangers counts what sites said on their connections of what the root does not know.
type strangers struct {
	apps     *apps.Controller
	children *members.Children
	sites    map[string]*strange
}

type strange struct {
	events  map[string]int // by reason
	answers int            // about applications that are not there
}

func newStrangers(a *apps.Controller, children *members.Children) *strangers {
	return &strangers{a, children, map[string]*strange{}}
}

// forget starts anew, with a connection of the site.
func (s *strangers) forget(site string) { delete(s.sites, site) }

func (s *strangers) at(site string) *strange {
	count := s.sites[site]
	if count == nil {
		count = &strange{events: map[string]int{}}
		for _, key := range s.children.Get(site).Desired.Keys() {
			if app, ok := wire.ParseAmendedKey(key); ok && s.apps.App(app) == nil {
				count.answers++
			}
		}
		s.sites[site] = count
	}
	return count
}

// runs tells of an instance that a site runs and this store does not know: it was restored from an older backup. It
// is left alone until somebody names it or an operator ends it, and of one that is ending nothing is said.
func (s *strangers) runs(now time.Time, site string, o *wire.Observation, fx *wire.Effects) {
	if o.Phase != skerry.PhaseStopping && !o.State.Final() {
		s.named(now, site, "UnknownInstance", "cluster "+site+" runs "+wire.Short(string(o.ID))+
			", which this store does not know; it is left running", fx)
	}
}

// named tells of something at a site that the root does not know, unless many were told of on this connection.
func (s *strangers) named(now time.Time, site, reason, text string, fx *wire.Effects) {
	count := s.at(site).events
	if count[reason] >= strangersNamed {
		return
	}
	if count[reason]++; count[reason] == strangersNamed {
		text += "; others are not named"
	}
	fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: reason, Cluster: skerry.ClusterName(site), Text: text})
}

// answers reports whether a site is answered about one more application that is not there. What it has let go of since it connected
// counts.
func (s *strangers) answers(site string) bool {
	count := s.at(site)
	count.answers++
	return count.answers <= maxRefusedAmendments
}
