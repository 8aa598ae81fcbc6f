package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
)

// TokenStore keeps a login's tokens between commands. Load gives the zero value when there are none.
type TokenStore interface {
	Load() (auth.Tokens, error)
	Save(auth.Tokens) error
}

// ClientOptions set up a Client. Server is needed.
type ClientOptions struct {
	Server string // https://host:port; http:// only towards this machine
	// Pin is the SHA-256 of the certificate of the CA that the server's must come from (sha256:HEX), see FetchPin. Empty:
	// Roots decide, or the system's when that is nil.
	Pin   string
	Roots *x509.CertPool
	// Tokens keeps what a login gives; nil keeps it in memory.
	Tokens TokenStore
	// Bearer is an access token that is sent instead.
	Bearer string
	// Cluster is whose workers are meant, at a root; empty: the server's own.
	Cluster string
	// Agent names the program to the server.
	Agent string
	// Dial replaces the dialer, for tests.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client speaks the REST interface. Its errors are *skerry.Error with a hint. It is safe for concurrent use.
type Client struct {
	opt  ClientOptions
	base *url.URL
	http *http.Client
	tls  *tls.Config

	mu     sync.Mutex // held while tokens are refreshed
	tokens auth.Tokens
	loaded bool
}

// NewClient makes a client; nothing is sent.
func NewClient(o ClientOptions) (*Client, error) {
	if !strings.Contains(o.Server, "://") {
		o.Server = "https://" + o.Server
	}
	at, err := url.Parse(strings.TrimSuffix(o.Server, "/"))
	if err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" || at.Path != "" || at.User != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "%q is not the address of a server", o.Server).WithHint("write https://HOST:PORT")
	}
	if ip := net.ParseIP(at.Hostname()); at.Scheme == "http" && at.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, skerry.Errorf(skerry.CodeInvalid, "%s: plain HTTP is for servers on this machine only", o.Server).WithHint("use https://")
	}
	if at.Port() == "" && at.Scheme == "https" {
		at.Host = net.JoinHostPort(at.Hostname(), "7480")
	}
	c := &Client{opt: o, base: at}
	c.tls = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots, ServerName: at.Hostname(), NextProtos: []string{"http/1.1"}}
	if o.Pin != "" {
		// The chain is checked against the pin below instead of against roots.
		c.tls.InsecureSkipVerify = true
		c.tls.VerifyConnection = func(cs tls.ConnectionState) error { return auth.VerifyPinned(cs, o.Pin, at.Hostname()) }
	}
	c.http = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: o.Dial, TLSClientConfig: c.tls,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, ResponseHeaderTimeout: 60 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// Server is the server's address.
func (c *Client) Server() string { return c.base.String() }

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// FetchPin connects to a server without trusting it and gives the pin of the CA that it shows, for a person to compare.
func FetchPin(ctx context.Context, server string) (string, error) {
	c, err := NewClient(ClientOptions{Server: server})
	if err != nil {
		return "", err
	}
	if c.base.Scheme != "https" {
		return "", nil
	}
	d := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, ServerName: c.base.Hostname()}}
	conn, err := d.DialContext(ctx, "tcp", c.base.Host)
	if err != nil {
		return "", c.unreachable(err)
	}
	defer conn.Close()
	certs := conn.(*tls.Conn).ConnectionState().PeerCertificates
	return auth.CertPin(certs[len(certs)-1].Raw), nil
}

func (c *Client) unreachable(err error) error {
	if own := new(skerry.Error); errors.As(err, &own) {
		return own // of ClientOptions.Dial, which knows more
	}
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var pinned *tls.CertificateVerificationError
	e := skerry.Errorf(skerry.CodeUnavailable, "%s cannot be reached: %w", c.base, err).
		WithHint("check that it is running and that the address is right; `skerry doctor` diagnoses the connection")
	switch {
	case errors.As(err, &host):
		e.Hint = "start the server with --api-name " + c.base.Hostname() + ", or use a name that its certificate has"
	case errors.As(err, &unknown), errors.As(err, &pinned), strings.Contains(err.Error(), "was pinned"):
		e.Hint = "the certificate is not the trusted one; if the server was reinstalled, compare its pin and log in again with `skerry login --ca-pin`"
	}
	return e
}

// Login begins a session and keeps its tokens.
func (c *Client) Login(ctx context.Context, user, password string) (auth.Tokens, error) {
	return c.LoginWithCode(ctx, user, password, "")
}

// LoginWithCode is Login for a user with one-time codes; auth.NeedsCode tells from an error that it is one.
func (c *Client) LoginWithCode(ctx context.Context, user, password, code string) (auth.Tokens, error) {
	var t auth.Tokens
	in := map[string]string{"user": user, "password": password}
	if code != "" { // servers of earlier versions do not know it
		in[auth.CodeField] = code
	}
	if err := c.send(ctx, http.MethodPost, "/v1/auth/login", nil, in, &t, false); err != nil {
		return t, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return t, c.keepLocked(t)
}

// BeginOIDC begins a login at the server's identity provider, which sends the browser to redirect.
func (c *Client) BeginOIDC(ctx context.Context, redirect string) (auth.OIDCBegun, error) {
	var b auth.OIDCBegun
	return b, c.send(ctx, http.MethodPost, "/v1/auth/oidc", nil, map[string]string{"redirect": redirect}, &b, false)
}

// EndOIDC ends it, and begins a session as Login does.
func (c *Client) EndOIDC(ctx context.Context, state, code, bind string) (auth.Tokens, error) {
	var t auth.Tokens
	in := map[string]string{"state": state, "code": code, "bind": bind}
	if err := c.send(ctx, http.MethodPost, "/v1/auth/oidc/end", nil, in, &t, false); err != nil {
		return t, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return t, c.keepLocked(t)
}

func (c *Client) keepLocked(t auth.Tokens) error {
	c.tokens, c.loaded = t, true
	if c.opt.Tokens != nil {
		if err := c.opt.Tokens.Save(t); err != nil {
			return fmt.Errorf("keep the login: %w", err)
		}
	}
	return nil
}

func (c *Client) loadLocked() error {
	if c.opt.Tokens == nil {
		return nil
	}
	t, err := c.opt.Tokens.Load()
	if err != nil {
		return fmt.Errorf("read the login: %w", err)
	}
	c.tokens, c.loaded = t, true
	return nil
}

// bearer gives the token to send, refreshed if it is about to expire, or not the one that was refused.
func (c *Client) bearer(ctx context.Context, refused string) (string, error) {
	if c.opt.Bearer != "" {
		return c.opt.Bearer, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.loaded || refused != "" && c.tokens.Access == refused {
		if err := c.loadLocked(); err != nil {
			return "", err
		}
	}
	fresh := func() bool {
		return c.tokens.Access != "" && c.tokens.Access != refused && time.Until(c.tokens.Expires) > 20*time.Second
	}
	if fresh() {
		return c.tokens.Access, nil
	}
	// Another command may have refreshed meanwhile.
	if err := c.loadLocked(); err != nil {
		return "", err
	}
	if fresh() || c.tokens.Refresh == "" {
		return c.tokens.Access, nil
	}
	var t auth.Tokens
	if err := c.send(ctx, http.MethodPost, "/v1/auth/refresh", nil, map[string]string{"refresh": c.tokens.Refresh}, &t, false); err != nil {
		if skerry.AsError(err).Code == skerry.CodeUnauthorized && time.Until(c.tokens.Expires) > 0 && refused == "" {
			return c.tokens.Access, nil
		}
		return "", err
	}
	if t.Refresh == "" {
		// Another command refreshed a moment ago and keeps, or will keep, the next refresh token.
		old := c.tokens.Refresh
		if err := c.loadLocked(); err == nil && c.tokens.Refresh != old {
			return c.tokens.Access, nil
		}
		c.tokens.Access, c.tokens.Expires = t.Access, t.Expires
		return t.Access, nil
	}
	return t.Access, c.keepLocked(t)
}

// Logout ends the session and forgets its tokens.
func (c *Client) Logout(ctx context.Context) error {
	err := c.do(ctx, http.MethodPost, "/v1/auth/logout", nil, nil, nil)
	if err != nil && skerry.AsError(err).Code != skerry.CodeUnauthorized {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keepLocked(auth.Tokens{})
}

// do sends a request with the user's token and reads the answer into out, if not nil.
func (c *Client) do(ctx context.Context, method, path string, q url.Values, in, out any) error {
	return c.send(ctx, method, path, q, in, out, true)
}

// rawBody is a request body that is not JSON.
type rawBody struct {
	contentType string
	data        []byte
}

func (c *Client) send(ctx context.Context, method, path string, q url.Values, in, out any, login bool) error {
	res, err := c.request(ctx, method, path, q, in, login)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if out == nil {
		io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
		return nil
	}
	if b, ok := out.(*[]byte); ok {
		*b, err = io.ReadAll(io.LimitReader(res.Body, 64<<20))
	} else {
		err = json.NewDecoder(res.Body).Decode(out)
	}
	if err != nil {
		return skerry.Errorf(skerry.CodeUnavailable, "the answer of %s cannot be read: %w", c.base, err).
			WithHint("try again, and check that it is a Skerry server")
	}
	return nil
}

// foreign reports whether an answer is none of a Skerry server that did what it was asked: a redirect or a page is some proxy's.
func foreign(res *http.Response) bool {
	return res.StatusCode >= 300 || strings.HasPrefix(res.Header.Get("Content-Type"), "text/html")
}

// request sends a request and gives the answer, which the caller closes. One that does not tell of success is an error.
func (c *Client) request(ctx context.Context, method, path string, query url.Values, in any, login bool) (*http.Response, error) {
	var body []byte
	contentType := ""
	switch b := in.(type) {
	case nil:
	case rawBody:
		body, contentType = b.data, b.contentType
	default:
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, fmt.Errorf("request: %w", err)
		}
		contentType = "application/json"
	}
	refused := ""
	for try := 0; ; try++ {
		req, err := http.NewRequestWithContext(ctx, method, c.url(path, query), bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		if len(body) == 0 {
			req.Body, req.ContentLength = nil, 0
		}
		if contentType != "" {
			req.Header.Set("Content-Type", contentType)
		}
		req.Header.Set("Accept", "application/json, application/x-ndjson, */*")
		token := ""
		if login {
			if token, err = c.sign(ctx, req, refused); err != nil {
				return nil, err
			}
		}
		if c.opt.Agent != "" {
			req.Header.Set("User-Agent", c.opt.Agent)
		}
		res, err := c.http.Do(req)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, c.unreachable(err)
		}
		if !foreign(res) {
			return res, nil
		}
		err = readProblem(res)
		res.Body.Close()
		switch {
		case res.StatusCode == http.StatusUnauthorized && login && try == 0 && c.opt.Bearer == "" && token != "":
			refused = token
			continue
		case res.StatusCode == http.StatusTooManyRequests && login && try < 3:
			wait, _ := strconv.Atoi(res.Header.Get("Retry-After"))
			select {
			case <-time.After(time.Duration(min(max(wait, 1), 5)) * time.Second):
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return nil, err
	}
}

func (c *Client) url(path string, q url.Values) string {
	u := c.base.String() + path
	if len(q) > 0 {
		u += "?" + q.Encode()
	}
	return u
}

func (c *Client) sign(ctx context.Context, r *http.Request, refused string) (string, error) {
	token, err := c.bearer(ctx, refused)
	if err != nil {
		return "", err
	}
	if token == "" {
		return "", skerry.Errorf(skerry.CodeUnauthorized, "you are not logged in at %s", c.base).WithHint("log in with `skerry login --server %s`", c.base)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return token, nil
}

// readProblem turns an answer into an error.
func readProblem(res *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	var problem Problem
	if json.Unmarshal(data, &problem) == nil && problem.Code != "" {
		return &skerry.Error{Code: problem.Code, Message: problem.Detail, Hint: problem.Hint, Problems: problem.Problems}
	}
	text := strings.TrimSpace(string(data))
	if len(text) > 200 {
		text = text[:200] + "..."
	}
	code := skerry.CodeInternal
	switch res.StatusCode {
	case http.StatusUnauthorized:
		code = skerry.CodeUnauthorized
	case http.StatusForbidden:
		code = skerry.CodeForbidden
	case http.StatusNotFound:
		code = skerry.CodeNotFound
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		code = skerry.CodeUnavailable
	}
	if to := res.Header.Get("Location"); to != "" {
		text = "it sends to " + to
	}
	return skerry.Errorf(code, "the server answered %s: %s", res.Status, text).WithHint("is it a Skerry server, or a proxy in front of one?")
}

// esc makes a part of a path of a name.
func esc(s string) string { return url.PathEscape(s) }
