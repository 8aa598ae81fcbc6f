package auth

import (
	"testing"

	"skerry.dev/skerry"
)

// TestDisabledUser: whoever is disabled is let in by nothing that was given out before, and not by the password, until enabled again.
func TestDisabledUser(t *testing.T) {
	p, _, _ := newPeople(t)
	if _, err := p.CreateUser(t.Context(), NewUser{Name: "bob", Password: "wrong donkey", Grants: adminGrants()}); err != nil {
		t.Fatal(err)
	}
	token, _, err := p.CreateAccessToken(t.Context(), "bob", AccessTokenOptions{Name: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	session, err := p.Login(t.Context(), Credentials{User: "bob", Password: "wrong donkey", Addr: "192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	ways := map[string]func() error{
		"access token": func() error { _, err := p.Authenticate(token); return err },
		"session":      func() error { _, err := p.Authenticate(session.Access); return err },
		"basic token":  func() error { _, err := p.AuthenticateBasic(t.Context(), "bob", token, "192.0.2.1"); return err },
		"password": func() error {
			_, err := p.Login(t.Context(), Credentials{User: "bob", Password: "wrong donkey", Addr: "192.0.2.1"})
			return err
		},
		"basic": func() error {
			_, err := p.AuthenticateBasic(t.Context(), "bob", "wrong donkey", "192.0.2.1")
			return err
		},
	}
	for name, way := range ways {
		if err := way(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	yes, no := true, false
	if _, err := p.ChangeUser(t.Context(), "bob", UserChange{Disabled: &yes}); err != nil {
		t.Fatal(err)
	}
	for name, way := range ways {
		if err := way(); err == nil || codeOf(err) != skerry.CodeUnauthorized {
			t.Errorf("disabled, by %s: %v", name, err)
		}
	}
	if _, err := p.ChangeUser(t.Context(), "bob", UserChange{Disabled: &no}); err != nil {
		t.Fatal(err)
	}
	if err := ways["access token"](); err != nil {
		t.Errorf("enabled again: %v", err)
	}
}
