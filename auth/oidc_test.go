package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"skerry.dev/skerry"
	"skerry.dev/skerry/store"
)

// idp is an identity provider that does as a test says. A real one is in `api` TestLoginAtProvider.
type idp struct {
	*httptest.Server
	t      *testing.T
	key    *ecdsa.PrivateKey
	clock  *clock
	nonce  string
	method jwt.SigningMethod
	sign   crypto.PrivateKey
	about  map[string]any      // changes to what discovery says
	claims map[string]any      // changes to the token; nil takes a claim away
	info   map[string]any      // of /userinfo
	token  func(string) string // changes the signed token
	codes  map[string]string   // challenge by code, until it is used
	asked  int
}

func newIDP(t *testing.T, c *clock) *idp {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &idp{t: t, key: key, sign: key, clock: c, method: jwt.SigningMethodES256, codes: map[string]string{}}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		p.asked++
		d := map[string]any{"issuer": p.URL, "authorization_endpoint": p.URL + "/auth", "token_endpoint": p.URL + "/token",
			"jwks_uri": p.URL + "/keys", "userinfo_endpoint": p.URL + "/userinfo", "id_token_signing_alg_values_supported": []string{"ES256"}}
		maps.Copy(d, p.about)
		answer(w, d)
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) {
		point, err := p.key.PublicKey.Bytes() // 4, x, y
		if err != nil {
			t.Error(err)
		}
		text := base64.RawURLEncoding.EncodeToString
		answer(w, map[string]any{"keys": []any{map[string]any{"kty": "EC", "crv": "P-256", "kid": "one", "use": "sig",
			"x": text(point[1:33]), "y": text(point[33:])}}})
	})
	mux.HandleFunc("GET /userinfo", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer opaque" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		answer(w, p.info)
	})
	mux.HandleFunc("POST /token", p.exchange)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// consent is a person who logs in: it gives the state and a code.
func (p *idp) consent(begun OIDCBegun) (state, code string) {
	p.t.Helper()
	u, err := url.Parse(begun.URL)
	if err != nil || !strings.HasPrefix(begun.URL, p.URL+"/auth?") {
		p.t.Fatalf("%s, %v", begun.URL, err)
	}
	q := u.Query()
	if q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("client_id") != "skerry" ||
		len(q.Get("nonce")) < 20 {
		p.t.Errorf("asked with %v", q)
	}
	p.nonce = q.Get("nonce")
	code = randomText(10)
	p.codes[code] = q.Get("code_challenge")
	return q.Get("state"), code
}

func (p *idp) exchange(w http.ResponseWriter, r *http.Request) {
	challenge, ok := p.codes[r.FormValue("code")]
	delete(p.codes, r.FormValue("code"))
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || base64.RawURLEncoding.EncodeToString(sum[:]) != challenge || r.FormValue("client_id") != "skerry" {
		w.WriteHeader(http.StatusBadRequest)
		json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant", "error_description": strings.Repeat("no ", 4000)})
		return
	}
	now := p.clock.now
	c := jwt.MapClaims{"iss": p.URL, "sub": "7", "aud": "skerry", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "nonce": p.nonce,
		"preferred_username": "Ada@example.com", "groups": []string{"boats", "nobody"}}
	for k, v := range p.claims {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	t := jwt.NewWithClaims(p.method, c)
	t.Header["kid"] = "one"
	text, err := t.SignedString(p.sign)
	if err != nil {
		p.t.Error(err)
	}
	if p.token != nil {
		text = p.token(text)
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"access_token": "opaque", "token_type": "Bearer", "id_token": text})
}

func providerOf(t *testing.T, p *People, at *idp) *OIDC {
	t.Helper()
	o, err := NewOIDC(p, OIDCConfig{Issuer: at.URL, ClientID: "skerry", URL: "https://root.example.com",
		Groups: map[string][]string{"boats": {"developer:boats"}, "crew": {"viewer:boats:east", "viewer:*"}, "chiefs": {"admin:*:*"}}})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

const callback = "http://127.0.0.1:4711/callback"

func (p *idp) login(o *OIDC) (Tokens, error) {
	p.t.Helper()
	begun, err := o.Begin(p.t.Context(), callback)
	if err != nil {
		return Tokens{}, err
	}
	state, code := p.consent(begun)
	return o.End(p.t.Context(), state, code, begun.Bind, "192.0.2.1")
}

func TestOIDCLogin(t *testing.T) {
	p, st, c := newPeople(t)
	at := newIDP(t, c)
	o := providerOf(t, p, at)
	tk, err := at.login(o)
	if err != nil {
		t.Fatal(err)
	}
	who, err := p.Authenticate(tk.Access)
	if err != nil || who.User != "oidc.ada@example.com" || tk.User != who.User ||
		!slices.Equal(who.Grants, []Grant{{RoleDeveloper, "boats", Any}}) {
		t.Fatalf("%+v, %v", who, err)
	}
	// Such a user has what the provider says, and nothing beside that.
	name, grants, password := who.User, adminGrants(), "long enough for a boat"
	_, err = p.ChangeUser(t.Context(), name, UserChange{Grants: &grants})
	wantCode(t, err, skerry.CodeConflict)
	_, err = p.ChangeUser(t.Context(), name, UserChange{Password: &password})
	wantCode(t, err, skerry.CodeConflict)
	_, _, err = p.CreateAccessToken(t.Context(), name, AccessTokenOptions{Name: "ci"})
	wantCode(t, err, skerry.CodeForbidden)
	for _, s := range []string{"", password} {
		_, err = p.Login(t.Context(), Credentials{User: name, Password: s})
		wantCode(t, err, skerry.CodeUnauthorized)
	}
	_, err = p.CreateUser(t.Context(), NewUser{Name: name, Password: password})
	wantCode(t, err, skerry.CodeInvalid)

	// Groups count as they are at the next login, also after a restart; a name may change, and another person have it.
	p = people(t, st, c)
	o = providerOf(t, p, at)
	at.claims = map[string]any{"groups": []string{"chiefs", "crew"}, "preferred_username": "lovelace"}
	if tk, err = at.login(o); err != nil || tk.User != name {
		t.Fatalf("%+v, %v", tk, err)
	}
	if u, err := p.User(name); err != nil || len(u.Grants) != 3 || u.Outside != at.URL+" 7" {
		t.Errorf("%+v, %v", u, err)
	}
	wantCode(t, p.DeleteUser(t.Context(), "ada"), skerry.CodeConflict) // the last admin who needs no provider
	at.claims = map[string]any{"sub": "8", "groups": "boats"}
	other, err := at.login(o)
	if err != nil || other.User == name || !strings.HasPrefix(other.User, "oidc.") {
		t.Fatalf("%+v, %v", other, err)
	}
	// While the provider is away, sessions go on until they end; local users log in.
	at.Close()
	_, err = at.login(providerOf(t, p, at))
	if wantCode(t, err, skerry.CodeUnavailable); !strings.Contains(skerry.AsError(err).Hint, "local user") {
		t.Errorf("got %v", err)
	}
	login(t, p)
	next, err := p.Refresh(t.Context(), tk.Refresh, "")
	if err != nil {
		t.Fatal(err)
	}
	c.pass(oidcSession)
	_, err = p.Refresh(t.Context(), next.Refresh, "")
	wantCode(t, err, skerry.CodeUnauthorized)
	// A disabled user is out.
	yes := true
	if _, err := p.ChangeUser(t.Context(), name, UserChange{Disabled: &yes}); err != nil {
		t.Fatal(err)
	}
	_, err = p.loginOutside(t.Context(), &outsider{issuer: at.URL, subject: "7", grants: adminGrants()}, "")
	wantCode(t, err, skerry.CodeForbidden)
}

// TestOIDCGroups: who is in no group that counts is refused, and one who was ends.
func TestOIDCGroups(t *testing.T) {
	p, _, c := newPeople(t)
	at := newIDP(t, c)
	o := providerOf(t, p, at)
	tk, err := at.login(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, groups := range []any{[]string{"nobody"}, []string{}, nil, 7, "", []any{"boats", 1}, map[string]any{"boats": true},
		slices.Repeat([]string{"boats"}, maxGroups+1)} {
		at.claims, at.info = map[string]any{"groups": groups}, map[string]any{"sub": "7"}
		_, err := at.login(o)
		e := skerry.AsError(err)
		if wantCode(t, err, skerry.CodeForbidden); len(e.Problems) != 1 || e.Problems[0].Path != "groups" || !strings.Contains(e.Hint, "--oidc") {
			t.Errorf("%v: %+v", groups, e)
		}
	}
	_, err = p.Authenticate(tk.Access)
	wantCode(t, err, skerry.CodeUnauthorized)
	if u, err := p.User(tk.User); err != nil || len(u.Grants) > 0 {
		t.Errorf("%+v, %v", u, err)
	}
	// A provider may say groups only when it is asked, and of the same person.
	at.claims = map[string]any{"groups": nil, "preferred_username": nil}
	at.info = map[string]any{"sub": "7", "groups": []string{"boats"}}
	if _, err := at.login(o); err != nil {
		t.Error(err)
	}
	at.info["sub"] = "8"
	_, err = at.login(o)
	wantCode(t, err, skerry.CodeUnauthorized)
}

func TestOIDCRefuses(t *testing.T) {
	another, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]func(*idp){
		"issuer":        func(p *idp) { p.claims = map[string]any{"iss": "https://example.com"} },
		"audience":      func(p *idp) { p.claims = map[string]any{"aud": "another"} },
		"audiences":     func(p *idp) { p.claims = map[string]any{"aud": []string{"skerry", "another"}} },
		"azp":           func(p *idp) { p.claims = map[string]any{"aud": []string{"skerry", "another"}, "azp": "another"} },
		"expired":       func(p *idp) { p.claims = map[string]any{"exp": p.clock.now.Add(-oidcSkew - time.Second).Unix()} },
		"no expiry":     func(p *idp) { p.claims = map[string]any{"exp": nil} },
		"nonce":         func(p *idp) { p.claims = map[string]any{"nonce": "another"} },
		"no nonce":      func(p *idp) { p.claims = map[string]any{"nonce": nil} },
		"no subject":    func(p *idp) { p.claims = map[string]any{"sub": ""} },
		"subject":       func(p *idp) { p.claims = map[string]any{"sub": strings.Repeat("7", maxSubject+1)} },
		"alg none":      func(p *idp) { p.method, p.sign = jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType },
		"secret as key": func(p *idp) { p.method, p.sign = jwt.SigningMethodHS256, []byte("skerry") },
		"another's key": func(p *idp) { p.sign = another },
		"no token":      func(p *idp) { p.token = func(string) string { return "" } },
		"half a token":  func(p *idp) { p.token = func(s string) string { return s[:len(s)/2] } },
		"changed":       func(p *idp) { p.token = func(s string) string { return "A" + s[1:] } },
		"too large":     func(p *idp) { p.token = func(s string) string { return s + strings.Repeat("A", 2*oidcBytes) } },
		"large claims":  func(p *idp) { p.claims = map[string]any{"groups": strings.Repeat("A", 2*oidcBytes)} },
	} {
		t.Run(name, func(t *testing.T) {
			p, _, clock := newPeople(t)
			at := newIDP(t, clock)
			c(at)
			_, err := at.login(providerOf(t, p, at))
			wantCode(t, err, skerry.CodeUnauthorized)
			if e := skerry.AsError(err); e.Hint == "" || !strings.Contains(e.Message, at.URL) || len(p.Users()) != 1 {
				t.Errorf("%+v; %d users", e, len(p.Users()))
			}
		})
	}
	// A minute of difference between the clocks is none.
	p, _, clock := newPeople(t)
	at := newIDP(t, clock)
	at.claims = map[string]any{"exp": clock.now.Add(-oidcSkew + time.Second).Unix()}
	if _, err := at.login(providerOf(t, p, at)); err != nil {
		t.Error(err)
	}
}

// TestOIDCDiscovery: only the configured issuer is asked, and what it names elsewhere only at public addresses with TLS.
func TestOIDCDiscovery(t *testing.T) {
	p, _, clock := newPeople(t)
	inside := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a server inside was asked") }))
	defer inside.Close()
	for name, about := range map[string]map[string]any{
		"another issuer": {"issuer": "https://example.com"},
		"large":          {"more": strings.Repeat("A", 2*oidcBytes)},
		"a script":       {"authorization_endpoint": "javascript:alert(1)//"},
		"no TLS":         {"authorization_endpoint": "http://example.com/auth"},
		"nowhere":        {"authorization_endpoint": "/auth"},
	} {
		at := newIDP(t, clock)
		at.about = about
		if _, err := at.login(providerOf(t, p, at)); codeOf(err) != skerry.CodeUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	elsewhere := newIDP(t, clock)
	byName := strings.Replace(inside.URL, "127.0.0.1", "localhost", 1)
	for _, url := range []string{strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1), byName} {
		for _, field := range []string{"token_endpoint", "jwks_uri"} {
			at := newIDP(t, clock)
			at.about = map[string]any{field: url + "/token"}
			if _, err := at.login(providerOf(t, p, at)); codeOf(err) != skerry.CodeUnauthorized {
				t.Errorf("%s %s: %v", field, url, err)
			}
		}
	}
	// It is asked about itself once.
	at := newIDP(t, clock)
	o := providerOf(t, p, at)
	for range 3 {
		if _, err := at.login(o); err != nil {
			t.Fatal(err)
		}
	}
	if at.asked != 1 {
		t.Errorf("asked %d times", at.asked)
	}
}

func TestOIDCState(t *testing.T) {
	p, _, clock := newPeople(t)
	at := newIDP(t, clock)
	o := providerOf(t, p, at)
	begin := func() (OIDCBegun, string, string) {
		b, err := o.Begin(t.Context(), callback)
		if err != nil {
			t.Fatal(err)
		}
		state, code := at.consent(b)
		return b, state, code
	}
	b, state, code := begin()
	for _, bad := range [][3]string{{"", code, b.Bind}, {"another", code, b.Bind}, {state, code, ""}, {state, code, "another"},
		{state, strings.Repeat("x", maxOIDCText), b.Bind}} {
		_, err := o.End(t.Context(), bad[0], bad[1], bad[2], "")
		wantCode(t, err, skerry.CodeUnauthorized)
	}
	if _, err := o.End(t.Context(), state, code, b.Bind, ""); err != nil {
		t.Fatal(err)
	}
	_, err := o.End(t.Context(), state, code, b.Bind, "") // again
	wantCode(t, err, skerry.CodeUnauthorized)
	b, state, _ = begin()
	_, err = o.End(t.Context(), state, code, b.Bind, "") // a code that was used
	wantCode(t, err, skerry.CodeUnauthorized)
	mine, state, _ := begin()
	_, _, stolen := begin() // a code of another login has another verifier
	_, err = o.End(t.Context(), state, stolen, mine.Bind, "")
	wantCode(t, err, skerry.CodeUnauthorized)
	b, state, code = begin()
	clock.pass(oidcPatience)
	_, err = o.End(t.Context(), state, code, b.Bind, "")
	wantCode(t, err, skerry.CodeUnauthorized)
	for _, to := range []string{"http://127.0.0.1/callback", "http://localhost:1/callback", "https://127.0.0.1:1/callback",
		"http://127.0.0.1:1/other", "http://example.com:1/callback",
		"http://a@127.0.0.1:1/callback", "http://127.0.0.1:1/callback?x", "http://127.0.0.1:1/callback#x", "://"} {
		_, err := o.Begin(t.Context(), to)
		wantCode(t, err, skerry.CodeInvalid)
	}
	// Nobody keeps others out by beginning, or by ending what never was at the provider.
	b, state, code = begin()
	nonce := at.nonce
	for range 2000 {
		if _, err = o.Begin(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		mine, state, _ := begin()
		_, err = o.End(t.Context(), state, "made up", mine.Bind, "192.0.2.1")
		wantCode(t, err, skerry.CodeUnauthorized)
	}
	at.nonce = nonce
	if _, err = o.End(t.Context(), state, code, b.Bind, "192.0.2.1"); err != nil {
		t.Error(err)
	}
	clock.pass(oidcPatience)
	begin()
	if _, err = at.login(o); err != nil || len(o.ended) != 1 {
		t.Errorf("%d states are kept, %v", len(o.ended), err)
	}
	// A state that was made while the clock was ahead is not good until then.
	b, state, code = begin()
	clock.pass(-48 * time.Hour)
	_, err = o.End(t.Context(), state, code, b.Bind, "192.0.2.1")
	wantCode(t, err, skerry.CodeUnauthorized)
}

// TestOIDCLog: nobody fills the disk of a device with what a provider says of made up codes, or by asking for one that is away.
func TestOIDCLog(t *testing.T) {
	var log bytes.Buffer
	p, _, clock := newPeople(t)
	p.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	at := newIDP(t, clock)
	o := providerOf(t, p, at)
	for range 200 {
		b, err := o.Begin(t.Context(), callback)
		if err != nil {
			t.Fatal(err)
		}
		state, _ := at.consent(b)
		_, err = o.End(t.Context(), state, "made up", b.Bind, "192.0.2.1")
		wantCode(t, err, skerry.CodeUnauthorized)
	}
	at.Close()
	o = providerOf(t, p, at)
	for range 200 {
		_, err := o.Begin(t.Context(), callback)
		wantCode(t, err, skerry.CodeUnavailable)
	}
	if n := log.Len(); n > 30_000 || !strings.Contains(log.String(), "invalid_grant") || !strings.Contains(log.String(), "could not be asked") {
		t.Errorf("%d bytes were logged: %.2000s", n, log.String())
	}
}

// TestOIDCSetup: a session ends when there is no provider any more, or its groups are granted something else.
func TestOIDCSetup(t *testing.T) {
	_, st, c := newPeople(t)
	at := newIDP(t, c)
	cfg := providerOf(t, nil, at).cfg
	open := func(cfg *OIDCConfig) *People {
		p, err := OpenPeople(t.Context(), PeopleConfig{Site: "root", Store: st, Argon2: quick(), Now: c.Now, OIDC: cfg})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := open(&cfg)
	tk, err := at.login(providerOf(t, p, at))
	if err != nil {
		t.Fatal(err)
	}
	local := login(t, p)
	same, fewer, another := cfg, cfg, cfg
	same.ClientSecret, same.Scopes = "new", []string{"email"}
	fewer.Groups = map[string][]string{"boats": {"viewer:boats"}}
	another.Issuer = "https://example.com"
	for name, c := range map[string]struct {
		cfg *OIDCConfig
		in  bool
	}{"same": {&same, true}, "none": {nil, false}, "fewer": {&fewer, false}, "another": {&another, false}} {
		p := open(c.cfg)
		if _, err := p.Authenticate(tk.Access); (err == nil) != c.in {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := p.Authenticate(local.Access); err != nil {
			t.Errorf("%s: a local user is out: %v", name, err)
		}
	}
}

func TestPublic(t *testing.T) {
	for _, s := range []string{"127.0.0.1", "10.0.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::1", "fe80::1", "fd00::1",
		"::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::7f00:1", "255.255.255.255", "224.0.0.1"} {
		if public(netip.MustParseAddr(s)) {
			t.Errorf("%s is public", s)
		}
	}
	for _, s := range []string{"192.0.2.1", "2001:db8::1", "64:ff9b::c000:201"} {
		if !public(netip.MustParseAddr(s)) {
			t.Errorf("%s is not public", s)
		}
	}
}

func TestOIDCConfig(t *testing.T) {
	good := OIDCConfig{Issuer: "https://id.example.com/realm", ClientID: "skerry", Groups: map[string][]string{"a": {"viewer:b"}}}
	if p := good.Problems(); len(p) > 0 {
		t.Errorf("%+v", p)
	}
	for path, change := range map[string]func(*OIDCConfig){
		"issuer":   func(c *OIDCConfig) { c.Issuer = "http://id.example.com" },
		"url":      func(c *OIDCConfig) { c.URL = "https://root.example.com/ui" },
		"clientID": func(c *OIDCConfig) { c.ClientID = "" },
		"groups":   func(c *OIDCConfig) { c.Groups = nil },
		"groups.":  func(c *OIDCConfig) { c.Groups = map[string][]string{"": {"viewer:b"}} },
		"groups.*": func(c *OIDCConfig) { c.Groups = map[string][]string{"*": {"viewer:b"}} },
		"groups.b": func(c *OIDCConfig) { c.Groups = map[string][]string{"b": {"captain:b"}} },
	} {
		c := good
		change(&c)
		_, err := NewOIDC(nil, c)
		if e := skerry.AsError(err); e == nil || len(e.Problems) != 1 || e.Problems[0].Path != path {
			t.Errorf("%s: %+v", path, e)
		}
	}
}

// FuzzOutsider: whatever a provider calls people, none gets the name of a local user, or of another person there.
func FuzzOutsider(f *testing.F) {
	f.Add("ada", "7", []byte(`["boats"]`))
	f.Add("", "", []byte(`"boats"`))
	f.Add((&outsider{issuer: "i", subject: "8"}).names()[0][len(outsidePrefix):], "7", []byte(`null`))
	f.Add("../../admin", "x y", []byte(`{"boats":[]}`))
	f.Add(strings.Repeat("é", 80), "\x00", []byte(`[[[`))
	f.Fuzz(func(t *testing.T, name, subject string, claim []byte) {
		groupsOf(claim)
		textOf(claim)
		st, err := store.Open(t.Context(), "memory:", store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		p := &People{cfg: PeopleConfig{Now: time.Now, Store: st},
			users: map[string]*User{"ada": {Name: "ada"}, "oidc.ada": {Name: "oidc.ada", Outside: "i 1"}}}
		u, err := p.outsiderLocked(&outsider{issuer: "i", subject: subject, name: name})
		if err != nil {
			t.Fatal(err)
		}
		if other := (&outsider{issuer: "i", subject: "8"}).names()[0]; subject != "8" && u.Name == other {
			t.Errorf("%q takes the only name of another", name)
		}
		if subject == "1" {
			if u.Name != "oidc.ada" {
				t.Errorf("%q is not found again", subject)
			}
			return
		}
		if !strings.HasPrefix(u.Name, "oidc.") || p.users[u.Name] != nil || len(u.Name) > maxOutside || skerry.CheckName(u.Name) == nil ||
			strings.ContainsFunc(u.Name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/:%\"'<>\\", r) }) {
			t.Errorf("%q %q is called %q", name, subject, u.Name)
		}
	})
}
