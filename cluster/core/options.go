package core

import (
	"net/netip"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/wire"
)

// Options set up a core.
type Options struct {
	Name        string
	Incarnation skerry.Incarnation
	Term        uint64 // second part of fencing tokens; grows with each take-over
	Seed        [16]byte
	LostAfter   time.Duration // a worker out of touch for so long is lost; default 3 s, of a server: the profile's
	Pace        *wire.Pace    // of workers; nil: theirs
	StartGrace  time.Duration // time for workers to come back after the orchestrator's own start; default 30 s
	ReportEvery time.Duration // at least this often the root gets an aggregate; default 10 s
	Admission   Admission
	Policies    map[string]sched.Policy // by name; nil: the built-in ones
	// Secret is random, from this start of a process; keys are made of it.
	Secret [32]byte
	Sets   reconcile.Options
	// Trusted: the operator declared the site's network trusted, and workers that reach each other there need not seal.
	Trusted    bool
	Standalone bool // there is no root
	Rebalance  bool // move instances to clearly better places, and not only for their SLA
	// Rebuild: the store has lost what the site had. What workers run is taken up, and nothing is placed before StartGrace is over.
	Rebuild bool
	// Direct: workers here and at other sites that agree may find ways to each other without gateways, and learn addresses.
	Direct bool
	// Pool is where the site takes IPv4 prefixes for instances from; the zero value: ipam.DefaultPool.
	Pool netip.Prefix
	// IngressAuthority, a new one for each start, becomes the site's if it has none yet. Nil: ingresses have none.
	IngressAuthority *wire.IngressCertificate
	// AccountKey, a new one for each start, becomes the site's at the certificate authority if it needs one and has none. It is PEM.
	AccountKey []byte
	// Zone is the one that the site's name servers answer for, at these addresses; empty: there are none.
	Zone        string
	NameServers []netip.Addr
}

// maxTold is how much is kept of what one worker tells, in bytes of memory: a cluster may run on a small machine.
const maxTold = 64 << 20

// below gives the options of the sets between the cluster and its workers.
func (o *Options) below() reconcile.Options {
	sets := o.Sets
	if sets.MaxSet == 0 {
		sets.MaxSet = maxTold
	}
	return sets
}
