package auth

import (
	"context"
	"testing"
	"time"

	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// stuckStore is a store whose commits wait, as those of an etcd without a leader do.
type stuckStore struct {
	store.Store
	stuck   bool
	waiting chan struct{}
	goOn    chan struct{}
}

func (s *stuckStore) Commit(ctx context.Context, ops []store.Op) (int64, error) {
	if s.stuck {
		s.waiting <- struct{}{}
		<-s.goOn
	}
	return s.Store.Commit(ctx, ops)
}

// Who is known stays known while a change of somebody else waits for the store.
func TestAnswersWhileTheStoreIsStuck(t *testing.T) {
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	s := &stuckStore{Store: st, waiting: make(chan struct{}), goOn: make(chan struct{})}
	p := people(t, s, &clock{time.Now()})
	if _, err := p.CreateUser(t.Context(), NewUser{Name: "ada", Password: "correct horse", Grants: adminGrants()}); err != nil {
		t.Fatal(err)
	}
	tk := login(t, p)
	a, err := OpenAuthority(t.Context(), AuthorityConfig{Site: "harbour", Tier: wire.TierCluster, Store: s})
	if err != nil {
		t.Fatal(err)
	}
	id := wire.PeerIdentity{Tier: wire.TierWorker, Name: "w1", Site: "harbour", Key: "k", Expires: time.Now().Add(time.Hour)}
	for _, name := range []string{"w1", "w2"} {
		if err := a.putLocked(t.Context(), Enrolled{Tier: wire.TierWorker, Name: name, Key: "k"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	s.stuck = true
	done := make(chan error, 2)
	go func() {
		_, _, err := p.CreateAccessToken(t.Context(), "ada", AccessTokenOptions{Name: "ci"})
		done <- err
	}()
	go func() { done <- a.Revoke(t.Context(), wire.TierWorker, "w2", "ada", "") }()
	<-s.waiting
	<-s.waiting
	asked := make(chan error, 2)
	go func() { _, err := p.Authenticate(tk.Access); asked <- err }()
	go func() { asked <- a.Admit(t.Context(), id, nil) }()
	for range 2 {
		select {
		case err := <-asked:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("nobody is let in while the store is stuck")
		}
	}
	close(s.goOn)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
