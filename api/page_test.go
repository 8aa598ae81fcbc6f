package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/wire"
)

// pageIDs asks for a list page by page and gives the length of each page and what was told.
func pageIDs(t *testing.T, s *site, bearer, path string, limit int, id string) (lengths []int, out []string) {
	t.Helper()
	token := ""
	for range 100 {
		res, body := s.raw("GET", fmt.Sprintf("%s?limit=%d%s", path, limit, token), bearer, "", nil)
		var page struct {
			Items    []map[string]any
			Continue string
		}
		if err := json.Unmarshal(body, &page); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: got status %d, %v, want a page: %s", path, res.StatusCode, err, body)
		}
		lengths = append(lengths, len(page.Items))
		for _, item := range page.Items {
			out = append(out, fmt.Sprint(item[id]))
		}
		if page.Continue == "" {
			return lengths, out
		}
		token = "&continue=" + page.Continue
	}
	t.Fatalf("%s: its pages have no end", path)
	return nil, nil
}

func TestPages(t *testing.T) {
	s := newRoot(t)
	admin := s.admin()
	made, err := admin.CreateAccessToken(t.Context(), api.AccessTokenRequest{Name: "raw"})
	must(t, err)
	for _, name := range []string{"delta", "alpha", "golf", "bravo", "foxtrot", "charlie", "echo"} {
		_, err := admin.Apply(t.Context(), []byte(strings.Replace(shop, "shop", name, 1)), api.ApplyOptions{})
		must(t, err)
	}
	whole, err := admin.Instances(t.Context(), api.InstanceFilter{})
	must(t, err)
	var want []string
	for _, i := range whole {
		want = append(want, string(i.ID))
	}
	slices.Sort(want)
	lengths, got := pageIDs(t, s, made.Text, "/v1/instances", 3, "id")
	if !slices.Equal(lengths, []int{3, 3, 1}) || !slices.Equal(got, want) {
		t.Errorf("instances in threes: got pages of %v with %v, want 3, 3, 1 with %v", lengths, got, want)
	}
	if lengths, _ := pageIDs(t, s, made.Text, "/v1/instances", 7, "id"); !slices.Equal(lengths, []int{7}) {
		t.Errorf("seven instances in sevens: got pages of %v, want one, with no token of an empty one", lengths)
	}
	if lengths, got := pageIDs(t, s, made.Text, "/v1/apps", 2, "key"); !slices.Equal(lengths, []int{2, 2, 2, 1}) || !slices.IsSorted(got) {
		t.Errorf("applications in twos: got pages of %v with %v, want 2, 2, 2, 1 in order", lengths, got)
	}
	for _, path := range []string{"/v1/volumes", "/v1/images"} {
		if lengths, _ := pageIDs(t, s, made.Text, path, 2, "name"); !slices.Equal(lengths, []int{0}) {
			t.Errorf("%s of nothing: got pages of %v, want an empty one", path, lengths)
		}
	}
	// Events are told from the newest back, each page in order; what comes meanwhile moves no page.
	_, all := s.raw("GET", "/v1/events?limit=10000", made.Text, "", nil)
	var events api.Page[wire.Event]
	must(t, json.Unmarshal(all, &events))
	if events.Continue != "" || len(events.Items) < 7 {
		t.Fatalf("all events: got %d and the token %q, want 7 at least and none", len(events.Items), events.Continue)
	}
	lengths, back := pageIDs(t, s, made.Text, "/v1/events", 3, "seq")
	if len(back) != len(events.Items) || lengths[0] != 3 || back[2] != fmt.Sprint(events.Items[len(events.Items)-1].Seq) {
		t.Errorf("events in threes: got pages of %v with %v, want all %d, the newest first", lengths, back, len(events.Items))
	}
	slices.Sort(back)
	if got := len(slices.Compact(back)); got != len(events.Items) {
		t.Errorf("events in threes: got %d different ones, want %d", got, len(events.Items))
	}
}

// TestListsAreNeverNull asks for each list of a root and of a cluster that have hardly anything, whole and by pages: clients go over items
// without a look, as the document lets them.
func TestListsAreNeverNull(t *testing.T) {
	for role, s := range map[string]*site{"root": newRoot(t), "cluster": newCluster(t)} {
		made, err := s.admin().CreateAccessToken(t.Context(), api.AccessTokenRequest{Name: "raw"})
		must(t, err)
		_, text := s.raw("GET", "/openapi.json", made.Text, "", nil)
		var doc struct {
			Paths map[string]map[string]struct {
				Responses map[string]struct {
					Content map[string]struct {
						Schema struct {
							Ref string `json:"$ref"`
						}
					}
				}
				Parameters []struct{ Name string }
			}
			Components struct {
				Schemas map[string]struct {
					Properties map[string]struct{ Type any }
				}
			}
		}
		must(t, json.Unmarshal(text, &doc))
		asked := 0
		for path, operations := range doc.Paths {
			_, schema, _ := strings.Cut(operations["get"].Responses["200"].Content["application/json"].Schema.Ref, "schemas/List")
			if schema == "" || strings.Contains(path, "{") {
				continue
			}
			if kind := doc.Components.Schemas["List"+schema].Properties["items"].Type; kind != "array" {
				t.Errorf("%s %s: items of List%s are of type %v in the document, want array", role, path, schema, kind)
			}
			queries := []string{""}
			for _, parameter := range operations["get"].Parameters {
				if parameter.Name == "limit" {
					queries = append(queries, "?limit=1")
				}
			}
			for _, query := range queries {
				res, body := s.raw("GET", path+query, made.Text, "", nil)
				var list map[string]json.RawMessage
				_ = json.Unmarshal(body, &list)
				if res.StatusCode == http.StatusOK && !strings.HasPrefix(string(list["items"]), "[") {
					t.Errorf("%s %s%s: got %s, want a list of items", role, path, query, body)
				}
				if res.StatusCode == http.StatusOK {
					asked++
				}
			}
		}
		if asked < 10 {
			t.Errorf("%s: got %d lists, want 10 at least", role, asked)
		}
	}
	answer, _, err := api.PageBack("/v1/events", 3, "", nil)
	if text, bad := json.Marshal(answer); err != nil || bad != nil || string(text) != "[]" {
		t.Errorf("a journal of nothing: got %s, %v, want []", text, err)
	}
}

// TestPagesWhileTheListChanges ends and adds items between two pages: what stays is told once.
func TestPagesWhileTheListChanges(t *testing.T) {
	items := []string{"a", "b", "c", "d", "e"}
	key := func(s *string) string { return *s }
	got, next, err := api.PageOf("/v1/apps", 2, "", items, key)
	if err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("the first page: got %v, %v, want a and b", got, err)
	}
	changed := []string{"a", "aa", "c", "cc", "d", "e"} // b, after which the next page begins, is gone
	got, next, err = api.PageOf("/v1/apps", 3, next, changed, key)
	if err != nil || !slices.Equal(got, []string{"c", "cc", "d"}) {
		t.Errorf("the second page: got %v, %v, want c, cc and d", got, err)
	}
	if got, next, err = api.PageOf("/v1/apps", 3, next, changed, key); err != nil || !slices.Equal(got, []string{"e"}) || next != "" {
		t.Errorf("the last page: got %v, %q, %v, want e and no token", got, next, err)
	}
	if got, _, err := api.PageOf("/v1/apps", 0, "", []string{"z", "a"}, key); err != nil || !slices.Equal(got, []string{"z", "a"}) {
		t.Errorf("without a limit: got %v, %v, want the list as it is", got, err)
	}
}

// TestPageOfManyItems has a page cost little more than itself: a client that wants all items asks for each of the pages.
func TestPageOfManyItems(t *testing.T) {
	const many, limit = 20000, 100
	items := make([]wire.Instance, many)
	for n := range items {
		items[n].ID = skerry.InstanceID(fmt.Sprintf("web-%05d", n*7919%many))
	}
	var got []wire.Instance
	allocs := testing.AllocsPerRun(1, func() {
		var err error
		got, _, err = api.PageOf("/v1/instances", limit, api.PageToken("/v1/instances", "web-00499"), items,
			func(i *wire.Instance) string { return string(i.ID) })
		must(t, err)
	})
	if len(got) != limit || got[0].ID != "web-00500" || got[limit-1].ID != "web-00599" {
		t.Errorf("a page of many items: got %d, want %d from web-00500 to web-00599", len(got), limit)
	}
	if most := 100.0; allocs > most {
		t.Errorf("a page of %d in %d items: got %.0f allocations, want %.0f at most", limit, many, allocs, most)
	}
}

func TestBadPageTokens(t *testing.T) {
	s := newRoot(t)
	made, err := s.admin().CreateAccessToken(t.Context(), api.AccessTokenRequest{Name: "raw"})
	must(t, err)
	for name, c := range map[string]struct{ path, token, says string }{
		"no base64":       {"/v1/instances", "%21", "changed or cut off"},
		"no list":         {"/v1/instances", "YWJj", "changed or cut off"},
		"another list's":  {"/v1/instances", api.PageToken("/v1/apps", "default/shop"), "of another list"},
		"too long":        {"/v1/volumes", strings.Repeat("A", 3000), "longer than 2048 bytes"},
		"without a place": {"/v1/images", api.PageToken("/v1/images", ""), "changed or cut off"},
		"no number":       {"/v1/events", api.PageToken("/v1/events", "first"), "changed or cut off"},
	} {
		res, body := s.raw("GET", c.path+"?limit=2&continue="+c.token, made.Text, "", nil)
		var p api.Problem
		if err := json.Unmarshal(body, &p); err != nil || res.StatusCode != http.StatusBadRequest || p.Code != skerry.CodeInvalid ||
			!strings.Contains(p.Detail, c.says) {
			t.Errorf("%s: got status %d with %s, want 400 with %q", name, res.StatusCode, body, c.says)
		}
	}
}

// TestClientAndPages has a client ask a server that has many items, one of an earlier version, and one that goes round in circles.
func TestClientAndPages(t *testing.T) {
	var asked []string
	answers := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		w.Header().Set("Content-Type", "application/json")
		if answers[r.URL.RawQuery] == "" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"status":422,"code":"invalid","detail":"the request is not valid",
"problems":[{"path":"query.limit","message":"unknown field"}]}`)
			return
		}
		fmt.Fprint(w, answers[r.URL.RawQuery])
	}))
	t.Cleanup(server.Close)
	c, err := api.NewClient(api.ClientOptions{Server: server.URL, Bearer: "x"})
	must(t, err)
	t.Cleanup(c.Close)
	ids := func(want string, says string) {
		t.Helper()
		asked = nil
		list, err := c.Instances(context.Background(), api.InstanceFilter{})
		var got []string
		for _, i := range list {
			got = append(got, string(i.ID))
		}
		if strings.Join(got, " ") != want || (err != nil) != (says != "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, %v after %q; want %q and an error with %q", got, err, asked, want, says)
		}
	}
	answers["limit=1000"] = `{"items":[{"id":"a"},{"id":"b"}],"continue":"x"}`
	answers["continue=x&limit=1000"] = `{"items":[{"id":"c"}]}`
	ids("a b c", "")
	answers["continue=x&limit=1000"] = `{"items":[{"id":"c"}],"continue":"x"}`
	ids("", "again and again")
	clear(answers)
	answers[""] = `{"items":[{"id":"a"}]}`
	ids("a", "")
	clear(answers)
	ids("", "not valid")
}

func FuzzPageToken(f *testing.F) {
	f.Add("/v1/instances", api.PageToken("/v1/instances", "web-r1a2b3c4d"))
	f.Add("/v1/apps", api.PageToken("/v1/instances", "web-r1a2b3c4d"))
	f.Add("/v1/events", api.PageToken("/v1/events", "18446744073709551615"))
	f.Add("/v1/events", "YWJ\nj")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, list, token string) {
		key, err := api.ReadPageToken(list, token)
		if err != nil {
			if e := skerry.AsError(err); e.Code != skerry.CodeInvalid || e.Hint == "" {
				t.Fatalf("a bad token: got %v with the hint %q, want an invalid one with a hint", err, e.Hint)
			}
			return
		}
		if got := api.PageToken(list, key); got != token || key == "" {
			t.Fatalf("the token %q of %q is of the key %q, of which the token is %q", token, list, key, got)
		}
	})
}
