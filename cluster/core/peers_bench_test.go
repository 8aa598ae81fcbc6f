package core

import (
	"fmt"
	"testing"

	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/wire"
)

// One review of who measures round trips to whom, in a site of ten thousand workers where nothing has changed.
func BenchmarkReviewPeers(b *testing.B) {
	s := newPeersSite(b)
	for i := range 10_000 {
		name := fmt.Sprint("worker-", i)
		s.keep(s.c.Step(s.now, ChildUp{Hello: &wire.Hello{Name: name}}))
		s.c.workers[name].Facts = &wire.WorkerFacts{Probe: fmt.Sprintf("10.0.%d.%d:7000", i/250, i%250+1)}
	}
	review := func() {
		s.c.peers.Touch(s.now)
		s.c.peers.Review(s.now.Add(network.ReviewLater))
	}
	for review(); b.Loop(); {
		review()
	}
}
