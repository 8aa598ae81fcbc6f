package auth

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/time/rate"

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
	maxOIDCEnded = 4096             // that are remembered
	maxOIDCText  = 4096
	maxGroups    = 2048
	maxSubject   = 255 // characters, by the specification
)

const oidcClaim = "groups"

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
		if name == "" || name == "*" {
			bad("groups."+name, "is not a group: each is named in full", "have the provider put people into a group, and name it")
		}
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

// Setup tells what a session was granted under: it ends when that is another, or there is no provider any more.
func (c *OIDCConfig) Setup() string {
	if c == nil {
		return ""
	}
	text, _ := json.Marshal([]any{c.Issuer, c.ClientID, cmp.Or(c.Claim, oidcClaim), c.Groups}) // texts alone
	return hashSecret(string(text))
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
	bounds *bounded
	client *http.Client

	// key makes states, nonces and verifiers, so that logins which have begun are kept nowhere: anybody may begin any number.
	key  []byte
	busy *hashers       // bounds who asks the provider at the same time
	logs rate.Sometimes // bounds what is logged of all that

	asking   sync.Mutex // held while the provider is asked about itself
	mu       sync.Mutex
	provider *oidc.Provider       // nil: it was not reached yet
	ended    map[string]time.Time // states that came back, and when they are too old anyway
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
	cfg.Claim = cmp.Or(cfg.Claim, oidcClaim)
	if cfg.Scopes == nil {
		cfg.Scopes = []string{"profile", "email", "groups"}
	}
	issuer, err := url.Parse(cfg.Issuer)
	if err != nil {
		return nil, err
	}
	key, bounds := make([]byte, sha256.Size), newBounded(issuer)
	rand.Read(key)
	return &OIDC{cfg: cfg, people: p, bounds: bounds, key: key, busy: newHashers(), ended: map[string]time.Time{},
		logs: rate.Sometimes{First: 20, Interval: 10 * time.Second},
		client: &http.Client{Transport: bounds, Timeout: oidcWait,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// Browsers reports whether the dashboard may offer such logins.
func (o *OIDC) Browsers() bool { return o != nil && o.cfg.URL != "" }

// public reports whether an address is of the internet.
func public(a netip.Addr) bool {
	a = a.Unmap()
	if b := a.As16(); netip.MustParsePrefix("64:ff9b::/96").Contains(a) {
		a = netip.AddrFrom4([4]byte(b[12:])) // which a translator makes of it (RFC 6052)
	}
	return a.IsGlobalUnicast() && !a.IsPrivate() && !netip.MustParsePrefix("100.64.0.0/10").Contains(a) // as private (RFC 6598)
}

// TLS reports whether browsers reach this server by HTTPS, perhaps at a proxy.
func (o *OIDC) TLS() bool { return o != nil && strings.HasPrefix(o.cfg.URL, "https://") }

// bounded asks the issuer, wherever it is, and what it names elsewhere only at public addresses. It cuts answers that are too large.
type bounded struct {
	issuer *url.URL
	next   *http.Transport
}

func newBounded(issuer *url.URL) *bounded {
	elsewhere := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || !public(to.Addr()) {
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
			return elsewhere.DialContext(ctx, network, address)
		}}
	return b
}

// allow refuses addresses without TLS, but for those of an issuer that has none.
func (b *bounded) allow(u *url.URL) error {
	if u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || b.issuer.Scheme != "http" || u.Host != b.issuer.Host) {
		return errors.New("the identity provider names an address without TLS: " + u.Redacted())
	}
	return nil
}

func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := b.allow(r.URL); err != nil {
		return nil, err
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
		return nil, skerry.Errorf(skerry.CodeUnavailable, "the configuration of identity provider %s is being fetched", o.cfg.Issuer).
			WithHint("try again in a few seconds")
	}
	defer o.asking.Unlock()
	if p := known(); p != nil {
		return p, nil
	}
	// Keys are fetched with this context later, too.
	p, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), o.client), o.cfg.Issuer)
	if err == nil { // a browser goes there: a script, or an address without TLS, would have it do something else
		var u *url.URL
		if u, err = url.Parse(p.Endpoint().AuthURL); err == nil {
			err = o.bounds.allow(u)
		}
	}
	if err != nil {
		o.warn("the identity provider could not be asked", "it does not answer as one", err)
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

// redirect gives where somebody who logs in is sent back: to a command that listens at a port of the person's own machine, or, if it is
// empty, to this server.
func (o *OIDC) redirect(port string) string {
	if port == "" {
		return o.cfg.URL + OIDCCallback
	}
	return "http://127.0.0.1:" + port + "/callback"
}

// port checks where a command listens.
func (o *OIDC) port(to string) (string, error) {
	if to == "" {
		if o.cfg.URL == "" {
			return "", skerry.Errorf(skerry.CodeUnsupported, "url: this server was not told how browsers reach it").
				WithHint("its operator adds url to the file of --oidc; `skerry login --oidc` works without")
		}
		return "", nil
	}
	u, err := url.Parse(to)
	if err != nil || u.Port() == "" || to != o.redirect(u.Port()) {
		return "", skerry.Errorf(skerry.CodeInvalid, "redirect: %.100q is not http://127.0.0.1:PORT/callback", to)
	}
	return u.Port(), nil
}

// derive makes a secret of a login that has begun: of its head, and of what only the one who began it has.
func (o *OIDC) derive(what, head, bind string) string {
	h := hmac.New(sha256.New, o.key)
	fmt.Fprintf(h, "%s %s %s", what, head, bind)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// Begin begins a login. redirect is where a command listens; empty: the dashboard.
func (o *OIDC) Begin(ctx context.Context, redirect string) (OIDCBegun, error) {
	port, err := o.port(redirect)
	if err != nil {
		return OIDCBegun{}, err
	}
	provider, err := o.ask(ctx)
	if err != nil {
		return OIDCBegun{}, err
	}
	bind := randomText(20)
	head := fmt.Sprintf("%s.%d.%s", port, o.people.cfg.Now().Add(oidcPatience).Unix(), randomText(10))
	return OIDCBegun{Bind: bind, URL: o.oauth(provider, o.redirect(port)).AuthCodeURL(head+"."+o.derive("state", head, bind),
		oidc.Nonce(o.derive("nonce", head, bind)), oauth2.S256ChallengeOption(o.derive("verifier", head, bind)))}, nil
}

func notBegun() error {
	return skerry.Errorf(skerry.CodeUnauthorized, "state: no such login was begun here, or it took too long, or was ended before").
		WithHint("begin again with `skerry login --oidc`, or at the dashboard's login page")
}

// take gives the head of a state that was made for bind, is not too old, and did not come back before.
func (o *OIDC) take(state, bind string) (head, port string, ok bool) {
	i := strings.LastIndexByte(state, '.')
	if i < 0 || !hmac.Equal([]byte(state[i+1:]), []byte(o.derive("state", state[:i], bind))) {
		return "", "", false
	}
	head = state[:i]
	parts := strings.Split(head, ".")
	sec, err := strconv.ParseInt(parts[1], 10, 64)
	now, until := o.people.cfg.Now(), time.Unix(sec, 0)
	if err != nil || !now.Before(until) || madeAhead(now, until.Add(-oidcPatience)) {
		return "", "", false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, again := o.ended[state]; again {
		return "", "", false
	}
	maps.DeleteFunc(o.ended, func(_ string, until time.Time) bool { return !now.Before(until) })
	if len(o.ended) >= maxOIDCEnded {
		clear(o.ended) // each code works once at the provider, too
	}
	o.ended[state] = until
	return head, parts[0], true
}

// End ends a login with what the provider gave the browser, and begins a session.
func (o *OIDC) End(ctx context.Context, state, code, bind, addr string) (Tokens, error) {
	if len(state)+len(code) > maxOIDCText {
		return Tokens{}, notBegun()
	}
	leave := o.busy.enter(sourceOf(addr))
	if leave == nil {
		return Tokens{}, skerry.Errorf(skerry.CodeRateLimited, "too many logins at the same time").WithHint("try again in a few seconds")
	}
	defer leave()
	head, port, ok := o.take(state, bind)
	if !ok {
		return Tokens{}, notBegun()
	}
	provider, err := o.ask(ctx)
	if err != nil {
		return Tokens{}, err
	}
	ctx = oidc.ClientContext(ctx, o.client)
	verifier := oauth2.VerifierOption(o.derive("verifier", head, bind))
	token, err := o.oauth(provider, o.redirect(port)).Exchange(ctx, code, verifier)
	if err != nil {
		return Tokens{}, o.refused("the code was not accepted there", err)
	}
	text, _ := token.Extra("id_token").(string)
	who, err := o.verify(ctx, provider, text, o.derive("nonce", head, bind), oauth2.StaticTokenSource(token))
	if err != nil {
		return Tokens{}, err
	}
	who.setup = o.cfg.Setup()
	return o.people.loginOutside(ctx, who, addr)
}

// warn logs what a provider does: a part of it, and not whenever somebody without a login has it happen.
func (o *OIDC) warn(msg, why string, err error) {
	o.logs.Do(func() {
		o.people.cfg.Log.Warn(msg, "issuer", o.cfg.Issuer, "why", why, "err", fmt.Sprintf("%.500v", err))
	})
}

// refused logs what a provider says, which may be anything, and gives the user an error without it.
func (o *OIDC) refused(why string, err error) error {
	o.warn("a login at the identity provider was refused", why, err)
	return skerry.Errorf(skerry.CodeUnauthorized, "the login at %s is refused: %s", o.cfg.Issuer, why).
		WithHint("begin again; the server's log has the details")
}

// outsider is somebody whom a provider knows.
type outsider struct {
	issuer, subject string
	name            string // as the provider shows it
	groups          []string
	grants          []Grant
	setup           string // under which it was found out
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
	if azp := textOf(about["azp"]); t.Subject == "" || len(t.Subject) > maxSubject || azp != "" && azp != o.cfg.ClientID ||
		len(t.Audience) > 1 && azp == "" {
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
	if json.Unmarshal(claim, &one) == nil && one != "" {
		list = []string{one}
	} else if json.Unmarshal(claim, &list) != nil || len(list) > maxGroups {
		return nil
	}
	return list
}
