package core

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/reconcile"
)

// Options set up a core.
type Options struct {
	Incarnation skerry.Incarnation
	// Epoch grows with each incarnation; with a counter below it, it makes the first part of every fencing token.
	Epoch uint64
	// Seed must differ at each start of a process.
	Seed [16]byte
	// LostAfter is how long a cluster may be out of touch before its instances are started elsewhere. 0 means
	// DefaultLostAfter, less than 0 never: a site lives on without the root.
	LostAfter time.Duration
	// Amendments is one of AmendmentsLocal (the default), AmendmentsAll and AmendmentsNone.
	Amendments string
	// SealKey seals what is given to sites, and must outlive the store. nil: nothing is sealed, and no orphan can be adopted.
	SealKey []byte
	Sets    reconcile.Options
}
