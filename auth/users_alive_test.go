package auth

import "testing"

// What an access token began ends with it, also when another one has its name by then, perhaps with fewer scopes.
func TestAliveEndsWithTheToken(t *testing.T) {
	p, _, _ := newPeople(t)
	use := func(scopes ...Scope) *Principal {
		t.Helper()
		text, _, err := p.CreateAccessToken(t.Context(), "ada", AccessTokenOptions{Name: "ci", Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		who, err := p.Authenticate(text)
		if err != nil || !p.Alive(who) {
			t.Fatalf("a new token: alive %v, %v; want that it is", p.Alive(who), err)
		}
		return who
	}
	old := use()
	if err := p.DeleteAccessToken(t.Context(), "ada", "ci"); err != nil {
		t.Fatal(err)
	}
	next := use(ScopeAppsRead)
	if p.Alive(old) {
		t.Error("the old token is alive under the name of the new one, want that it has ended")
	}
	if !p.Alive(next) {
		t.Error("the new token is not alive")
	}
}
