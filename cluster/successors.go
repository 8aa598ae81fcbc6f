package cluster

import (
	"time"

	"skerry.dev/skerry/cluster/placing"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// answer is what the owner of an instance was told last about its successor.
type answer struct {
	wire.SuccessorAnswer
	at time.Time // when it was looked for
}

// askEvery is how often an answer is looked for again.
const askEvery = time.Second

// askFor takes the question that came with an assignment of an instance which is here, or its end.
func (in *intake) askFor(now time.Time, a *spec.Assignment, fx *wire.Effects) {
	p := in.places[a.ID]
	if p == nil || p.Removing || a.Fence.RootEpoch != p.A.Fence.RootEpoch {
		return
	}
	q, was := a.Successor, p.A.Successor
	p.A.Successor = q
	switch {
	case q == nil && was == nil:
	case q == nil:
		in.ask(a.ID, nil)
		in.changed(now, p, fx)
	case was == nil || in.asking[a.ID] == nil || was.Revision != q.Revision || was.Gen != q.Gen:
		in.ask(a.ID, &answer{wire.SuccessorAnswer{Revision: q.Revision, Why: in.noSuccessor(now, p)}, now})
		in.changed(now, p, fx)
	}
}

// answerAgain tells owners of instances when the answer has changed.
func (in *intake) answerAgain(now time.Time, fx *wire.Effects) {
	for _, id := range sortedIDs(in.asking) {
		p, k := in.places[id], in.asking[id]
		if p == nil || p.A.Successor == nil {
			in.ask(id, nil)
			continue
		}
		if now.Sub(k.at) < askEvery && !now.Before(k.at) {
			continue
		}
		k.at = now
		if why := in.noSuccessor(now, p); why != k.Why || k.Revision != p.A.Successor.Revision {
			k.Revision, k.Why = p.A.Successor.Revision, why
			in.changed(now, p, fx)
		}
	}
}

// noSuccessor says why a newer version of an instance has no place in the site once the instance has ended, or "".
func (in *intake) noSuccessor(now time.Time, p *placement) string {
	if p.Worker == "" || p.Removing || p.ended() {
		return ""
	}
	q := &placement{A: p.A, Origin: p.Origin, seat: seat{Pinned: p.Pinned}, Located: placing.Located{Users: p.Users}, Created: now}
	q.A.Spec, q.A.Revision, q.A.Gen = p.A.Successor.Spec, p.A.Successor.Revision, p.A.Successor.Gen
	q.A.Runtime, q.A.Devices, q.A.Digest, q.A.Successor = "", nil, nil, nil
	if why := in.admission.Check(&q.A); why != nil {
		return why.Text
	}
	if why := in.admission.CheckQuota(in.usedBy(p.A.Org, p.A.ID), &q.A); why != nil {
		return why.Text
	}
	at := in.dataAt(q)
	if w := in.workers[at]; w != nil {
		switch {
		case w.Drain != nil:
			return "the volume is on worker " + at + ", which is drained"
		case w.Hold != "":
			return "the volume is on worker " + at + ", which is cordoned: " + w.Hold
		case p.Worker != at:
			return "the volume is on worker " + at + ", and it runs elsewhere"
		}
	}
	policy, plugins, reason := in.find.policyOf(&q.A)
	if reason != nil {
		return reason.Text
	}
	if len(plugins) > 0 && at == "" {
		return "" // their programs are asked when it is placed
	}
	in.reserve(p, -1)
	d := in.find.placeFree(now, policy, in.find.request(q))
	in.reserve(p, 1)
	switch {
	case d.Chosen != "":
		return ""
	case len(d.Why) == 0:
		return "no worker of the site can take it"
	case at != "":
		return "the volume is on worker " + at + ", which cannot take the new version: " + whyAt(d.Why)
	}
	return "no worker of the site can take the new version: " + d.Why[0].Text
}

// whyAt is the first reason that is not about other workers.
func whyAt(why []wire.Reason) string {
	for _, r := range why {
		if r.What != "volumes" {
			return r.Text
		}
	}
	return why[0].Text
}
