package core

import (
	"maps"

	"skerry.dev/skerry/cluster/autonomy"
	"skerry.dev/skerry/cluster/certs"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/cluster/volumes"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/wire"
)

// Records are the kinds of records of a core, by how their keys begin, each with a new value of the type that it is read into.
func Records() map[string]func() any {
	out := map[string]func() any{
		keySeq:                 func() any { return new(uint64) },
		prefixPlace:            func() any { return new(placement) },
		keyGrants:              func() any { return new([]wire.Granted) },
		keySiteUpgrade:         func() any { return new(orderRecord) },
		prefixGroup:            func() any { return new(group) },
		prefixWorker:           func() any { return &workerRecord{worker: new(worker)} },
		prefixKeeps:            func() any { return new(keeps) },
		volumes.Prefix:         volumes.Record,
		volumes.SnapshotPrefix: volumes.SnapshotRecord,

		moves.Prefix:       moves.Record,
		keyOverlayNet:      func() any { return new(overlayNet) },
		network.KeyIngress: network.IngressRecord,
		certs.KeyAccount:   func() any { return new(acmeAccount) },
		certs.Prefix:       certs.Record,
		autonomy.Prefix:    autonomy.Record,
		network.KeyPeers:   func() any { return new(network.Peers) },
	}
	maps.Copy(out, apps.Records())
	maps.Copy(out, members.ChildRecords())
	maps.Copy(out, members.ParentRecords())
	return out
}
