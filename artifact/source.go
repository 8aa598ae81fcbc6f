package artifact

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/time/rate"

	"skerry.dev/skerry/artifact/imageref"
)

// Source is where images come from: the registry that a name says, or a mirror that stands before all registries, as a
// cluster does for its workers. The zero value asks registries directly and without credentials. It must not be copied
// once used.
type Source struct {
	// BaseURL, if set, is a mirror such as "http://cluster" that gets every request. The registry meant travels in the
	// query parameter ns, as containerd does it: GET BaseURL/v2/team/app/manifests/1.0?ns=registry.example:5000
	BaseURL string
	// Transport carries requests; nil means an own one with sane limits. A RoundTripper over another connection must
	// honour the request's context.
	Transport http.RoundTripper
	// Credentials gives what to log in with at a registry, if anything. Mirrors get none.
	Credentials func(registry string) (Credential, error)
	// PlainHTTP lists registries (host or host:port) that are spoken to without TLS. Loopback always is.
	PlainHTTP []string
	// Guard bounds which registries are asked, and where they may be; nil: all. Mirrors, and a Transport that is given, are not bounded.
	Guard *Guard
	// Limit caps the bytes per second of content; nil means no cap. Share one among sources for a common cap. Its burst
	// should be 64 KiB or more.
	Limit *rate.Limiter

	once   sync.Once
	client *http.Client
	mu     sync.Mutex
	tokens map[string]token // by registry and scope
}

// Credential logs in at a registry: user and password, an identity token from which access tokens are made, or an access
// token as it is.
type Credential struct {
	Username, Password string
	IdentityToken      string
	Token              string
}

type token struct {
	header  string // of Authorization
	expires time.Time
}

// RegistryConfig is a file in the form of ~/.docker/config.json. Beside credentials, an entry may have a list of organisations.
type RegistryConfig struct {
	// Hosts are the registries that have an entry.
	Hosts []string
	// Organisations are those for which a registry is asked; one without a list is asked for all.
	Organisations map[string][]string

	credentials map[string]Credential
}

// Credentials gives what to log in with at a registry, if anything.
func (c *RegistryConfig) Credentials(registry string) (Credential, error) {
	return c.credentials[registry], nil
}

// DockerConfig reads credentials from a file in the form of ~/.docker/config.json. Credential helpers are not run.
func DockerConfig(path string) (func(registry string) (Credential, error), error) {
	c, err := ReadRegistryConfig(path)
	if err != nil {
		return nil, err
	}
	return c.Credentials, nil
}

// ReadRegistryConfig reads a RegistryConfig.
func ReadRegistryConfig(path string) (*RegistryConfig, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("registry credentials: %w", err)
	}
	c, err := parseRegistryConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("registry credentials in %s: %w", path, err)
	}
	return c, nil
}

func parseRegistryConfig(raw []byte) (*RegistryConfig, error) {
	var f struct {
		Auths map[string]struct {
			Auth          string    `json:"auth"`
			Username      string    `json:"username"`
			Password      string    `json:"password"`
			IdentityToken string    `json:"identitytoken"`
			RegistryToken string    `json:"registrytoken"`
			Organisations *[]string `json:"organisations"`
		} `json:"auths"`
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	out := &RegistryConfig{Organisations: map[string][]string{}, credentials: map[string]Credential{}}
	for k, a := range f.Auths {
		host := strings.TrimPrefix(strings.TrimPrefix(k, "https://"), "http://")
		host, _, _ = strings.Cut(host, "/")
		if host == "index.docker.io" || host == "registry-1.docker.io" {
			host = imageref.DefaultRegistry
		}
		c := Credential{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, Token: a.RegistryToken}
		if a.Auth != "" {
			b, err := base64.StdEncoding.DecodeString(a.Auth)
			user, pass, ok := strings.Cut(string(b), ":")
			if err != nil || !ok {
				return nil, fmt.Errorf("auth of %s is not base64 of user:password", k)
			}
			c.Username, c.Password = user, strings.TrimRight(pass, "\x00")
		}
		if _, twice := out.credentials[host]; twice && (a.Organisations != nil || out.Organisations[host] != nil) {
			return nil, fmt.Errorf("%s has two entries and a list of organisations; give it one", host)
		}
		out.credentials[host] = c
		out.Hosts = append(out.Hosts, host)
		if a.Organisations != nil {
			out.Organisations[host] = append([]string{}, *a.Organisations...)
		}
	}
	slices.Sort(out.Hosts)
	out.Hosts = slices.Compact(out.Hosts)
	return out, nil
}

func (s *Source) http() *http.Client {
	s.once.Do(func() {
		rt := s.Transport
		if rt == nil {
			t := http.DefaultTransport.(*http.Transport).Clone()
			t.ResponseHeaderTimeout = 30 * time.Second
			t.MaxIdleConnsPerHost = 4
			t.IdleConnTimeout = 30 * time.Second
			if rt = t; s.Guard != nil && s.BaseURL == "" {
				rt = s.Guard.transport(t)
			}
		}
		s.client = &http.Client{Transport: rt, CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= 10 {
				return errors.New("too many redirects")
			}
			if r.URL.Scheme != "https" && via[0].URL.Scheme == "https" {
				return fmt.Errorf("redirect from https to %s is refused", r.URL.Scheme)
			}
			return nil
		}}
		s.tokens = map[string]token{}
	})
	return s.client
}

// String names the source in messages.
func (s *Source) String() string {
	if s.BaseURL != "" {
		return s.BaseURL
	}
	return "the registry"
}

func (s *Source) where(r imageref.Ref) string {
	if s.BaseURL != "" {
		return s.BaseURL
	}
	return r.Registry
}

func (s *Source) plain(registry string) bool {
	host := registry
	if h, _, err := net.SplitHostPort(registry); err == nil {
		host = h
	}
	if ip := net.ParseIP(strings.Trim(host, "[]")); host == "localhost" || ip != nil && ip.IsLoopback() {
		return true
	}
	return slices.Contains(s.PlainHTTP, registry) || slices.Contains(s.PlainHTTP, host)
}

// url gives the address of a path below /v2/ of r's repository.
func (s *Source) url(ref imageref.Ref, path string, query url.Values) string {
	if query == nil {
		query = url.Values{}
	}
	base := s.BaseURL
	if base != "" {
		query.Set("ns", ref.Registry)
	} else {
		host, scheme := ref.Registry, "https"
		if host == imageref.DefaultRegistry {
			host = "registry-1.docker.io"
		}
		if s.plain(ref.Registry) {
			scheme = "http"
		}
		base = scheme + "://" + host
	}
	u := strings.TrimSuffix(base, "/") + "/v2/" + ref.Repository + "/" + path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	return u
}

// request is one HTTP request to a registry. body gives it anew for every try.
type httpRequest struct {
	method, url string
	header      http.Header
	body        func() (io.ReadCloser, error)
	length      int64
	push        bool
	want        int // the status of success; 0: 200, or 206 where a range is asked for
	// stores is the digest of what is to be kept. Some registries have another status for it than 201; their answer names the digest.
	stores digest.Digest
}

// done reports whether an answer is the one that a request is to have. What else is below 400, such as a page that a proxy redirects to,
// says nothing of what was asked for.
func (q *httpRequest) done(res *http.Response) bool {
	switch status := res.StatusCode; status {
	case cmp.Or(q.want, http.StatusOK):
		return true
	case http.StatusPartialContent:
		return q.header.Get("Range") != ""
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return q.stores != "" && res.Header.Get("Docker-Content-Digest") == q.stores.String()
	}
	return false
}

// statusError is an answer that is none of the expected ones.
type statusError struct {
	status int
	url    string
	detail string
	after  time.Duration // Retry-After
}

func (e *statusError) Error() string {
	s := fmt.Sprintf("%s answers %d %s", e.url, e.status, http.StatusText(e.status))
	if e.detail != "" {
		s += ": " + e.detail
	}
	return s
}

func (e *statusError) Unwrap() error {
	switch e.status {
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return ErrDenied
	case http.StatusInsufficientStorage:
		return ErrFull
	case http.StatusRequestEntityTooLarge:
		return ErrTooLarge
	}
	return nil
}

// temporary tells what is worth another try at the same place.
func temporary(err error) bool {
	if err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrDenied) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrFull) ||
		errors.Is(err, ErrTooLarge) {
		return false
	}
	var st *statusError
	if errors.As(err, &st) {
		return st.status >= 500 || st.status == http.StatusTooManyRequests || st.status == http.StatusRequestTimeout
	}
	return true
}

// do sends a request, logging in when asked to. An answer with another status than that of success is a *statusError.
func (s *Source) do(ctx context.Context, ref imageref.Ref, q httpRequest) (*http.Response, error) {
	if s.BaseURL == "" {
		if err := s.Guard.check(ref.Registry); err != nil {
			return nil, err
		}
		ctx = withOrigin(ctx, ref.Registry)
	}
	client := s.http()
	scope := "repository:" + ref.Repository + ":pull"
	if q.push {
		scope += ",push"
	}
	key := ref.Registry + " " + scope
	for try := 0; ; try++ {
		req, err := http.NewRequestWithContext(ctx, q.method, q.url, nil)
		if err != nil {
			return nil, err
		}
		for k, v := range q.header {
			req.Header[k] = v
		}
		req.Header.Set("User-Agent", "skerry")
		if q.body != nil {
			if req.Body, err = q.body(); err != nil {
				return nil, err
			}
			req.ContentLength = q.length
		}
		s.mu.Lock()
		tok, ok := s.tokens[key]
		s.mu.Unlock()
		if ok && (tok.expires.IsZero() || time.Now().Before(tok.expires)) {
			req.Header.Set("Authorization", tok.header)
		}
		res, err := client.Do(req)
		if err != nil {
			return nil, redact(err)
		}
		if q.done(res) {
			return res, nil
		}
		challenges := res.Header.Values("WWW-Authenticate")
		failed := answer(res)
		if res.StatusCode != http.StatusUnauthorized || try > 0 || s.BaseURL != "" {
			return nil, failed
		}
		tok, err = s.login(ctx, ref.Registry, scope, challenges)
		if err != nil {
			return nil, fmt.Errorf("log in at %s: %w", ref.Registry, err)
		}
		if tok.header == "" {
			return nil, failed
		}
		s.mu.Lock()
		s.tokens[key] = tok
		s.mu.Unlock()
	}
}

// redact takes the query out of an error's URL: registries redirect to addresses whose query is a credential.
func redact(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		if u, perr := url.Parse(ue.URL); perr == nil && u.RawQuery != "" {
			u.RawQuery = ""
			ue.URL = u.String()
		}
	}
	return err
}

// answer makes an error of an answer and closes it.
func answer(res *http.Response) error {
	defer res.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(res.Body, 8<<10))
	u := *res.Request.URL
	u.RawQuery, u.User = "", nil
	e := &statusError{status: res.StatusCode, url: u.String()}
	var doc struct {
		Errors []struct {
			Code, Message string
			Detail        any
		}
	}
	if json.Unmarshal(body, &doc) == nil && len(doc.Errors) > 0 {
		e.detail = strings.TrimSpace(doc.Errors[0].Code + " " + doc.Errors[0].Message)
	}
	if n, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		e.after = min(time.Duration(n)*time.Second, time.Minute)
	}
	return e
}

// login answers a challenge. An empty header means that there is nothing to log in with.
func (s *Source) login(ctx context.Context, registry, scope string, challenges []string) (token, error) {
	var c Credential
	if s.Credentials != nil {
		var err error
		if c, err = s.Credentials(registry); err != nil {
			return token{}, err
		}
	}
	for _, ch := range challenges {
		scheme, params := parseChallenge(ch)
		switch {
		case scheme == "bearer" && c.Token != "":
			return token{header: "Bearer " + c.Token}, nil
		case scheme == "bearer":
			return s.bearer(ctx, registry, scope, c, params)
		case scheme == "basic" && c.Username != "":
			return token{header: basic(c)}, nil
		}
	}
	return token{}, nil
}

func basic(c Credential) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(c.Username+":"+c.Password))
}

// bearer gets an access token from where the challenge says.
func (s *Source) bearer(ctx context.Context, registry, scope string, c Credential, params map[string]string) (token, error) {
	realm, err := url.Parse(params["realm"])
	if err != nil || realm.Host == "" {
		return token{}, fmt.Errorf("its challenge names no usable realm %q", params["realm"])
	}
	if realm.Scheme != "https" && !(realm.Scheme == "http" && s.plain(registry) && s.plain(realm.Host)) {
		return token{}, fmt.Errorf("its token server %s is not https, and a password is not sent in the open", realm.Host)
	}
	var req *http.Request
	if c.IdentityToken != "" {
		form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {c.IdentityToken}, "service": {params["service"]},
			"scope": {scope}, "client_id": {"skerry"}}
		req, err = http.NewRequestWithContext(ctx, http.MethodPost, realm.String(), strings.NewReader(form.Encode()))
		if err == nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
	} else {
		q := realm.Query()
		if params["service"] != "" {
			q.Set("service", params["service"])
		}
		q.Set("scope", scope)
		realm.RawQuery = q.Encode()
		req, err = http.NewRequestWithContext(ctx, http.MethodGet, realm.String(), nil)
		if err == nil && c.Username != "" {
			req.Header.Set("Authorization", basic(c))
		}
	}
	if err != nil {
		return token{}, err
	}
	res, err := s.http().Do(req)
	if err != nil {
		return token{}, redact(err)
	}
	if res.StatusCode != http.StatusOK {
		return token{}, answer(res)
	}
	defer res.Body.Close()
	var doc struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&doc); err != nil {
		return token{}, fmt.Errorf("its token server answers nonsense: %w", err)
	}
	if doc.Token == "" {
		doc.Token = doc.AccessToken
	}
	if doc.Token == "" {
		return token{}, errors.New("its token server gives no token")
	}
	if doc.ExpiresIn < 60 {
		doc.ExpiresIn = 60 // as the protocol says
	}
	return token{header: "Bearer " + doc.Token, expires: time.Now().Add(time.Duration(doc.ExpiresIn-10) * time.Second)}, nil
}

// parseChallenge reads one WWW-Authenticate value: a scheme and parameters, quoted or not.
func parseChallenge(s string) (scheme string, params map[string]string) {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(s), " ")
	params = map[string]string{}
	for rest = strings.TrimSpace(rest); rest != ""; {
		k, after, ok := strings.Cut(rest, "=")
		if !ok {
			break
		}
		k = strings.ToLower(strings.Trim(k, " ,"))
		var v string
		if strings.HasPrefix(after, `"`) {
			v, rest, _ = strings.Cut(after[1:], `"`)
		} else {
			v, rest, _ = strings.Cut(after, ",")
		}
		params[k] = strings.TrimSpace(v)
		rest = strings.TrimLeft(rest, " ,")
	}
	return strings.ToLower(scheme), params
}
