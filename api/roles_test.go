package api_test

import (
	"slices"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
)

// TestRoles tells a user who may hardly anything what each role may, and a stranger nothing.
func TestRoles(t *testing.T) {
	s := newRoot(t)
	ctx := t.Context()
	const password = "see-but-touch-not"
	if _, err := s.admin().CreateUser(ctx, "vera", password, []auth.Grant{{Role: auth.RoleViewer, Org: auth.Any, Cluster: auth.Any}}); err != nil {
		t.Fatal(err)
	}
	roles, err := s.client("vera", password).Roles(ctx)
	if err != nil || len(roles) != len(auth.Roles()) {
		t.Fatalf("%d roles, want %d; %v", len(roles), len(auth.Roles()), err)
	}
	for i, r := range roles {
		if r.Role != auth.Roles()[i] {
			t.Errorf("role %d is %s, want %s", i, r.Role, auth.Roles()[i])
		}
		for _, scope := range auth.Scopes() {
			if slices.Contains(r.Scopes, scope) != r.Role.Has(scope) {
				t.Errorf("%s: %s is told as %v", r.Role, scope, !r.Role.Has(scope))
			}
		}
	}
	if _, err := s.client("", "").Roles(ctx); skerry.AsError(err).Code != skerry.CodeUnauthorized {
		t.Errorf("a stranger: %v", err)
	}
}
