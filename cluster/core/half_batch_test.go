package core

import (
	"fmt"
	"maps"
	"testing"

	"skerry.dev/skerry/wire"
)

// Of a batch that gave a worker its number and its block of addresses, what it was told may be all that was kept. Nobody else gets
// either, and when the worker is removed its block rests like any other.
func TestNumberOfHalfABatch(t *testing.T) {
	s := newOverlayNetSite(t)
	s.keep(s.c.Step(s.now, ChildUp{Hello: &wire.Hello{Name: "w1"}}))
	before := maps.Clone(s.kv)
	s.join(1)
	was := item[wire.OverlayNode](s, "w1", wire.NodeKey)
	for _, k := range []string{prefixWorker + "w1", keyOverlayNet} {
		if v, ok := before[k]; ok {
			s.kv[k] = v
		} else {
			delete(s.kv, k)
		}
	}
	s.start()
	if len(s.c.workers) != 1 || s.c.workers["w1"].Peer != 0 || len(s.c.workers["w1"].Blocks) != 1 {
		t.Fatalf("the start knows %s", fmt.Sprintf("%+v", s.c.workers["w1"]))
	}
	now := item[wire.OverlayNode](s, s.join(2), wire.NodeKey)
	if now.ID == was.ID || now.Blocks[0] == was.Blocks[0] || now.V6 == was.V6 {
		t.Errorf("another worker gets %+v, and w1 goes by %+v", now, was)
	}
	s.keep(s.c.Step(s.now, RemoveWorker{Name: "w1"}))
	if of := s.c.overlayNet.Blocks.Of("w1"); len(of) != 0 || s.c.overlayNet.Blocks.Resting(s.now, "w1") != 1 {
		t.Errorf("w1 is gone and holds %v", of)
	}
}
