package auth

import (
	"errors"
	"testing"
	"time"

	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// TestMadeUnderAClockAhead: sessions and join tokens that were made while the clock was years ahead are not good for years.
func TestMadeUnderAClockAhead(t *testing.T) {
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	c := &clock{time.Date(2036, 1, 1, 0, 0, 0, 0, time.UTC)}
	p := people(t, st, c)
	if _, err := p.CreateUser(t.Context(), NewUser{Name: "ada", Password: "a long password"}); err != nil {
		t.Fatal(err)
	}
	tokens, err := p.Login(t.Context(), Credentials{User: "ada", Password: "a long password", Addr: "192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	join := JoinToken{Tier: wire.TierWorker, Created: c.Now(), Expires: c.Now().Add(time.Hour)}
	c.pass(-time.Minute) // a clock that is corrected a little ends nothing
	if _, err := p.Authenticate(tokens.Access); err != nil {
		t.Error(err)
	}
	if _, err := join.check(c.Now(), wire.TierWorker, "w1", "k"); err != nil {
		t.Error(err)
	}
	c.pass(-10 * 365 * 24 * time.Hour)
	if _, err := p.Authenticate(tokens.Access); err == nil {
		t.Error("its access token is good for ten years")
	}
	if _, err := p.Refresh(t.Context(), tokens.Refresh, "192.0.2.1"); err == nil {
		t.Error("its session is good for ten years")
	}
	var refuse *wire.Refuse
	if _, err := join.check(c.Now(), wire.TierWorker, "w1", "k"); !errors.As(err, &refuse) || refuse.Code != wire.RefuseTokenExpired {
		t.Errorf("a join token is good for ten years: %v", err)
	}
}
