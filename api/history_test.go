package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/view"
)

// TestHistory: a cluster gives its history to who may see its workers, within bounds.
func TestHistory(t *testing.T) {
	s := newCluster(t)
	admin := s.admin()
	h, err := admin.History(t.Context(), view.HistoryQuery{Workers: true, Span: 24 * time.Hour, Step: time.Hour})
	if err != nil || h.StepMinutes != 60 || len(h.Series) != 1 || h.Series[0].Worker != "" || h.Series[0].Points == nil {
		t.Errorf("got history %+v and error %v, want the site's series with a step of an hour", h, err)
	}
	token, err := admin.CreateAccessToken(t.Context(), api.AccessTokenRequest{Name: "history"})
	must(t, err)
	for _, c := range []struct {
		name, path string
		want       int
	}{
		{"defaults", "/v1/history", http.StatusOK},
		{"the finest", "/v1/history?step=1&hours=24", http.StatusOK},
		{"all workers, too fine", "/v1/history?workers=true&step=9", http.StatusUnprocessableEntity},
		{"all workers", "/v1/history?workers=true&step=10", http.StatusOK},
		{"no step", "/v1/history?step=0", http.StatusUnprocessableEntity},
		{"a step of two hours", "/v1/history?step=120", http.StatusUnprocessableEntity},
		{"two days", "/v1/history?hours=48", http.StatusUnprocessableEntity},
		{"words", "/v1/history?hours=all", http.StatusUnprocessableEntity},
		{"an unknown parameter", "/v1/history?since=1h", http.StatusUnprocessableEntity},
		{"nobody", "/v1/workers/nobody/history", http.StatusNotFound},
		{"a name too long", "/v1/workers/" + strings.Repeat("w", 64) + "/history", http.StatusUnprocessableEntity},
	} {
		res, body := s.raw(http.MethodGet, c.path, token.Text, "", nil)
		if res.StatusCode != c.want {
			t.Errorf("%s: GET %s: got status %d, want %d; body %s", c.name, c.path, res.StatusCode, c.want, body)
		}
	}
	_, err = admin.CreateUser(t.Context(), "dev", "a long password",
		[]auth.Grant{{Role: auth.RoleDeveloper, Org: auth.Any, Cluster: auth.Any}})
	must(t, err)
	_, err = s.client("dev", "a long password").History(t.Context(), view.HistoryQuery{Span: time.Hour, Step: time.Minute})
	wantCode(t, "who may not see workers", err, skerry.CodeForbidden)
}

// TestHistoryStaysAtItsSite: the root has none, and no grant of a site gives its users any.
func TestHistoryStaysAtItsSite(t *testing.T) {
	s := newRoot(t)
	_, err := s.admin().History(t.Context(), view.HistoryQuery{Span: time.Hour, Step: time.Minute})
	wantCode(t, "at the root", err, skerry.CodeWrongTier)
	for _, o := range s.API.Handler().Operations() {
		if o.Grant != "" && strings.Contains(o.Path, "history") {
			t.Errorf("got operation %s with the grant %s, want none", o.ID, o.Grant)
		}
	}
}
