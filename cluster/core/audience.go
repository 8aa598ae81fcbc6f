package core

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/wire"
)

// A copy that serves ends after whoever may send requests to it has confirmed that it is going:
//
//	letGo ─► farewells ─► its route and endpoints say so ─► workers acknowledge their sets ──────────────┬─► its worker is told
//	                                   └─► mail to other sites ─► workers there ─► their mail: heard ────┘

// audience is who sends requests to the services of a site: workers, and other sites, whose names end with a slash here.
type audience struct{ o *overlay }

// Told implements moves.Audience.
func (a audience) Told(k skerry.ServiceKey) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range a.o.told(k) {
			if !yield(name) {
				return
			}
		}
		for _, site := range a.o.interests.Sites(k) {
			if !yield(site + "/") {
				return
			}
		}
	}
}

// Sent implements moves.Audience: the generation of a worker's set, or the sum of the mail to a site.
func (a audience) Sent(name string, k skerry.ServiceKey) uint64 {
	if site, ok := strings.CutSuffix(name, "/"); ok {
		mail, _ := a.o.Up.Observed.Get(wire.MailTo(site, wire.TopicRoute(k)))
		return sumOf(mail)
	}
	return uint64(a.o.Children.Get(name).Desired.Gen())
}

// Waits implements moves.Audience. What is told changes with the load: where it changes faster than it is confirmed,
// the confirmation of what was sent then will do. A site that never confirmed anything runs an older version, and is
// not waited for.
func (a audience) Waits(name string, k skerry.ServiceKey, sent uint64) bool {
	site, ok := strings.CutSuffix(name, "/")
	if !ok {
		return a.o.unconfirmed(name, k) && uint64(a.o.Children.Get(name).Desired.Acked()) < sent
	}
	heard, can := a.o.remote.sites.Heard(site, k)
	mail, told := a.o.Up.Observed.Get(wire.MailTo(site, wire.TopicRoute(k)))
	return can && told && heard != sent && heard != sumOf(mail)
}

// sumOf tells one mail from another.
func sumOf(mail []byte) uint64 {
	sum := sha256.Sum256(mail)
	return binary.BigEndian.Uint64(sum[:])
}

// sayFarewells has workers end what nobody is sent to any more.
func (o *overlay) sayFarewells(now time.Time) {
	for _, at := range o.farewells.Over(now, audience{o}) {
		o.Children.Delete(at.Worker, wire.AssignmentKey(at.ID))
	}
}

// localAudience is who sends requests to the services of other sites: workers.
type localAudience struct{ audience }

// Told implements moves.Audience.
func (h localAudience) Told(k skerry.ServiceKey) iter.Seq[string] { return h.o.told(k) }

// heard lists routes of other sites that all workers here have, once.
func (o *overlay) heard(now time.Time) []moves.Heard {
	return o.hearing.Over(now, localAudience{audience{o}})
}
