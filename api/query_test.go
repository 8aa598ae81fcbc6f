package api_test

import (
	"net/http"
	"strings"
	"testing"

	"skerry.dev/skerry/api"
)

// TestEmptyQuery: a number, a time or a switch without a value is refused as any other bad value, and not taken for one that is not
// given. A text may be empty.
func TestEmptyQuery(t *testing.T) {
	s := newCluster(t)
	token, err := s.admin().CreateAccessToken(t.Context(), api.AccessTokenRequest{Name: "query"})
	must(t, err)
	_, err = s.admin().Apply(t.Context(), []byte(shop), api.ApplyOptions{})
	must(t, err)
	instances, err := s.admin().Instances(t.Context(), api.InstanceFilter{})
	if err != nil || len(instances) == 0 {
		t.Fatalf("instances: got %d, %v, want one", len(instances), err)
	}
	logs := "/v1/instances/" + string(instances[0].ID) + "/logs"
	const manifest = `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"shop"},
		"spec":{"services":[{"name":"web","image":"web:1"}]}}`
	for _, c := range []struct {
		method, path, name, body string
		want                     int
	}{
		{http.MethodGet, "/v1/history?hours=", "query.hours", "", http.StatusUnprocessableEntity},
		{http.MethodGet, "/v1/history?hours=2&hours=", "query.hours", "", http.StatusUnprocessableEntity},
		{http.MethodGet, "/v1/apps?limit=", "query.limit", "", http.StatusUnprocessableEntity},
		{http.MethodGet, "/v1/audit/verify?since=", "query.since", "", http.StatusUnprocessableEntity},
		{http.MethodGet, logs + "?since=", "query.since", "", http.StatusUnprocessableEntity},
		{http.MethodGet, logs + "?tail=", "query.tail", "", http.StatusUnprocessableEntity},
		{http.MethodPost, "/v1/apps?dryRun=", "query.dryRun", manifest, http.StatusUnprocessableEntity},
		{http.MethodPost, "/v1/apps?expectGeneration=", "query.expectGeneration", manifest, http.StatusUnprocessableEntity},
		{http.MethodGet, "/v1/apps?namespace=", "", "", http.StatusOK},
		{http.MethodGet, "/v1/apps?continue=", "", "", http.StatusOK},
		{http.MethodGet, "/v1/history?hours=2", "", "", http.StatusOK},
	} {
		res, body := s.raw(c.method, c.path, token.Text, "application/json", strings.NewReader(c.body))
		if res.StatusCode != c.want || c.name != "" && !strings.Contains(string(body), c.name) {
			t.Errorf("%s %s: got status %d, want %d naming %q; body %s", c.method, c.path, res.StatusCode, c.want, c.name, body)
		}
	}
}
