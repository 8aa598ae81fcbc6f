package core

import (
	"encoding/json"
	"testing"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// That an agent is not Skerry's is kept: a site that was started anew neither upgrades its worker, nor places there what it cannot do,
// before the worker has told its facts again.
func TestExternalIsKept(t *testing.T) {
	site := textSite(t, time.Unix(1_700_000_000, 0), "")
	have := &worker{Name: "n1", Facts: &wire.WorkerFacts{External: "kubernetes", Features: []string{spec.FeatureSubPath}}}
	var fx wire.Effects
	site.saveWorker(have, &fx)
	if len(fx.Writes) != 1 {
		t.Fatalf("a worker is kept in %d writes, want 1", len(fx.Writes))
	}
	kept := worker{}
	if err := json.Unmarshal(fx.Writes[0].Value, &kept); err != nil {
		t.Fatal(err)
	}
	if !kept.external() || kept.Facts.Features != nil {
		t.Errorf("the worker is kept as %s, want its kind of agent, and not its features", fx.Writes[0].Value)
	}
}
