package api_test

import (
	"net/http"
	"slices"
	"testing"

	"skerry.dev/skerry/auth"
)

// TestChangesAreAudited: what is not a question is in the audit. Plans change nothing, nothing is kept of logins that have only begun, and
// tokens are renewed each few minutes.
func TestChangesAreAudited(t *testing.T) {
	for _, o := range newRoot(t).API.Handler().Operations() {
		if o.Method != http.MethodGet && !o.Audit && !slices.Contains([]string{"plan-app", "refresh", "begin-oidc"}, o.ID) {
			t.Errorf("%s %s (%s) changes something and is not audited", o.Method, o.Path, o.ID)
		}
	}
}

// TestAuditIsNotFlooded: whoever may change nothing does not push out what others did.
func TestAuditIsNotFlooded(t *testing.T) {
	s := newRoot(t)
	admin := s.admin()
	_, err := admin.CreateUser(t.Context(), "eve", "a long password", []auth.Grant{{Role: auth.RoleViewer, Org: auth.Any, Cluster: auth.Any}})
	must(t, err)
	eve := s.client("eve", "a long password")
	ask := func(edit func(*http.Request)) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, s.URL+"/v1/users/admin", nil)
		must(t, err)
		edit(req)
		res, err := s.http().Do(req)
		must(t, err)
		res.Body.Close()
		return res.StatusCode
	}
	audit := func(op string) (list []auth.AuditRecord) {
		list, err := admin.Audit(t.Context(), "", op, 0)
		must(t, err)
		return list
	}
	for range 100 {
		if code := ask(func(*http.Request) {}); code != http.StatusUnauthorized {
			t.Fatal(code)
		}
		if err := eve.DeleteUser(t.Context(), "admin"); err == nil {
			t.Fatal("a viewer removed a user")
		}
	}
	if n := len(audit("delete-user")); n < 1 || n > 31 {
		t.Errorf("%d records of a hundred refusals, and as many requests without a login", n)
	}
	for range 100 {
		_, err := s.client("", "").Login(t.Context(), "", "")
		if err == nil {
			t.Fatal("nobody logged in")
		}
	}
	if n := len(audit("login")); n < 1 || n > 33 {
		t.Errorf("%d records of a hundred logins of nobody", n)
	}
}

// TestGuessesAtTheRegistryAreAudited: a password that is tried by the registry's way is in the audit as one that is tried by the login.
func TestGuessesAtTheRegistryAreAudited(t *testing.T) {
	s := newRoot(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/v2/", nil)
	must(t, err)
	req.SetBasicAuth("admin", "12345678")
	res, err := s.http().Do(req)
	must(t, err)
	res.Body.Close()
	list, err := s.admin().Audit(t.Context(), "", "registry", 0)
	must(t, err)
	if len(list) != 1 || list[0].Result != "unauthorized" || list[0].Object != "admin" {
		t.Errorf("%+v", list)
	}
}
