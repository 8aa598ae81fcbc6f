package core

import (
	"maps"

	"skerry.dev/skerry/decide/members"
)

// Records are the kinds of records of a worker, by how their keys begin, each with a new value of the type that it is read into.
func Records() map[string]func() any {
	out := map[string]func() any{
		prefixInst:    func() any { return new(inst) },
		keyFreeze:     func() any { return new(freeze) },
		prefixVolumes: func() any { return new(volumes) },

		prefixSnapshotGone: func() any { return new(snapshotGone) },
		KeyRepaired:        nil,
	}
	maps.Copy(out, members.ParentRecords())
	return out
}
