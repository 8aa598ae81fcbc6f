package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"skerry.dev/skerry/api"
)

// TestWrongTypesInPlainWords: whoever sends a value of a wrong type reads what was expected, and nothing of the language that this is
// written in.
func TestWrongTypesInPlainWords(t *testing.T) {
	s := newRoot(t)
	admin := s.admin()
	_, err := admin.CreateOrg(t.Context(), orgNamed("acme"))
	must(t, err)
	token, err := admin.CreateAccessToken(t.Context(), api.AccessTokenRequest{Name: "test"})
	must(t, err)
	for body, want := range map[string]string{
		`{"instances": 35.0}`: "a whole number is needed, such as 35, not 35.0",
		`{"instances": 1e99}`: "a whole number is needed, such as 35, not 1e99",
	} {
		res, data := s.raw("PUT", "/v1/orgs/acme/quota", token.Text, "application/json", strings.NewReader(body))
		var p api.Problem
		if err := json.Unmarshal(data, &p); err != nil {
			t.Fatal(err)
		}
		if res.StatusCode/100 != 4 || !strings.Contains(string(data), want) || strings.Contains(string(data), "Go ") {
			t.Errorf("%s is answered with %s %s, want %q", body, res.Status, data, want)
		}
	}
	// The registry answers what it has not with the methods that it has.
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		res, data := s.raw(method, "/v2/", token.Text, "", nil)
		if res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s /v2/ is answered with %s %s", method, res.Status, data)
		}
	}
}
