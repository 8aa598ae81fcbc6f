package ingress

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"skerry.dev/skerry/spec"
)

// alpn connects as a certificate authority does, and gives whom the certificate is for and what was agreed on.
func alpn(addr, host string, protocols ...string) string {
	c, err := tls.Dial("tcp", addr, &tls.Config{ServerName: host, NextProtos: protocols, InsecureSkipVerify: true})
	if err != nil {
		return "refused"
	}
	defer c.Close()
	st := c.ConnectionState()
	rest, _ := io.ReadAll(c)
	return strings.TrimSpace(fmt.Sprint(st.PeerCertificates[0].Subject.CommonName, " ", st.NegotiatedProtocol, " ", string(rest)))
}

// TestChallenges answers an authority before there is an instance, and nobody else.
func TestChallenges(t *testing.T) {
	in, overlay, addr := start(t, Options{})
	overlay.echo(t, "1/10.30.0.1:80", nil)
	overlay.serve(t, "1/10.30.0.2:80", func(overlay http.ResponseWriter, r *http.Request) { fmt.Fprint(overlay, "service ", r.URL.Path) })
	answer := pemPair(t, &x509.Certificate{DNSNames: []string{"shop.example.org"}})
	conf := Config{Challenges: []Challenge{{Host: "shop.example.org", Token: "tok", Answer: "tok.print"},
		{Host: "shop.example.org", Token: "tls", CertPEM: answer.CertPEM, KeyPEM: answer.KeyPEM},
		{Host: "db.example.org", Token: "db", CertPEM: answer.CertPEM, KeyPEM: answer.KeyPEM}}}
	set(t, in, conf)
	if got := in.Answers(); len(got) > 0 {
		t.Errorf("answered without a listener: got %v, want nothing", got)
	}
	ca, _ := authority(t)
	conf.Authority = &ca
	conf.Listeners = []Listener{web(Route{Name: "web", Host: "other.example.org", Targets: to("10.30.0.2:80"), Net: 1}),
		{Addr: port(443), Protocol: spec.IngressHTTP, Routes: []Route{{Name: "web", Host: "shop.example.org", TLS: spec.TLSSelf}}},
		{Addr: port(5432), Protocol: spec.IngressTCP, Routes: []Route{{Name: "db", Host: "db.example.org", TLS: spec.TLSSelf,
			Targets: to("10.30.0.1:80"), Net: 1}}}}
	set(t, in, conf)
	if got := fmt.Sprint(in.Answers()); got != "[db tls tok]" {
		t.Errorf("answered: got %s, want db, tls and tok", got)
	}
	for request, want := range map[string]string{
		"GET /.well-known/acme-challenge/tok HTTP/1.0\r\nHost: shop.example.org:80\r\n\r\n": "200 tok.print",
		"GET /.well-known/acme-challenge/tok HTTP/1.0\r\nHost: other.example.org\r\n\r\n":   "200 service /.well-known/acme-challenge/tok",
		"GET /.well-known/acme-challenge/x HTTP/1.0\r\nHost: other.example.org\r\n\r\n":     "200 service /.well-known/acme-challenge/x",
		"GET /.well-known/acme-challenge/no HTTP/1.0\r\nHost: shop.example.org\r\n\r\n": "404 404 Not Found: no service is " +
			"offered under this host and path",
		"POST /.well-known/acme-challenge/tok HTTP/1.0\r\nHost: shop.example.org\r\n\r\n": "404 404 Not Found: no service is " +
			"offered under this host and path",
	} {
		if got := strings.Join(raw(t, addr(80), request), ", "); got != want {
			t.Errorf("%q: got %q, want %q", request, got, want)
		}
	}
	dials := overlay.dials.Load()
	for _, x := range []struct {
		port  int
		host  string
		proto string
		want  string
	}{
		{443, "shop.example.org", protocolALPN, "acme-tls/1"},
		{443, "db.example.org", protocolALPN, "acme-tls/1"}, // it is known, whoever has the port
		{443, "nobody.example.org", protocolALPN, "refused"},
		{5432, "db.example.org", protocolALPN, "acme-tls/1"},
	} {
		if got := alpn(addr(x.port), x.host, x.proto); got != x.want {
			t.Errorf("%s at port %d by %s: got %q, want %q", x.host, x.port, x.proto, got, x.want)
		}
	}
	if got := overlay.dials.Load(); got != dials {
		t.Errorf("connections to instances because of an authority: got %d, want none", got-dials)
	}
	conf.Challenges = nil
	set(t, in, conf)
	if got := alpn(addr(443), "shop.example.org", protocolALPN); got != "refused" || len(in.Answers()) > 0 {
		t.Errorf("after the order: got %s, answered %v, want refused and none", got, in.Answers())
	}
}

// FuzzChallenges takes any challenge, asks for it, and finds its answer or none.
func FuzzChallenges(f *testing.F) {
	f.Add("shop.example.org", "tok", "tok.print", "/.well-known/acme-challenge/tok", []byte{})
	f.Add("shop.example.org", "", "x", "/.well-known/acme-challenge/", []byte("-----BEGIN CERTIFICATE-----\n"))
	f.Add("", "..", "x\r\ny", "/.well-known/acme-challenge/..%2f", []byte{0})
	f.Fuzz(func(t *testing.T, host, token, answer, path string, cert []byte) {
		c, _ := newChallenges([]Challenge{{Host: host, Token: token, Answer: answer, CertPEM: cert, KeyPEM: cert}})
		r := &http.Request{Method: http.MethodGet, Host: host}
		var err error
		if r.URL, err = r.URL.Parse("http://x"); err != nil {
			t.Fatal(err)
		}
		r.URL.Path = path
		w := httptest.NewRecorder()
		if c.answer(w, r) && (w.Body.String() != answer || path != challengePath+token) {
			t.Errorf("%q: got %q, want %q for token %q alone", path, w.Body.String(), answer, token)
		}
		if config, err := c.config(&tls.ClientHelloInfo{ServerName: host, SupportedProtos: []string{protocolALPN}}); err != nil ||
			config != nil && len(cert) == 0 {
			t.Errorf("by TLS: got a certificate or an error %v, want none", err)
		}
	})
}
