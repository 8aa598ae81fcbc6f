package core

import (
	"testing"

	"skerry.dev/skerry/cluster/trust"
	"skerry.dev/skerry/wire"
)

// TestWorkerRecord: what parts of the core own of a worker stands behind the core's own fields, as it did before there were parts.
func TestWorkerRecord(t *testing.T) {
	const was = `{"name":"w","facts":{"capacity":{"cpu":4,"memory":"8Gi"},"arch":"amd64","os":"","runtimes":null},"hold":"broken disk","peer":7,` +
		`"credit":{"entries":{"capacity":{"against":1,"last":"2001-09-09T01:46:40Z","text":"it claims 9 cores","marks":1}},"at":"2001-09-09T01:46:40Z"},` +
		`"base":{"cpu":4,"memory":"8Gi"},"claims":{"cpu":9,"memory":"8Gi"}}`
	c := New(Options{Name: "a"})
	if err := c.Load(prefixWorker+"w", []byte(was)); err != nil {
		t.Fatal(err)
	}
	w := c.workers["w"]
	var fx wire.Effects
	if c.saveWorker(w, &fx); string(fx.Writes[0].Value) != was {
		t.Errorf("it is saved as\n%s, and was\n%s", fx.Writes[0].Value, was)
	}
	if share, _ := w.trust.Rank(); share == 0 || w.Cordon == "" || w.Peer != 7 {
		t.Errorf("rank %g, %+v", share, w)
	}
	if faults := c.trust.Audit(map[string]*trust.Worker{"w": w.trust}); len(faults) > 0 {
		t.Error(faults)
	}
}
