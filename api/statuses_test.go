package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/wire"
)

// described is what the OpenAPI document says of an operation.
type described struct {
	OperationID string
	RequestBody *struct{ Content map[string]any }
	Responses   map[string]any
}

// TestStatuses asks every operation in ways that have each status which follows from its row, and compares with what the OpenAPI document
// lists, in both directions. What single operations have beside, all tests of this package hold against the document.
func TestStatuses(t *testing.T) {
	t.Run("root", func(t *testing.T) { statuses(t, newRoot(t), wire.TierRoot) })
	t.Run("cluster", func(t *testing.T) { statuses(t, newCluster(t), wire.TierCluster) })
}

func statuses(t *testing.T, s *site, tier wire.Tier) {
	var doc struct {
		Paths map[string]map[string]described
	}
	must(t, json.Unmarshal(s.API.Handler().OpenAPI(), &doc))
	admin := s.admin()
	made, err := admin.CreateAccessToken(t.Context(), api.AccessTokenRequest{Name: "raw"})
	must(t, err)
	_, err = admin.CreateUser(t.Context(), "nobody", "a long password", nil)
	must(t, err)
	nobody, err := s.client("", "").Login(t.Context(), "nobody", "a long password")
	must(t, err)
	ofOne := []auth.Grant{{Role: auth.RoleAdmin, Org: "default", Cluster: auth.Any}}
	_, err = admin.CreateUser(t.Context(), "stranger", "a long password", ofOne)
	must(t, err)
	stranger, err := s.client("", "").Login(t.Context(), "stranger", "a long password")
	must(t, err)
	_, err = admin.Apply(t.Context(), []byte(shop), api.ApplyOptions{})
	must(t, err)
	instances, err := admin.Instances(t.Context(), api.InstanceFilter{})
	if err != nil || len(instances) == 0 {
		t.Fatalf("instances: got %+v, %v; want one", instances, err)
	}
	for _, o := range s.API.Handler().Operations() {
		if o.ID == "registry" || o.ID == "logout" {
			continue // one speaks another protocol, and the other ends the login
		}
		op := doc.Paths[o.Path][strings.ToLower(o.Method)]
		lists := func(status int) bool { return op.Responses[strconv.Itoa(status)] != nil }
		path := pathParam.ReplaceAllString(strings.Replace(o.Path, "{replica}", "0", 1), "nothing")
		there := strings.Replace(o.Path, "/v1/instances/{id}", "/v1/instances/"+string(instances[0].ID), 1)
		there = pathParam.ReplaceAllString(there, "nothing")
		ask := func(query, bearer, kind, body string) int {
			res, _ := s.raw(o.Method, there+query, bearer, kind, strings.NewReader(body))
			return res.StatusCode
		}
		compare := func(status, got int, how string) {
			t.Helper()
			if (got == status) != lists(status) {
				t.Errorf("%s %s: got status %d; that it may be %d is described: %v", o.ID, how, got, status, lists(status))
			}
		}
		if !lists(http.StatusTooManyRequests) || !lists(http.StatusInternalServerError) {
			t.Errorf("%s: 429 and 500 are not described, which every operation may have", o.ID)
		}
		wrongTier := o.At != "" && o.At != tier
		if wrongTier {
			compare(http.StatusMisdirectedRequest, ask("", made.Text, "", ""), "at the wrong tier")
			continue
		}
		if o.Scope != auth.ScopePublic {
			compare(http.StatusUnauthorized, ask("", "", "", ""), "without a login")
		}
		if o.Object != api.Nothing {
			compare(http.StatusForbidden, ask("", nobody.Access, "", ""), "as a user without a grant")
		}
		if strings.HasPrefix(o.Path, "/v1/") && o.ID != "oidc-callback" { // which is not asked in our words
			compare(http.StatusUnprocessableEntity, ask("?nonsense=1", made.Text, "application/json", "{}"), "with an unknown parameter")
		}
		if op.RequestBody != nil && o.ID != "import-snapshot" { // which reads a stream of any length
			kinds := slices.Collect(func(yield func(string) bool) {
				for k := range op.RequestBody.Content {
					if !yield(k) {
						return
					}
				}
			})
			slices.Sort(kinds)
			compare(http.StatusBadRequest, ask("", made.Text, kinds[0], ""), "without a body")
			compare(http.StatusUnsupportedMediaType, ask("", made.Text, "image/png", "{}"), "with a body of another type")
			compare(http.StatusRequestEntityTooLarge, ask("", made.Text, kinds[0], strings.Repeat(" ", 5<<20)), "with a large body")
		} else if got := []bool{lists(408), lists(413), lists(415)}; op.RequestBody == nil && o.At != wire.TierRoot &&
			o.ID != "import-snapshot" && slices.Contains(got, true) {
			t.Errorf("%s has no body; 408, 413, 415 are described: got %v, want none", o.ID, got)
		}
		if op.RequestBody == nil {
			compare(http.StatusBadRequest, ask("?continue=x", made.Text, "", ""), "with a bad token")
		}
		if query := map[string]string{"exec": "?command=sh", "port-forward": "?port=80"}[o.ID]; query != "" {
			res, body := s.raw(o.Method, there+query, made.Text, "", nil)
			kind := res.Header.Get("Content-Type")
			if res.StatusCode != http.StatusUnprocessableEntity || !lists(res.StatusCode) || kind != "application/problem+json" {
				t.Errorf("%s without an upgraded connection: got %s %q, want 422 in the API's own form", o.ID, res.Status, body)
			}
		}
		if strings.Contains(o.Path, "{") && o.ID != "upgrade-worker" { // which looks for its image first
			there = path
			got := ask(queryOf(o.ID), made.Text, "application/json", bodyOf(o.ID))
			if got == http.StatusOK { // an admin of everything is told that nothing is in it
				got = ask(queryOf(o.ID), stranger.Access, "application/json", bodyOf(o.ID))
			}
			compare(http.StatusNotFound, got, "of what is not there")
		}
	}
}

// bodyOf and queryOf give what an operation takes, about something that is not there.
func bodyOf(id string) string {
	switch id {
	case "put-secret":
		return `{"data":{"a":"YQ=="}}`
	case "set-quota", "drain-worker", "drain-cluster", "drain-cluster-worker", "change-user",
		"restore-snapshot", "label-cluster":
		return `{}`
	case "put-certificate":
		return `{"certificate":"x","key":"x"}`
	case "scale-service":
		return `{"replicas":1}`
	case "change-rollout", "change-upgrade":
		return `{"action":"pause"}`
	case "migrate-instance":
		return `{}`
	case "hold-worker", "hold-cluster", "hold-cluster-worker":
		return `{"reason":"x"}`
	case "upgrade-cluster-worker":
		return `{"image":"a/b:1"}`
	}
	return ""
}

func queryOf(id string) string {
	switch id {
	case "exec":
		return "?command=x"
	case "port-forward":
		return "?port=1"
	}
	return ""
}
