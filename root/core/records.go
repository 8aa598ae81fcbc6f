package core

import (
	"maps"
	"net/netip"

	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/evidence"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/view"
)

// Records are the kinds of records of a root, by how their keys begin, each with a new value of the type that it is read into.
func Records() map[string]func() any {
	out := map[string]func() any{
		keySeq:        func() any { return new(uint64) },
		keyZones:      func() any { return new(map[string]string) },
		keyExtents:    func() any { return new(map[netip.Prefix]string) },
		prefixCordon:  func() any { return new(cordon) },
		prefixLabels:  func() any { return new(map[string]string) },
		prefixUpgrade: func() any { return new(view.Upgrade) },
		prefixTrust:   func() any { return new(evidence.Book) },
		prefixAway:    func() any { return new(presence) },
		keyAlive:      nil, // a time, and not in quotes
	}
	maps.Copy(out, apps.Records())
	maps.Copy(out, members.ChildRecords())
	return out
}
