package core

import (
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

// TestTokenCounterIsKept: a root that was started again gives no token that it gave before, also not when the instance that had the last
// one is gone, so that no record but the counter's knows it.
func TestTokenCounterIsKept(t *testing.T) {
	c := New(Options{Incarnation: "x", Epoch: 3})
	var fx wire.Effects
	last := c.tokens.mint(&fx)
	again := New(Options{Incarnation: "x", Epoch: 3})
	for _, w := range fx.Writes {
		if err := again.Load(w.Key, w.Value); err != nil {
			t.Fatal(err)
		}
	}
	again.Start(time.Unix(1000, 0))
	if next := again.tokens.mint(&fx); next.Compare(last) <= 0 {
		t.Errorf("after the restart it gives %s, and gave %s before", next, last)
	}
}
