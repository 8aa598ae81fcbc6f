package auth_test

import (
	"testing"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// TestDeposedCluster: a root that was told of a term by a cluster refuses it in a lower one, also after its own restart; joined
// anew the cluster begins again.
func TestDeposedCluster(t *testing.T) {
	o := newJoinServer(t, wire.TierRoot)
	dir := t.TempDir()
	m, err := o.enter(dir, o.token(auth.TokenOptions{Tier: wire.TierCluster}), "harbour")
	if err != nil {
		t.Fatal(err)
	}
	id := o.identity(t, m)
	admit := func(term uint64) error { return o.Admit(t.Context(), id, &wire.Hello{Term: term}) }
	for _, term := range []uint64{0, 5, 5, 7, 0} {
		if err := admit(term); err != nil {
			t.Fatalf("term %d: %v", term, err)
		}
	}
	refused(t, admit(6), wire.RefuseDeposed, "term 7", "term 6")
	o.reopen(wire.TierRoot)
	refused(t, admit(5), wire.RefuseDeposed)
	if err := admit(8); err != nil {
		t.Fatal(err)
	}
	if m, err = o.enter(t.TempDir(), o.token(auth.TokenOptions{Tier: wire.TierCluster, Name: "harbour", Replace: true}), "harbour"); err != nil {
		t.Fatal(err)
	}
	id = o.identity(t, m)
	if err := admit(1); err != nil {
		t.Errorf("joined anew: %v", err)
	}
}

// TestReenrol: an authority that lost its enrolments lets workers in by their certificates if it is told to, and nobody else: not
// under a name that another key has, not what was revoked, and no certificate of another CA.
func TestReenrol(t *testing.T) {
	o := newJoinServer(t, wire.TierCluster)
	join := func(name string) (*auth.Member, wire.PeerIdentity) {
		m, err := o.enter(t.TempDir(), o.token(auth.TokenOptions{Tier: wire.TierWorker}), name)
		if err != nil {
			t.Fatal(err)
		}
		return m, o.identity(t, m)
	}
	m, one := join("one")
	_, two := join("two")
	_, bad := join("bad")
	if err := o.Revoke(t.Context(), wire.TierWorker, "bad", "test", ""); err != nil {
		t.Fatal(err)
	}
	ops := []store.Op{{Key: "auth/enrolled/worker/one", Delete: true}, {Key: "auth/enrolled/worker/two", Delete: true}}
	if _, err := o.store.Commit(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
	o.reopen(wire.TierCluster)
	hello := &wire.Hello{Machine: "m"}
	refused(t, o.Admit(t.Context(), one, hello), wire.RefuseUnknown)
	a, err := auth.OpenAuthority(t.Context(), auth.AuthorityConfig{Site: o.Site(), Tier: wire.TierCluster, Store: o.store, Reenrol: true, Now: o.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Admit(t.Context(), one, hello); err != nil {
		t.Fatal(err)
	}
	refused(t, a.Admit(t.Context(), bad, hello), wire.RefuseRevoked)
	imposter := two
	imposter.Name = "one"
	refused(t, a.Admit(t.Context(), imposter, hello), wire.RefuseUnknown)
	foreign := two
	foreign.Site = "elsewhere"
	refused(t, a.Admit(t.Context(), foreign, hello), wire.RefuseUnknown)
	o.reopen(wire.TierCluster)
	if err := o.Admit(t.Context(), one, hello); err != nil {
		t.Error("it is not kept:", err)
	}
	if err := m.Renew(t.Context(), o.dialing("m")); err != nil {
		t.Error("it cannot renew:", err)
	}
}
