package acmeclient

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
)

func accountKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// answers has challenges answered by listeners of the test, and by the name server of the authority.
type answers struct {
	t         testing.TB
	ca        *testenv.ACME
	mu        sync.Mutex
	http      map[string]string // answers, by token
	alpn      map[string]*tls.Certificate
	presented []string
	wrong     bool
}

// listen opens the listeners, and gives their ports.
func (a *answers) listen() (httpPort, tlsPort int) {
	a.http, a.alpn = map[string]string{}, map[string]*tls.Certificate{}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		text := a.http[strings.TrimPrefix(r.URL.Path, "/.well-known/acme-challenge/")]
		if a.wrong {
			text = "somebody else's"
		}
		_, _ = io.WriteString(w, text)
	}))
	a.t.Cleanup(plain.Close)
	secure, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{NextProtos: []string{"acme-tls/1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			if c := a.alpn[h.ServerName]; c != nil {
				return c, nil
			}
			return nil, errors.New("nobody asked for that")
		}})
	if err != nil {
		a.t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := secure.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake()
			c.Close()
		}
	})
	a.t.Cleanup(func() { secure.Close(); serving.Wait() })
	return plain.Listener.Addr().(*net.TCPAddr).Port, secure.Addr().(*net.TCPAddr).Port
}

func (a *answers) Present(_ context.Context, c *Challenge) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.presented = append(a.presented, c.Kind)
	switch {
	case c.Record != "":
		return a.dns("set-txt", map[string]string{"host": c.Record + ".", "value": c.Value})
	case c.Answer.Answer != "":
		a.http[c.Answer.Token] = c.Answer.Answer
		return nil
	}
	pair, err := tls.X509KeyPair(c.Answer.CertPEM, c.Answer.KeyPEM)
	a.alpn[c.Answer.Host] = &pair
	return err
}

func (a *answers) Withdraw(c *Challenge) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.presented = append(a.presented, "no "+c.Kind)
	if c.Record != "" {
		_ = a.dns("clear-txt", map[string]string{"host": c.Record + "."})
	}
	delete(a.http, c.Answer.Token)
	delete(a.alpn, c.Answer.Host)
}

func (a *answers) dns(what string, m map[string]string) error {
	text, _ := json.Marshal(m)
	resp, err := http.Post(a.ca.DNS+"/"+what, "application/json", strings.NewReader(string(text)))
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// authority starts Pebble with listeners that it asks.
func authority(t testing.TB, badNonces int) *answers {
	t.Helper()
	a := &answers{t: t, ca: &testenv.ACME{BadNonces: badNonces}}
	a.ca.HTTPPort, a.ca.TLSPort = a.listen()
	a.ca.Open(t, "../..")
	return a
}

func (a *answers) client(directory string) *Client {
	text, err := os.ReadFile(a.ca.CAFile)
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	c := New(Options{Directory: directory, Email: "operator@example.org", Roots: pool, Key: accountKey(a.t)})
	a.t.Cleanup(c.Close)
	return c
}

// check verifies a certificate against the authority's root, as a client does.
func (a *answers) check(host string, cert, key []byte) {
	a.t.Helper()
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		a.t.Fatalf("the certificate of %s cannot be used: %v", host, err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(a.ca.Roots())
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	name := strings.Replace(host, "*", "any", 1)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: between}); err != nil {
		a.t.Errorf("a client does not accept the certificate of %s: %v", host, err)
	}
}

// TestOrder orders certificates of Pebble, by each challenge, while it refuses a third of all nonces.
func TestOrder(t *testing.T) {
	ca := authority(t, 33)
	client := ca.client(ca.ca.URL)
	for _, row := range []struct {
		host  string
		kinds []string
		want  string
	}{
		{"shop.example.org", []string{"http-01"}, "http-01"},
		{"shop.example.org", []string{"tls-alpn-01"}, "tls-alpn-01"},
		{"*.example.org", []string{"dns-01"}, "dns-01"},
		{"shop.example.org", []string{"none-77", "dns-01", "http-01"}, "dns-01"},
	} {
		ca.presented = nil
		cert, key, err := client.Order(t.Context(), row.host, row.kinds, ca)
		if err != nil {
			t.Fatalf("order %s by %v: %v", row.host, row.kinds, err)
		}
		ca.check(row.host, cert, key)
		if got, want := strings.Join(ca.presented, ", "), row.want+", no "+row.want; got != want {
			t.Errorf("challenges for %s: got %s, want %s", row.host, got, want)
		}
	}
}

// TestBinding has an authority ask for accounts of operators: only a client that is bound to one gets a certificate, also where its process
// begins anew, as at a successor.
func TestBinding(t *testing.T) {
	const id, text = "operator-1", "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
	right, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	ca := &answers{t: t, ca: &testenv.ACME{Bindings: map[string]string{id: text}}}
	ca.ca.HTTPPort, ca.ca.TLSPort = ca.listen()
	ca.ca.Open(t, "../..")
	site := accountKey(t)
	for _, row := range []struct {
		name, id string
		key      []byte
		want     string // in the failure; empty: there is none
	}{
		{"without one", "", nil, "externalAccountRequired"},
		{"another key", id, make([]byte, 32), "account at the certificate authority"},
		{"another account", "operator-2", right, "account at the certificate authority"},
		{"the operator's", id, right, ""},
		{"the operator's, anew", id, right, ""},
	} {
		client := ca.client(ca.ca.URL)
		client.opt.Key, client.opt.BindingID, client.opt.BindingKey = site, row.id, row.key
		cert, key, err := client.Order(t.Context(), "shop.example.org", []string{"http-01"}, ca)
		if row.want == "" && err == nil {
			ca.check("shop.example.org", cert, key)
		} else if row.want == "" || err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want a failure with %q, or none where that is empty", row.name, err, row.want)
		}
		if err != nil && strings.Contains(err.Error(), text) {
			t.Errorf("%s: the failure shows the key: %v", row.name, err)
		}
	}
}

// TestAuthorityForgets has the authority lose its accounts.
func TestAuthorityForgets(t *testing.T) {
	a := authority(t, 0)
	c := a.client(a.ca.URL)
	for range 2 {
		cert, key, err := c.Order(t.Context(), "shop.example.org", []string{"http-01"}, a)
		if err != nil {
			t.Fatal(err)
		}
		a.check("shop.example.org", cert, key)
		a.ca.Stop()
		_, _, err = c.Order(t.Context(), "shop.example.org", []string{"http-01"}, a)
		if f := new(Failure); !errors.As(err, &f) || !f.Unreachable {
			t.Errorf("failure while the authority is down: got %v, want one that is unreachable", err)
		}
		a.ca.Start()
	}
}

// TestOrderFails has orders fail at the authority: for a host that is not the site's, and for one that it signs nothing for.
func TestOrderFails(t *testing.T) {
	ca := authority(t, 0)
	client := ca.client(ca.ca.URL)
	ca.wrong = true
	for _, row := range []struct {
		host string
		kind string
		want string
	}{
		{"shop.example.org", "http-01", "did not find the proof of shop.example.org"},
		{"shop.example.org", "carrier-pigeon", "the authority takes"},
		{"*.example.org", "http-01", "the authority takes"},
		{"a_b.example.org", "http-01", "illegal character"},
	} {
		_, _, err := client.Order(t.Context(), row.host, []string{row.kind}, ca)
		f := new(Failure)
		if !errors.As(err, &f) || !strings.Contains(f.Error(), row.want) || f.Unreachable {
			t.Errorf("order %s by %s: got %v, want a failure with %q that counts", row.host, row.kind, err, row.want)
		}
	}
	if slices.Contains(ca.presented, "carrier-pigeon") {
		t.Errorf("challenges: got %v, want none of a kind that is not known", ca.presented)
	}
}

// TestHostileAuthority asks authorities that do not answer as one should. None holds the site up.
func TestHostileAuthority(t *testing.T) {
	release := make(chan struct{})
	directory := func(answer http.ResponseWriter, request *http.Request) {
		fmt.Fprintf(answer, `{"newNonce":"https://%[1]s/x","newAccount":"https://%[1]s/x","newOrder":"https://%[1]s/x"}`, request.Host)
	}
	for name, row := range map[string]struct {
		serve http.HandlerFunc
		want  string
	}{
		"hangs":   {func(http.ResponseWriter, *http.Request) { <-release }, "took too long"},
		"garbage": {func(answer http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(answer, "\x00\xff{{{") }, "invalid character"},
		"redirects": {func(answer http.ResponseWriter, request *http.Request) {
			http.Redirect(answer, request, "https://127.0.0.1:1/", http.StatusFound)
		}, "is not followed"},
		"huge": {func(answer http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(answer, `{"newOrder":"`)
			for range 100 {
				if _, err := io.WriteString(answer, strings.Repeat("x", 1<<16)); err != nil {
					return
				}
			}
		}, "too large"},
		"huge refusal": {func(answer http.ResponseWriter, _ *http.Request) {
			answer.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(answer, `{"detail":"`+strings.Repeat("no", 1<<20))
		}, "403"},
		"in the clear": {func(answer http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(answer, `{"newNonce":"http://127.0.0.1:1/","newAccount":"http://127.0.0.1:1/","newOrder":"http://127.0.0.1:1/"}`)
		}, "not https"},
		"busy": {func(answer http.ResponseWriter, request *http.Request) {
			if request.URL.Path == "/dir" {
				directory(answer, request)
				return
			}
			answer.Header().Set("Retry-After", "4000000000")
			answer.Header().Set("Replay-Nonce", "abc")
			if request.Method == http.MethodHead {
				return
			}
			answer.WriteHeader(http.StatusTooManyRequests)
		}, "429"},
		"no account": {func(answer http.ResponseWriter, request *http.Request) {
			if request.URL.Path == "/dir" {
				directory(answer, request)
				return
			}
			answer.Header().Set("Replay-Nonce", "abc")
			answer.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(answer, "{}")
		}, "no address"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewTLSServer(row.serve)
			c := New(Options{Directory: s.URL + "/dir", Key: accountKey(t), Timeout: time.Second, Transport: s.Client().Transport})
			if name == "hangs" {
				defer func() { close(release) }()
			}
			_, _, err := c.Order(t.Context(), "shop.example.org", []string{"http-01"}, nil)
			f := new(Failure)
			if !errors.As(err, &f) || !strings.Contains(f.Error(), row.want) {
				t.Errorf("order: got %v, want a failure with %q", err, row.want)
			}
			if name == "busy" && (f.RetryAfter != maxWait || f.Unreachable) {
				t.Errorf("retry after: got %v, unreachable %v, want %v and one that counts", f.RetryAfter, f.Unreachable, maxWait)
			}
			t.Cleanup(s.Close)
		})
	}
}
