package api_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/parents"
)

func orgNamed(n string) apps.Org           { return apps.Org{Name: n} }
func spaceOf(n, org string) apps.Namespace { return apps.Namespace{Name: n, Org: org} }
func (s *site) http() *http.Client {
	t := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	s.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: 30 * time.Second}
}

// endless gives bytes for ever and counts them.
type endless struct{ n atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.n.Add(int64(len(p)))
	return len(p), nil
}

func TestProblemsOfBadRequests(t *testing.T) {
	s := newRoot(t)
	admin := s.admin()
	made, err := admin.CreateAccessToken(t.Context(), api.AccessTokenRequest{Name: "raw"})
	must(t, err)
	yaml, js := "application/yaml", "application/json"
	for name, c := range map[string]struct {
		method, path, kind, body string
		status                   int
		says, hint               string
	}{
		"nothing there":        {"GET", "/v1/nothing", "", "", 404, "nothing at", "openapi"},
		"wrong method":         {"PATCH", "/v1/apps", "", "", 405, "not allowed", "GET, POST"},
		"empty manifest":       {"POST", "/v1/apps", yaml, "# nothing\n", 422, "", ""},
		"no body":              {"POST", "/v1/apps", yaml, "", 400, "body is required", ""},
		"broken UTF-8":         {"POST", "/v1/apps", yaml, "metadata: {name: \"\xff\"}", 422, "UTF-8", "UTF-8"},
		"broken UTF-8 in JSON": {"POST", "/v1/apps", js, "{\"kind\":\"\xff\"}", 422, "UTF-8", "UTF-8"},
		"wrong content type":   {"POST", "/v1/apps", "text/html", "<html>", 415, "text/html", "application/yaml"},
		"bad YAML":             {"POST", "/v1/apps", yaml, "a: [", 422, "not valid YAML", ""},
		"tabs":                 {"POST", "/v1/apps", yaml, "a:\n\tb: 1", 422, "not valid YAML", ""},
		"bad JSON":             {"POST", "/v1/apps", js, "{", 422, "manifest", ""},
		"key twice":            {"POST", "/v1/apps", yaml, "kind: Application\nkind: Application\n", 422, "already set", "twice"},
		"key twice in JSON":    {"POST", "/v1/apps", js, `{"kind":"Application","metadata":{"name":"a","name":"b"}}`, 422, "twice", "keep one"},
		"two documents":        {"POST", "/v1/apps", yaml, shop + "---\n" + shop, 422, "more than one document", "apply -f"},
		"bomb": {"POST", "/v1/apps", yaml, "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n",
			413, "aliases", ""},
		"deep nesting":       {"POST", "/v1/apps", js, strings.Repeat(`{"spec":`, 100_000) + "1" + strings.Repeat("}", 100_000), 422, "", ""},
		"deep YAML":          {"POST", "/v1/apps", yaml, strings.Repeat("[", 50_000), 422, "not valid YAML", ""},
		"wrong field":        {"POST", "/v1/apps", yaml, strings.Replace(shop, "command:", "comand:", 1), 422, "not valid", ""},
		"unknown query":      {"GET", "/v1/apps?namespaces=x", "", "", 422, "not valid", ""},
		"unknown body field": {"POST", "/v1/users", js, `{"name":"a","password":"b","grant":[]}`, 422, "not valid", ""},
		"wrong type":         {"PUT", "/v1/apps/default/shop/services/web/scale", js, `{"replicas":"many"}`, 422, "not valid", ""},
		"negative":           {"PUT", "/v1/apps/default/shop/services/web/scale", js, `{"replicas":-1}`, 422, "not valid", ""},
		"negative quota":     {"PUT", "/v1/orgs/default/quota", js, `{"memory":"-1Gi"}`, 422, "", ""},
		"form":               {"POST", "/v1/users", "application/x-www-form-urlencoded", "name=a", 415, "", ""},
		"bad limit":          {"GET", "/v1/events?limit=all", "", "", 422, "not valid", ""},
		"bad kinds":          {"GET", "/v1/watch?kinds=app,pods", "", "", 422, "not valid", ""},
		"no such app":        {"GET", "/v1/apps/default/none", "", "", 404, "no application default/none", "get apps"},
		"no such instance":   {"GET", "/v1/instances/x/logs", "", "", 404, "no instance", "get instances"},
		"traversal":          {"GET", "/v1/instances/..%2f..%2fworkers/logs", "", "", 404, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			res, data := s.raw(c.method, c.path, made.Text, c.kind, strings.NewReader(c.body))
			var p api.Problem
			if err := json.Unmarshal(data, &p); err != nil || res.Header.Get("Content-Type") != "application/problem+json" {
				t.Fatalf("%s %s: %.300s", res.Status, res.Header.Get("Content-Type"), data)
			}
			if res.StatusCode != c.status || p.Status != c.status || p.Type != "urn:skerry:error:"+string(p.Code) || p.Title == "" || p.Detail == "" || p.Request == "" ||
				p.Request != res.Header.Get("X-Request-Id") {
				t.Errorf("%d %.600s", res.StatusCode, data)
			}
			if !strings.Contains(p.Detail, c.says) || !strings.Contains(p.Hint, c.hint) {
				t.Errorf("says %q, hint %q", p.Detail, p.Hint)
			}
			if len(data) > 20_000 {
				t.Errorf("an answer of %d bytes", len(data))
			}
		})
	}
	for path, field := range map[string]string{"/v1/apps?namespaces=x": `"namespace"`, "/v1/events?apps=x": `"app"`} {
		_, data := s.raw("GET", path, made.Text, "", nil)
		if !strings.Contains(string(data), `did you mean \`+field[:len(field)-1]+`\"?`) {
			t.Errorf("%s: %s", path, data)
		}
	}
	_, data := s.raw("POST", "/v1/apps", made.Text, yaml, strings.NewReader(strings.Replace(shop, "command:", "comand:", 1)))
	if !strings.Contains(string(data), `spec.services[0].comand`) || !strings.Contains(string(data), `did you mean \"command\"?`) {
		t.Errorf("%s", data)
	}
	if list, err := admin.Apps(t.Context(), ""); err != nil || len(list) != 0 {
		t.Errorf("something was half-written: %+v %v", list, err)
	}
}

func TestLargeBodies(t *testing.T) {
	s := newRoot(t)
	made, err := s.admin().CreateAccessToken(t.Context(), api.AccessTokenRequest{Name: "raw"})
	must(t, err)
	for _, path := range []string{"/v1/apps", "/v1/auth/login", "/v1/nothing"} {
		for _, announced := range []bool{true, false} {
			body := &endless{}
			r, err := http.NewRequest("POST", s.URL+path, io.LimitReader(body, 100<<20))
			must(t, err)
			if announced {
				r.ContentLength = 100 << 20
			}
			r.Header.Set("Authorization", "Bearer "+made.Text)
			r.Header.Set("Content-Type", "application/yaml")
			res, err := s.http().Do(r)
			if err != nil {
				var op *net.OpError
				if !errors.As(err, &op) { // the server may have hung up while the body was still coming
					t.Errorf("%s: %v", path, err)
				}
			} else {
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if want := http.StatusRequestEntityTooLarge; res.StatusCode != want && !(path == "/v1/nothing" && res.StatusCode == 404) {
					t.Errorf("%s announced=%v: %s", path, announced, res.Status)
				}
			}
			if n := body.n.Load(); n > 16<<20 {
				t.Errorf("%s: %d bytes were read", path, n)
			}
		}
	}
}

func TestOversizedHeader(t *testing.T) {
	s := newRoot(t)
	r, err := http.NewRequest("GET", s.URL+"/v1/apps", nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+strings.Repeat("x", 128<<10))
	res, err := s.http().Do(r)
	if err == nil {
		res.Body.Close()
		if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Error(res.Status)
		}
	}
	r.Header.Set("Authorization", "Bearer "+strings.Repeat("x", 32<<10))
	res, err = s.http().Do(r)
	must(t, err)
	res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized || res.Header.Get("WWW-Authenticate") == "" {
		t.Error(res.Status)
	}
}

// A page of somebody else's is told that it may not, before its token is looked at.
func TestWebSocketOfAnotherOrigin(t *testing.T) {
	s := newRoot(t)
	own, _ := url.Parse(s.URL)
	for origin, want := range map[string]int{"https://evil.example": 403, "null": 403, "https://" + own.Hostname() + ":1": 403, s.URL: 401, "": 401} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/v1/instances/web-rx/exec?command=sh", nil)
		for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13", "Sec-Websocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-Websocket-Protocol": "skerry-exec.1, bearer.x"} {
			r.Header.Set(k, v)
		}
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		res, err := s.http().Do(r)
		must(t, err)
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%q: %s, want %d", origin, res.Status, want)
		}
	}
}

func TestSecurityHeadersAndPins(t *testing.T) {
	s := newRoot(t)
	res, _ := s.raw("GET", "/healthz", "", "", nil)
	for _, h := range []string{"X-Content-Type-Options", "X-Frame-Options", "Content-Security-Policy", "X-Request-Id", "Strict-Transport-Security"} {
		if res.Header.Get(h) == "" {
			t.Errorf("no %s", h)
		}
	}
	pin, err := api.FetchPin(t.Context(), s.URL)
	must(t, err)
	if pin != s.Root.Authority().CAPin() {
		t.Errorf("pin %s", pin)
	}
	for name, o := range map[string]api.ClientOptions{
		"another pin": {Server: s.URL, Pin: "sha256:" + strings.Repeat("0", 64)}, "no pin": {Server: s.URL},
	} {
		c, err := api.NewClient(o)
		must(t, err)
		if _, err = c.Version(t.Context()); err == nil || skerry.AsError(err).Hint == "" || skerry.AsError(err).Code != skerry.CodeUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	u, _ := url.Parse(s.URL)
	c, err := api.NewClient(api.ClientOptions{Server: "https://elsewhere.example:" + u.Port(), Pin: pin, Dial: (&net.Dialer{}).DialContext})
	must(t, err)
	if _, err := c.Version(t.Context()); err == nil {
		t.Error("a host that the certificate does not name was accepted")
	}
	if _, err := api.NewClient(api.ClientOptions{Server: "http://192.0.2.1"}); err == nil {
		t.Error("plain HTTP to another machine")
	}
	_, err = s.client("", "").Apps(t.Context(), "")
	if skerry.AsError(err).Code != skerry.CodeUnauthorized || !strings.Contains(skerry.AsError(err).Hint, "skerry login") {
		t.Error(err)
	}
}

func TestPlainHTTPNeedsLoopback(t *testing.T) {
	s := newRoot(t)
	for addr, ok := range map[string]bool{"127.0.0.1:0": true, "0.0.0.0:0": false} {
		srv, err := api.NewServer(s.API.Handler(), api.Listen{Addr: addr, Plain: true})
		must(t, err)
		if err := srv.Open(); (err == nil) != ok {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

func TestStreamsOfOneUserAreLimited(t *testing.T) {
	s := newRootWith(t, api.Limits{Streams: 2, UserRate: -1, AddressRate: -1})
	c := s.admin()
	hold := func() (stop func()) {
		synced := make(chan struct{})
		done := make(chan struct{})
		ctx, cancel := contextWithCancel(t)
		go func() {
			defer close(done)
			c.Watch(ctx, api.WatchFilter{}, func(m api.WatchMessage) error {
				if m.Type == api.WatchSynced {
					close(synced)
				}
				return nil
			})
		}()
		<-synced
		return func() { cancel(); <-done }
	}
	stop1, stop2 := hold(), hold()
	made, err := c.CreateAccessToken(t.Context(), api.AccessTokenRequest{Name: "raw"})
	must(t, err)
	if res, data := s.raw("GET", "/v1/watch", made.Text, "", nil); res.StatusCode != 429 || res.Header.Get("Retry-After") == "" {
		t.Errorf("%s %s", res.Status, data)
	}
	stop1()
	stop2()
}

func TestRatesAreLimited(t *testing.T) {
	s := newRootWith(t, api.Limits{UserRate: 0.001, AddressRate: -1})
	tk, err := s.API.People.Login(t.Context(), auth.Credentials{User: auth.AdminUser, Password: s.password()})
	must(t, err)
	if res, _ := s.raw("GET", "/v1/apps", tk.Access, "", nil); res.StatusCode != 200 {
		t.Error(res.Status)
	}
	if res, data := s.raw("GET", "/v1/apps", tk.Access, "", nil); res.StatusCode != 429 || !bytes.Contains(data, []byte("rate-limited")) {
		t.Errorf("%s %s", res.Status, data)
	}
}

func FuzzDecodeManifest(f *testing.F) {
	f.Add("application/yaml", []byte(shop))
	f.Add("application/json", []byte(`{"kind":"Application","kind":"x"}`))
	f.Add("application/json", []byte(`[{"a":[{}]},"x"]`))
	f.Add("text/yaml; charset=utf-8", []byte("a: &a [*a]\n"))
	f.Add("", []byte("---\n---\na: 1\n---\nb: 2\n"))
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		app, err := api.DecodeManifest(kind, data)
		if (app == nil) == (err == nil) {
			t.Fatalf("%v %v", app, err)
		}
		if err == nil {
			if err := app.Validate(); err == nil {
				app.SetDefaults()
			}
		}
	})
}

func FuzzWatchQuery(f *testing.F) {
	f.Add("default", "shop", "app,instance", "text/event-stream")
	f.Add("", "", ",", "")
	f.Fuzz(func(t *testing.T, ns, app, kinds, accept string) {
		if err := api.ParseWatch(ns, app, kinds, accept); err != nil && skerry.AsError(err).Code != skerry.CodeInvalid {
			t.Fatal(err)
		}
	})
}

// slowBackend takes its time to carry something out.
type slowBackend struct{ *parents.Root }

func (b slowBackend) Do(ctx context.Context, msg any) (any, error) {
	select {
	case <-time.After(200 * time.Millisecond):
		return b.Root.Do(ctx, msg)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestSlowBodiesAndSlowAnswers shows that the time for a body bounds the body and not what follows.
func TestSlowBodiesAndSlowAnswers(t *testing.T) {
	s := newRoot(t)
	h, err := api.NewHandler(api.Options{Backend: slowBackend{s.Root}, People: s.API.People, BodyWait: 50 * time.Millisecond})
	must(t, err)
	srv, err := api.NewServer(h, api.Listen{Addr: "127.0.0.1:0", Plain: true})
	must(t, err)
	must(t, srv.Open())
	background(t, srv.Run)
	c, err := api.NewClient(api.ClientOptions{Server: srv.URL()})
	must(t, err)
	t.Cleanup(c.Close)
	tk, err := c.Login(t.Context(), auth.AdminUser, s.password())
	must(t, err)
	if _, err := c.Apply(t.Context(), []byte(shop), api.ApplyOptions{Register: true}); err != nil {
		t.Errorf("a slow answer: %v", err)
	}
	conn, err := net.Dial("tcp", srv.Addr().String())
	must(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/apps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/yaml\r\nContent-Length: 1000\r\n\r\nkind:", tk.Access)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer res.Body.Close()
	if data, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusRequestTimeout || !bytes.Contains(data, []byte("did not arrive in time")) {
		t.Errorf("a slow body: %s %s", res.Status, data)
	}
}

// TestBodiesThatNeverCome shows that who announces a body and does not send it holds no connection for longer than a body
// may take, whatever the request is for.
func TestBodiesThatNeverCome(t *testing.T) {
	s := newRoot(t)
	h, err := api.NewHandler(api.Options{Backend: s.Root, People: s.API.People, BodyWait: 50 * time.Millisecond})
	must(t, err)
	srv, err := api.NewServer(h, api.Listen{Addr: "127.0.0.1:0", Plain: true})
	must(t, err)
	must(t, srv.Open())
	background(t, srv.Run)
	tk, err := s.API.People.Login(t.Context(), auth.Credentials{User: auth.AdminUser, Password: s.password()})
	must(t, err)
	for _, head := range []string{
		"POST /v1/apps HTTP/1.1\r\n",
		"POST /nothing HTTP/1.1\r\n",
		"GET /v1/version HTTP/1.1\r\n",
		"GET /openapi.json HTTP/1.1\r\n",
		"GET /v1/apps HTTP/1.1\r\nAuthorization: Bearer " + tk.Access + "\r\n",
		"PUT /v2/shop/web/manifests/1 HTTP/1.1\r\n",
		"PUT /v2/shop/web/manifests/1 HTTP/1.1\r\nAuthorization: Bearer nonsense\r\n",
	} {
		conn, err := net.Dial("tcp", srv.Addr().String())
		must(t, err)
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprint(conn, head+"Host: x\r\nContent-Length: 1000\r\n\r\n")
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("%.40q: the connection stays: %v", head, err)
		}
		conn.Close()
	}
}

// TestLimitedTokensTakeBackOnlyThemselves shows that a leaked token of a program cannot lock the other programs out.
func TestLimitedTokensTakeBackOnlyThemselves(t *testing.T) {
	s := newRoot(t)
	c := s.admin()
	limited, err := c.CreateAccessToken(t.Context(), api.AccessTokenRequest{Name: "reader", Scopes: []auth.Scope{auth.ScopeAppsRead}})
	must(t, err)
	_, err = c.CreateAccessToken(t.Context(), api.AccessTokenRequest{Name: "deployer"})
	must(t, err)
	if res, data := s.raw("DELETE", "/v1/access-tokens/deployer", limited.Text, "", nil); res.StatusCode != 403 {
		t.Errorf("another: %s %s", res.Status, data)
	}
	if res, data := s.raw("DELETE", "/v1/access-tokens/reader", limited.Text, "", nil); res.StatusCode != 204 {
		t.Errorf("itself: %s %s", res.Status, data)
	}
}
