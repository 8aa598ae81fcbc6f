package auth_test

import (
	"path/filepath"
	"testing"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/wire"
)

// TestAdmitted: a verified certificate alone lets nobody in. Its name must be enrolled with that very key, at this site and for this tier:
// another device may have the name by now, as after a restored backup.
func TestAdmitted(t *testing.T) {
	o := newJoinServer(t, wire.TierCluster)
	m, err := o.enter(filepath.Join(t.TempDir(), "w1"), o.token(auth.TokenOptions{Tier: wire.TierWorker}), "w1")
	if err != nil {
		t.Fatal(err)
	}
	own := o.identity(t, m)
	hello := &wire.Hello{Machine: "machine-w1"}
	if err := o.Admit(t.Context(), own, hello); err != nil {
		t.Fatal(err)
	}
	for what, edit := range map[string]func(id *wire.PeerIdentity){
		"another key":  func(id *wire.PeerIdentity) { id.Key = "0" + id.Key[1:] + "0" },
		"another site": func(id *wire.PeerIdentity) { id.Site = "island" },
		"another tier": func(id *wire.PeerIdentity) { id.Tier = wire.TierCluster },
		"another name": func(id *wire.PeerIdentity) { id.Name = "w2" },
	} {
		id := own
		edit(&id)
		for _, h := range []*wire.Hello{hello, nil} { // a connection, and a stream beside it
			if err := o.Admit(t.Context(), id, h); err == nil {
				t.Errorf("%s is admitted", what)
			} else {
				refused(t, err, wire.RefuseUnknown)
			}
		}
		if _, err := o.Renew(t.Context(), id, &wire.Renew{Counter: id.Counter, Machine: "machine-w1"}, "192.0.2.1"); err == nil {
			t.Errorf("%s is given a certificate", what)
		}
	}
}
