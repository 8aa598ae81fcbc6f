package sched

import (
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Features rules out workers whose agent would leave out what the service's manifest says.
type Features struct{}

func (Features) Name() string { return "features" }

func (Features) Lasting() bool { return false }

const featuresHint = "upgrade the agents there (`skerry upgrade workers`) and their cluster, or leave these fields out"

const nfsHint = "start a worker with --nfs SERVER, as its operator, or upgrade its agent"

func (Features) For(q *Query) Check {
	if len(spec.FeaturesOf(q.Spec)) == 0 {
		return nil
	}
	lacked := func(k *kind) string { return spec.LackedFeature(q.Spec, k.class.Features) }
	return byKind(q, "features", func(k *kind) bool { return lacked(k) == "" }, func(k *kind) wire.Reason {
		if lacked(k) == spec.FeatureNFS {
			return wire.Reason{What: "features", Text: "it mounts no NFS servers for instances", Hint: nfsHint}
		}
		return wire.Reason{What: "features", Text: "its agent does not know " + lacked(k) + ", and would leave it out", Hint: featuresHint}
	})
}
