package auth

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"skerry.dev/skerry"
)

// OIDCConfig says where people may log in instead of here, and what their groups there may do here.
type OIDCConfig struct {
	Issuer       string `json:"issuer"`
	ClientID     string `json:"clientID"`
	ClientSecret string `json:"clientSecret,omitempty"`
	// URL is how browsers reach this server; empty: the dashboard has no such login.
	URL    string   `json:"url,omitempty"`
	Scopes []string `json:"scopes,omitempty"` // beside openid; default profile, email and groups
	Claim  string   `json:"claim,omitempty"`  // with the groups; default groups
	// Groups maps groups to grants, as ROLE:ORGANISATION or ROLE:ORGANISATION:CLUSTER.
	Groups map[string][]string `json:"groups"`
}

// Bounds of logins at a provider.
const (
	oidcWait     = 10 * time.Second // for an answer of the provider
	oidcBytes    = 1 << 20          // of an answer
	oidcSkew     = time.Minute      // that its clock may be off
	oidcPatience = 10 * time.Minute // for a person there
	oidcSession  = 12 * time.Hour   // of a session that began there: groups may have changed
	maxOIDCBegun = 1024
	maxOIDCFrom  = 16 // of one source
	maxOIDCText  = 4096
	maxGroups    = 2048
)

// OIDCCallback is the path to which a provider sends a browser back.
const OIDCCallback = "/v1/auth/oidc/callback"

// Problems lists what is wrong with the configuration.
func (c *OIDCConfig) Problems() []skerry.Problem {
	var out []skerry.Problem
	bad := func(path, message, hint string) {
		out = append(out, skerry.Problem{Path: path, Message: message, Hint: hint})
	}
	for path, s := range map[string]string{"issuer": c.Issuer, "url": c.URL} {
		u, err := url.Parse(s)
		switch {
		case path == "url" && s == "":
		case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || path == "url" && u.Path != "":
			bad(path, "is not an address", "write https://HOST, with the port if it is another")
		case u.Scheme != "https" && !(u.Scheme == "http" && loopbackHost(u.Hostname())):
			bad(path, "has to begin with https://", "")
		}
	}
	if c.ClientID == "" {
		bad("clientID", "is missing", "it is how the identity provider knows this server")
	}
	if len(c.Groups) == 0 {
		bad("groups", "are missing, so nobody could log in", "map a group to grants, such as edge: [developer:shop]")
	}
	for name, list := range c.Groups {
		for _, s := range list {
			if _, err := ParseGrant(s); err != nil {
				e := skerry.AsError(err)
				bad("groups."+name, e.Message, e.Hint)
			}
		}
	}
	slices.SortFunc(out, func(a, b skerry.Problem) int { return cmp.Compare(a.Path, b.Path) })
	return out
}

func loopbackHost(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// OIDC logs people in who are known to an identity provider, by OpenID Connect: the authorization code flow with PKCE. It is safe for
// concurrent use.
type OIDC struct {
	cfg    OIDCConfig
	people *People
	client *http.Client

	asking   sync.Mutex // held while the provider is asked about itself
	mu       sync.Mutex
	provider *oidc.Provider // nil: it was not reached yet
	begun    map[string]begunLogin
}

// begunLogin waits for somebody to come back from the provider. It is taken by the first who does.
type begunLogin struct {
	nonce, verifier, redirect string
	bind                      string // hash of what only the one who began it has
	source                    string
	until                     time.Time
}

// OIDCBegun is where to go, and what to show afterwards beside what the provider gives.
type OIDCBegun struct {
	URL  string `json:"url" doc:"Open it in a browser."`
	Bind string `json:"bind,omitempty" doc:"Send it with the code, which nobody can use without it."`
}

// NewOIDC makes it. The provider is asked at the first login, so that it may be away before.
func NewOIDC(p *People, cfg OIDCConfig) (*OIDC, error) {
	if list := cfg.Problems(); len(list) > 0 {
		return nil, &skerry.Error{Code: skerry.CodeInvalid, Message: "the identity provider is not set up right", Problems: list}
	}
	cfg.Claim = cmp.Or(cfg.Claim, "groups")
	if cfg.Scopes == nil {
		cfg.Scopes = []string{"profile", "email", "groups"}
	}
	issuer, err := url.Parse(cfg.Issuer)
	if err != nil {
		return nil, err
	}
	return &OIDC{cfg: cfg, people: p, begun: map[string]begunLogin{}, client: &http.Client{Transport: newBounded(issuer), Timeout: oidcWait,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// Browsers reports whether the dashboard may offer such logins.
func (o *OIDC) Browsers() bool { return o != nil && o.cfg.URL != "" }

// bounded asks the issuer, wherever it is, and what it names elsewhere only at public addresses. It cuts answers that are too large.
type bounded struct {
	issuer *url.URL
	next   *http.Transport
}

func newBounded(issuer *url.URL) *bounded {
	public := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if a := to.Addr().Unmap(); err != nil || !a.IsGlobalUnicast() || a.IsPrivate() {
			return errors.New("the identity provider names an address that is not public: " + address)
		}
		return nil
	}}
	b := &bounded{issuer: issuer}
	b.next = &http.Transport{TLSHandshakeTimeout: oidcWait, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		MaxResponseHeaderBytes: 64 << 10,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if host, _, err := net.SplitHostPort(address); err == nil && host == issuer.Hostname() {
				return new(net.Dialer).DialContext(ctx, network, address)
			}
			return public.DialContext(ctx, network, address)
		}}
	return b
}

func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && (b.issuer.Scheme != "http" || r.URL.Host != b.issuer.Host) {
		return nil, errors.New("the identity provider names an address without TLS: " + r.URL.Redacted())
	}
	res, err := b.next.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, oidcBytes), res.Body}
	}
	return res, err
}

// ask gives the provider, which is asked about itself once.
func (o *OIDC) ask(ctx context.Context) (*oidc.Provider, error) {
	known := func() *oidc.Provider {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.provider
	}
	if p := known(); p != nil {
		return p, nil
	}
	away := skerry.Errorf(skerry.CodeUnavailable, "the identity provider %s does not answer as one", o.cfg.Issuer).
		WithHint("try again later, or log in as a local user; sessions that have begun go on")
	if !o.asking.TryLock() {
		return nil, away
	}
	defer o.asking.Unlock()
	if p := known(); p != nil {
		return p, nil
	}
	// Keys are fetched with this context later, too.
	p, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), o.client), o.cfg.Issuer)
	if err != nil {
		o.people.cfg.Log.Warn("the identity provider could not be asked", "issuer", o.cfg.Issuer, "err", err)
		return nil, away
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.provider = p
	return p, nil
}

func (o *OIDC) oauth(p *oidc.Provider, redirect string) *oauth2.Config {
	at := p.Endpoint()
	if o.cfg.ClientSecret == "" { // a public client names itself; nothing is to be tried with its code
		at.AuthStyle = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{ClientID: o.cfg.ClientID, ClientSecret: o.cfg.ClientSecret, Endpoint: at, RedirectURL: redirect,
		Scopes: append([]string{oidc.ScopeOpenID}, o.cfg.Scopes...)}
}

// redirect checks where somebody who logs in is to be sent back: to a command that listens on the person's own machine, or, if it is empty,
// to this server.
func (o *OIDC) redirect(to string) (string, error) {
	if to == "" {
		if o.cfg.URL == "" {
			return "", skerry.Errorf(skerry.CodeUnsupported, "url: this server was not told how browsers reach it").
				WithHint("its operator adds url to the file of --oidc; `skerry login --oidc` works without")
		}
		return o.cfg.URL + OIDCCallback, nil
	}
	u, err := url.Parse(to)
	if err != nil || u.Hostname() != "127.0.0.1" || u.Port() == "" || to != "http://"+u.Host+"/callback" {
		return "", skerry.Errorf(skerry.CodeInvalid, "redirect: %.100q is not http://127.0.0.1:PORT/callback", to)
	}
	return to, nil
}

// Begin begins a login. redirect is where a command listens; empty: the dashboard.
func (o *OIDC) Begin(ctx context.Context, redirect, addr string) (OIDCBegun, error) {
	redirect, err := o.redirect(redirect)
	if err != nil {
		return OIDCBegun{}, err
	}
	provider, err := o.ask(ctx)
	if err != nil {
		return OIDCBegun{}, err
	}
	now, state, bind := o.people.cfg.Now(), randomText(20), randomText(20)
	l := begunLogin{nonce: randomText(20), verifier: oauth2.GenerateVerifier(), redirect: redirect, bind: hashSecret(bind),
		source: sourceOf(addr), until: now.Add(oidcPatience)}
	o.mu.Lock()
	defer o.mu.Unlock()
	from := 0
	for s, old := range o.begun {
		if !now.Before(old.until) || madeAhead(now, old.until.Add(-oidcPatience)) {
			delete(o.begun, s)
		} else if old.source == l.source {
			from++
		}
	}
	if from >= maxOIDCFrom || len(o.begun) >= maxOIDCBegun {
		return OIDCBegun{}, skerry.Errorf(skerry.CodeRateLimited, "too many logins have begun and not ended").
			WithHint("try again in some minutes")
	}
	o.begun[state] = l
	to := o.oauth(provider, redirect).AuthCodeURL(state, oidc.Nonce(l.nonce), oauth2.S256ChallengeOption(l.verifier))
	return OIDCBegun{URL: to, Bind: bind}, nil
}

func notBegun() error {
	return skerry.Errorf(skerry.CodeUnauthorized, "state: no such login was begun here, or it took too long, or was ended before").
		WithHint("begin again with `skerry login --oidc`, or at the dashboard's login page")
}

// End ends a login with what the provider gave the browser, and begins a session.
func (o *OIDC) End(ctx context.Context, state, code, bind, addr string) (Tokens, error) {
	if len(state)+len(code) > maxOIDCText {
		return Tokens{}, notBegun()
	}
	o.mu.Lock()
	l, ok := o.begun[state]
	ok = ok && o.people.cfg.Now().Before(l.until) && subtle.ConstantTimeCompare([]byte(hashSecret(bind)), []byte(l.bind)) == 1
	if ok {
		delete(o.begun, state)
	}
	o.mu.Unlock()
	if !ok {
		return Tokens{}, notBegun()
	}
	provider, err := o.ask(ctx)
	if err != nil {
		return Tokens{}, err
	}
	ctx = oidc.ClientContext(ctx, o.client)
	token, err := o.oauth(provider, l.redirect).Exchange(ctx, code, oauth2.VerifierOption(l.verifier))
	if err != nil {
		return Tokens{}, o.refused("the code was not accepted there", err)
	}
	text, _ := token.Extra("id_token").(string)
	who, err := o.verify(ctx, provider, text, l.nonce, oauth2.StaticTokenSource(token))
	if err != nil {
		return Tokens{}, err
	}
	return o.people.loginOutside(ctx, who, addr)
}

// refused logs what a provider says, which may be anything, and gives the user an error without it.
func (o *OIDC) refused(why string, err error) error {
	o.people.cfg.Log.Warn("a login at the identity provider was refused", "issuer", o.cfg.Issuer, "why", why, "err", err)
	return skerry.Errorf(skerry.CodeUnauthorized, "the login at %s is refused: %s", o.cfg.Issuer, why).
		WithHint("begin again; the server's log has the details")
}

// outsider is somebody whom a provider knows.
type outsider struct {
	issuer, subject string
	name            string // as the provider shows it
	groups          []string
	grants          []Grant
}

// verify checks an ID token: its signature by a key and with an algorithm of the provider, issuer, audience, time and nonce. What it does
// not say of the person is asked with the access token.
func (o *OIDC) verify(ctx context.Context, p *oidc.Provider, text, nonce string, access oauth2.TokenSource) (*outsider, error) {
	now := func() time.Time { return o.people.cfg.Now().Add(-oidcSkew) } // nbf has leeway of its own there
	t, err := p.Verifier(&oidc.Config{ClientID: o.cfg.ClientID, Now: now}).Verify(ctx, text)
	if err != nil {
		return nil, o.refused("its token is not valid here", err)
	}
	if subtle.ConstantTimeCompare([]byte(t.Nonce), []byte(nonce)) != 1 {
		return nil, o.refused("its token is of another login", errors.New("nonce"))
	}
	var about map[string]json.RawMessage
	if err := t.Claims(&about); err != nil {
		return nil, o.refused("its token cannot be read", err)
	}
	if azp := textOf(about["azp"]); t.Subject == "" || azp != "" && azp != o.cfg.ClientID || len(t.Audience) > 1 && azp == "" {
		return nil, o.refused("its token is not for this server alone", errors.New("sub, aud or azp"))
	}
	if about[o.cfg.Claim] == nil && p.UserInfoEndpoint() != "" {
		info, err := p.UserInfo(ctx, access)
		if err == nil && info.Subject != t.Subject {
			err = errors.New("it is about somebody else")
		}
		if err == nil {
			err = info.Claims(&about)
		}
		if err != nil {
			return nil, o.refused("it does not say who this is", err)
		}
	}
	who := &outsider{issuer: t.Issuer, subject: t.Subject, name: textOf(about["preferred_username"])}
	if who.name == "" && string(about["email_verified"]) == "true" {
		who.name = textOf(about["email"])
	}
	who.groups = groupsOf(about[o.cfg.Claim])
	for _, g := range who.groups {
		for _, s := range o.cfg.Groups[g] {
			if grant, err := ParseGrant(s); err == nil { // it was checked at the start
				who.grants = append(who.grants, grant)
			}
		}
	}
	who.grants = tidy(who.grants)
	return who, nil
}

// textOf reads a claim that is a text. Anything else is none.
func textOf(claim json.RawMessage) (s string) {
	json.Unmarshal(claim, &s)
	return s
}

// groupsOf reads a claim: a list, or one name. Anything else is no group.
func groupsOf(claim json.RawMessage) []string {
	var list []string
	var one string
	if json.Unmarshal(claim, &one) == nil {
		list = []string{one}
	} else if json.Unmarshal(claim, &list) != nil || len(list) > maxGroups {
		return nil
	}
	return list
}
