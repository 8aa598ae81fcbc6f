package api_test

import (
	"slices"
	"testing"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/storetest"
	"skerry.dev/skerry/wire"
)

// unsureBackend is a root with another authority, which notes whose connections are closed.
type unsureBackend struct {
	*parents.Root
	authority *auth.Authority
	closed    []string
}

func (b *unsureBackend) Authority() *auth.Authority { return b.authority }
func (b *unsureBackend) Disconnect(name string)     { b.closed = append(b.closed, name) }

// TestRevokedUnsurely: of a revocation that may be kept, the connection is closed, too: asked again, it says that there is nobody.
func TestRevokedUnsurely(t *testing.T) {
	s := newRoot(t)
	memory, err := store.Open(t.Context(), "memory:", store.Options{})
	must(t, err)
	t.Cleanup(func() { memory.Close() })
	u := &storetest.Unsure{Store: memory}
	open := func() *auth.Authority {
		a, err := auth.OpenAuthority(t.Context(), auth.AuthorityConfig{Site: "sea", Tier: wire.TierRoot, Store: u})
		must(t, err)
		return a
	}
	open()
	stolen := store.Op{Key: "auth/enrolled/cluster/stolen", Value: []byte(`{"role":"cluster","name":"stolen","key":"k"}`)}
	_, err = u.Commit(t.Context(), []store.Op{stolen})
	must(t, err)
	b := &unsureBackend{Root: s.Root, authority: open()}
	u.On = true
	h, err := api.NewHandler(api.Options{Backend: b, People: s.API.People})
	must(t, err)
	srv, err := api.NewServer(h, api.Listen{Addr: "127.0.0.1:0", Plain: true})
	must(t, err)
	must(t, srv.Open())
	background(t, srv.Run)
	c, err := api.NewClient(api.ClientOptions{Server: srv.URL()})
	must(t, err)
	t.Cleanup(c.Close)
	_, err = c.Login(t.Context(), auth.AdminUser, s.password())
	must(t, err)
	err = c.RevokeMember(t.Context(), "stolen", "")
	if err == nil || len(b.authority.List()) != 0 || !slices.Equal(b.closed, []string{"stolen"}) {
		t.Errorf("revoked: %v; enrolled: %v; closed: %q", err, b.authority.List(), b.closed)
	}
}
