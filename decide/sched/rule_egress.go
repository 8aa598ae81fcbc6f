package sched

import "skerry.dev/skerry/wire"

// Egress rules out workers that would let an instance go where its policy does not.
type Egress struct{}

func (Egress) Name() string { return "egress" }

func (Egress) Lasting() bool { return false }

func (Egress) For(q *Query) Check {
	if !q.holdsEgress() {
		return nil
	}
	return byKind(q, "egress", func(k *kind) bool { return k.class.Egress }, func(*kind) wire.Reason {
		return wire.Reason{What: "egress", Text: "it cannot hold the service to its egress policy: it gives instances no network of their own, or its agent is older than that",
			Hint: "run the worker without --no-network and with this version, or leave egress out where the site's policy allows that"}
	})
}

// holdsEgress reports whether a worker must hold the instance to a policy: its manifest's, or one that the site has for its organisation.
func (r *Request) holdsEgress() bool { return r.Egress || r.Spec.Egress != nil }
