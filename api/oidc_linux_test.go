package api_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/internal/testenv"
)

// surfer is a person's browser.
type surfer struct {
	*http.Client
	t *testing.T
}

func newSurfer(t *testing.T) *surfer {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(tr.CloseIdleConnections)
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &surfer{&http.Client{Jar: jar, Transport: tr, CheckRedirect: stay}, t}
}

// visit follows redirects of the provider until a page, or until the address begins with stop.
func (s *surfer) visit(req *http.Request, stop string) (page, at string) {
	s.t.Helper()
	for range 10 {
		res, err := s.Do(req)
		if err != nil {
			s.t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		to, err := res.Location()
		if err != nil {
			return string(text), req.URL.String()
		}
		if strings.HasPrefix(to.String(), stop) {
			return "", to.String()
		}
		if req, err = http.NewRequest("GET", to.String(), nil); err != nil {
			s.t.Fatal(err)
		}
	}
	s.t.Fatal("there is no end of redirects")
	return "", ""
}

var requestID = regexp.MustCompile(`name="id" value="([^"]+)"`)

// login opens the provider's page, logs in, and gives where the provider sends the browser.
func (s *surfer) login(issuer, page, user, password, stop string) string {
	s.t.Helper()
	req, err := http.NewRequest("GET", page, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	text, _ := s.visit(req, stop)
	id := requestID.FindStringSubmatch(text)
	if id == nil {
		s.t.Fatalf("no page of a login: %s", text)
	}
	form := url.Values{"id": {id[1]}, "username": {user}, "password": {password}}
	if req, err = http.NewRequest("POST", issuer+"/login/username", strings.NewReader(form.Encode())); err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	text, at := s.visit(req, stop)
	if !strings.HasPrefix(at, stop) {
		s.t.Fatalf("the provider shows %s: %s", at, text)
	}
	return at
}

// TestLoginAtProvider logs in at a real identity provider, as a command does and as a browser does.
func TestLoginAtProvider(t *testing.T) {
	addr := testenv.FreeAddr(t)
	server, local := "https://"+addr, "http://127.0.0.1:4711/callback"
	issuer := testenv.NewOIDC(t, "..", "http://127.0.0.1/callback", server+auth.OIDCCallback)
	s := newRootServing(t, parents.APIConfig{Limits: api.Limits{UserRate: -1, AddressRate: -1}, Listen: api.Listen{Addr: addr},
		OIDC: &auth.OIDCConfig{Issuer: issuer, ClientID: "skerry", URL: server, Groups: map[string][]string{"boats": {"developer:boats"}}}})
	ctx, c := t.Context(), s.client("", "")
	if v, err := c.Version(ctx); err != nil || !v.OIDC {
		t.Errorf("%+v, %v", v, err)
	}
	wantRefusal := func(err error, code skerry.Code, field string) {
		t.Helper()
		if e := skerry.AsError(err); e == nil || e.Code != code || !strings.Contains(fmt.Sprint(e.Message, e.Problems), field) {
			t.Errorf("got %v, want %s and %s", err, code, field)
		}
	}
	command := func(user, password string) (state, code, bind string) {
		t.Helper()
		begun, err := c.BeginOIDC(ctx, local)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(newSurfer(t).login(issuer, begun.URL, user, password, local))
		if err != nil {
			t.Fatal(err)
		}
		return u.Query().Get("state"), u.Query().Get("code"), begun.Bind
	}
	state, code, bind := command("ada", "of the sea")
	_, err := c.EndOIDC(ctx, state, code, "of somebody else")
	wantRefusal(err, skerry.CodeUnauthorized, "state")
	if tk, err := c.EndOIDC(ctx, state, code, bind); err != nil || tk.User != "oidc.ada" {
		t.Fatalf("%+v, %v", tk, err)
	}
	if who, err := c.Whoami(ctx); err != nil || len(who.Grants) != 1 || who.Grants[0].Org != "boats" {
		t.Errorf("%+v, %v", who, err)
	}
	_, err = c.EndOIDC(ctx, state, code, bind)
	wantRefusal(err, skerry.CodeUnauthorized, "state")
	kept, err := s.admin().Audit(ctx, "", "end-oidc", 0)
	must(t, err)
	if !slices.ContainsFunc(kept, func(r auth.AuditRecord) bool { return r.Object == "oidc.ada" && r.Detail == "[developer:boats:*]" }) {
		t.Errorf("the audit does not show what the groups granted: %+v", kept)
	}
	state, code, bind = command("bob", "of the land")
	_, err = c.EndOIDC(ctx, state, code, bind)
	wantRefusal(err, skerry.CodeForbidden, "groups")
	_, err = c.BeginOIDC(ctx, "http://example.com:80/callback")
	wantRefusal(err, skerry.CodeInvalid, "redirect")

	// A browser comes back to the server with its cookies, and has a session then; another one has none.
	b := newSurfer(t)
	post := func(path, body string, header ...string) *http.Response {
		t.Helper()
		req, err := http.NewRequest("POST", server+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := b.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	if res := post("/v1/auth/oidc", "{}", "Sec-Fetch-Site", "cross-site"); res.StatusCode != http.StatusForbidden {
		t.Errorf("a page of another origin begins a login: %s", res.Status)
	}
	res := post("/v1/auth/oidc", "{}")
	text, _ := io.ReadAll(res.Body)
	page := regexp.MustCompile(`"url":"([^"]+)"`).FindSubmatch(text)
	if page == nil || strings.Contains(string(text), "bind") {
		t.Fatalf("%s: %s", res.Status, text)
	}
	back := b.login(issuer, strings.ReplaceAll(string(page[1]), `\u0026`, "&"), "ada", "of the sea", server)
	open := func(b *surfer, at string) *http.Response {
		t.Helper()
		res, err := b.Get(at)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res
	}
	if res := open(newSurfer(t), back); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("another browser: %s", res.Status)
	}
	if res := open(b, back); res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != "/ui/" {
		t.Errorf("the browser that began: %s to %s", res.Status, res.Header.Get("Location"))
	}
	if res := open(b, back); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("the same again: %s", res.Status)
	}
	if res := open(b, server+auth.OIDCCallback+"?error=access_denied"); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("an error of the provider: %s", res.Status)
	}
	if res := post("/v1/auth/refresh", "{}"); res.StatusCode != http.StatusOK {
		t.Errorf("the browser has no session: %s", res.Status)
	}
}

// TestNoProvider: where none is set up, that is said.
func TestNoProvider(t *testing.T) {
	s := newCluster(t)
	_, err := s.client("", "").BeginOIDC(t.Context(), "")
	if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeUnsupported {
		t.Errorf("got %v", err)
	}
}
