package api_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/parents"
)

// browser is a client that keeps cookies as they are told.
type browser struct {
	t      *testing.T
	http   *http.Client
	url    string
	cookie *http.Cookie
	access string
	site   string // where the page is that sends requests, as browsers say it
}

func (b *browser) post(path, body string, sendCookie bool) (int, map[string]any) {
	b.t.Helper()
	r, _ := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.url+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if b.cookie != nil && sendCookie {
		r.AddCookie(&http.Cookie{Name: b.cookie.Name, Value: b.cookie.Value})
	}
	if b.access != "" {
		r.Header.Set("Authorization", "Bearer "+b.access)
	}
	if b.site != "" {
		r.Header.Set("Sec-Fetch-Site", b.site)
	}
	res, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	for _, k := range res.Cookies() {
		b.cookie = k
	}
	data, _ := io.ReadAll(res.Body)
	var out map[string]any
	json.Unmarshal(data, &out)
	if a, ok := out["access"].(string); ok {
		b.access = a
	}
	return res.StatusCode, out
}

func TestBrowserSession(t *testing.T) {
	s := newRoot(t)
	b := &browser{t: t, url: s.URL, http: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}}
	t.Cleanup(b.http.CloseIdleConnections)
	if status, out := b.post("/v1/auth/refresh", "{}", false); status != http.StatusUnprocessableEntity && status != http.StatusBadRequest {
		t.Fatalf("without a token: %d %v", status, out)
	}
	if status, out := b.post("/v1/auth/login", `{"user":"admin","password":"`+s.password()+`"}`, false); status != 200 || out["refresh"] == nil || b.cookie != nil {
		t.Fatalf("a login without a cookie: %d, cookie %v", status, b.cookie)
	}
	status, out := b.post("/v1/auth/login", `{"user":"admin","password":"`+s.password()+`","cookie":true}`, false)
	if status != 200 || out["refresh"] != nil || b.cookie == nil {
		t.Fatalf("a login with a cookie: %d %v, cookie %v", status, out, b.cookie)
	}
	if k := b.cookie; !k.HttpOnly || !k.Secure || k.SameSite != http.SameSiteStrictMode || k.Path != "/v1/auth" {
		t.Fatalf("the cookie is %s", k)
	}
	first := *b.cookie
	if status, out = b.post("/v1/auth/refresh", "{}", true); status != 200 || out["refresh"] != nil || b.cookie.Value == first.Value {
		t.Fatalf("refresh: %d %v", status, out)
	}
	// A page at another port of the same host, whose requests have the cookies of this one.
	second := *b.cookie
	for _, site := range []string{"same-site", "cross-site"} {
		b.site = site
		if status, out = b.post("/v1/auth/refresh", "{}", true); status != 403 || b.cookie.Value != second.Value {
			t.Fatalf("refresh by a page of another origin (%s): %d %v", site, status, out)
		}
		if status, out = b.post("/v1/auth/login", `{"user":"admin","password":"`+s.password()+`","cookie":true}`, true); status != 403 || b.cookie.Value != second.Value {
			t.Fatalf("login by a page of another origin (%s): %d %v", site, status, out)
		}
	}
	b.site = "same-origin"
	if status, out = b.post("/v1/auth/refresh", "{}", true); status != 200 {
		t.Fatalf("refresh by its own page: %d %v", status, out)
	}
	if status, _ = b.post("/v1/auth/logout", "", true); status != 204 || b.cookie.MaxAge >= 0 || b.cookie.Value != "" {
		t.Fatalf("logout: %d, cookie %v", status, b.cookie)
	}
	b.cookie = &first
	if status, _ = b.post("/v1/auth/refresh", "{}", true); status != 401 {
		t.Fatalf("after the logout the cookie still does: %d", status)
	}
}

func TestDashboardIsServed(t *testing.T) {
	s := newRoot(t)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	t.Cleanup(c.CloseIdleConnections)
	res, err := c.Get(s.URL + "/") // follows the redirection
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	policy := res.Header.Get("Content-Security-Policy")
	script := ""
	for _, d := range strings.Split(policy, ";") {
		if d = strings.TrimSpace(d); strings.HasPrefix(d, "script-src") {
			script = d
		}
	}
	if res.StatusCode != 200 || res.Request.URL.Path != "/ui/" || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") || script != "script-src 'self'" {
		t.Fatalf("%s %d %v", res.Request.URL, res.StatusCode, res.Header)
	}
	for path, want := range map[string]int{"/ui/apps/default/shop": 200, "/ui/assets/none.js": 404, "/ui/../v1/apps": 401} {
		r, _ := http.NewRequest(http.MethodGet, s.URL+path, nil)
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		// A program that was built without the dashboard says so at every path.
		if res.StatusCode != want && !(want == 404 && res.StatusCode == 200) {
			t.Errorf("%s: %d instead of %d", path, res.StatusCode, want)
		}
	}
}

// TestCookiesBehindAProxy: a server without TLS whose browsers come by HTTPS, as the file of --oidc says, gives cookies for HTTPS alone.
func TestCookiesBehindAProxy(t *testing.T) {
	for _, page := range []string{"https://root.example.com", ""} {
		s := newRootServing(t, parents.APIConfig{Listen: api.Listen{Addr: "127.0.0.1:0", Plain: true}, OIDC: &auth.OIDCConfig{
			Issuer: "https://id.example.com", ClientID: "skerry", URL: page, Groups: map[string][]string{"boats": {"viewer:boats"}}}})
		b := &browser{t: t, url: s.URL, http: http.DefaultClient}
		status, _ := b.post("/v1/auth/login", `{"user":"admin","cookie":true,"password":"`+s.password()+`"}`, false)
		if status != http.StatusOK || b.cookie.Secure != (page != "") {
			t.Errorf("%q: %d, session %v", page, status, b.cookie)
		}
		res, err := http.Get(s.URL + auth.OIDCCallback + "?error=x")
		must(t, err)
		res.Body.Close()
		if list := res.Cookies(); len(list) != 1 || list[0].Secure != (page != "") {
			t.Errorf("%q: of a login %v", page, list)
		}
	}
}
