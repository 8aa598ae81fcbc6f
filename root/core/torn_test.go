package core

import (
	"encoding/json"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestTokensAfterHalfOfACommit: no token is lower than one that an instance has, though the number of the last was not kept.
func TestTokensAfterHalfOfACommit(t *testing.T) {
	c := New(Options{Incarnation: "x", Epoch: 3})
	k := skerry.AppKey{Namespace: "default", Name: "a"}
	had := skerry.Fence{RootEpoch: 3<<40 | 7}
	load := func(key string, v any) {
		t.Helper()
		b, err := json.Marshal(v)
		if err == nil {
			err = c.Load(key, b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	load(keySeq, 5)
	load("app/default/a", &apps.App{Gen: 1, Manifest: spec.Application{Metadata: spec.Metadata{Name: k.Name, Namespace: k.Namespace}}})
	load("inst/i1", map[string]any{"id": "i1", "service": skerry.ServiceKey{App: k, Service: "web"}, "spec": spec.ServiceSpec{Name: "web"}, "fence": had})
	c.Start(time.Unix(1000, 0))
	var fx wire.Effects
	if next := c.tokens.mint(&fx); next.Compare(had) <= 0 {
		t.Errorf("%s comes after %s", next, had)
	}
}
