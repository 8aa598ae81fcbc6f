package ingress

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/spec"
)

func pemPair(t testing.TB, x *x509.Certificate) Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	x.SerialNumber, x.NotBefore, x.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, x, x, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	k, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Certificate{"mine", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: k})}
}

func certificate(t testing.TB, host string) Certificate {
	return pemPair(t, &x509.Certificate{DNSNames: []string{host}, Subject: pkix.Name{CommonName: host}})
}

func authority(t testing.TB) (Certificate, *x509.CertPool) {
	c := pemPair(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "site"}})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.CertPEM)
	return c, pool
}

// echo runs a TCP server behind a service address that says its name, repeats what it hears, and ends when that ends.
func (w *world) echo(t testing.TB, at string, config *tls.Config) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	t.Cleanup(func() { l.Close() })
	w.mu.Lock()
	w.at[at] = l.Addr().String()
	w.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b, _ := io.ReadAll(c)
				fmt.Fprintf(c, "%s %q", at, b)
			}()
		}
	}()
}

// talk sends a text, ends its direction, and gives what comes back.
func talk(t testing.TB, c net.Conn, err error, s string) string {
	t.Helper()
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c, s)
	_ = c.(interface{ CloseWrite() error }).CloseWrite()
	b, _ := io.ReadAll(c)
	return string(b)
}

func TestTCP(t *testing.T) {
	ca, pool := authority(t)
	inner := certificate(t, "pass.example")
	pair, err := tls.X509KeyPair(inner.CertPEM, inner.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	in, w, addr := start(t, Options{})
	w.echo(t, "1/10.30.1.1:5432", nil)
	w.echo(t, "1/10.30.1.2:5432", &tls.Config{Certificates: []tls.Certificate{pair}})
	w.echo(t, "1/10.30.1.3:5432", nil)
	plain := Route{Name: "plain", Net: 1, Targets: to("10.30.1.1:5432")}
	proxied, away := plain, plain
	proxied.ProxyProtocol = true
	away.Targets = to("10.30.9.9:1")
	pass := Route{Name: "pass", Host: "pass.example", Net: 1, Targets: to("10.30.1.2:5432")}
	ended := Route{Name: "ended", Host: "*.ended.example", TLS: spec.TLSSelf, Net: 1, Targets: to("10.30.1.3:5432")}
	tcp := func(n int, r ...Route) Listener {
		return Listener{Addr: port(n), Protocol: spec.IngressTCP, Routes: r}
	}
	set(t, in, Config{Listeners: []Listener{tcp(1, plain), tcp(2, proxied), tcp(3, away), tcp(4, pass, ended, plain), tcp(5, pass)}, Authority: &ca})

	c, err := net.Dial("tcp", addr(1))
	if got := talk(t, c, err, "hello"); got != `1/10.30.1.1:5432 "hello"` {
		t.Error(got)
	}
	c, err = net.Dial("tcp", addr(2))
	if got := talk(t, c, err, "hello"); !strings.HasPrefix(got, `1/10.30.1.1:5432 "\r\n\r\n\x00\r\nQUIT\n!\x11\x00\f\x7f\x00\x00\x01\x7f\x00\x00\x01`) || !strings.HasSuffix(got, `hello"`) {
		t.Error(got)
	}
	c, err = net.Dial("tcp", addr(3))
	if got := talk(t, c, err, ""); got != "" {
		t.Error(got)
	}
	// By name: passed on as it is, ended here, and what is no TLS.
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(inner.CertPEM)
	tc, err := tls.Dial("tcp", addr(4), &tls.Config{RootCAs: roots, ServerName: "pass.example"})
	if got := talk(t, tc, err, "a"); got != `1/10.30.1.2:5432 "a"` {
		t.Error(got)
	}
	tc, err = tls.Dial("tcp", addr(4), &tls.Config{RootCAs: pool, ServerName: "x.ended.example"})
	if got := talk(t, tc, err, "b"); got != `1/10.30.1.3:5432 "b"` {
		t.Error(got)
	}
	c, err = net.Dial("tcp", addr(4))
	if got := talk(t, c, err, "c"); got != `1/10.30.1.1:5432 "c"` {
		t.Error(got)
	}
	c, err = net.Dial("tcp", addr(5))
	if got := talk(t, c, err, "c"); got != "" {
		t.Error(got)
	}
	if conn, err := tls.Dial("tcp", addr(5), &tls.Config{RootCAs: roots, ServerName: "other.example"}); err == nil {
		conn.Close()
		t.Error("another name")
	}
	for _, r := range in.Stats().Routes {
		if r.Listen == port(3) && r.Failed != 1 || r.Listen == port(1) && (r.BytesIn != 5 || r.BytesOut != 24) {
			t.Errorf("%+v", r)
		}
	}
}

func TestTCPConnectionsOutliveTheListener(t *testing.T) {
	in, w, addr := start(t, Options{})
	w.echo(t, "1/10.30.1.1:1", nil)
	set(t, in, Config{Listeners: []Listener{{Addr: port(1), Protocol: spec.IngressTCP, Routes: []Route{{Net: 1, Targets: to("10.30.1.1:1")}}}}})
	c, err := net.Dial("tcp", addr(1))
	if err != nil {
		t.Fatal(err)
	}
	for in.Stats().Conns == 0 { // it may not be accepted yet
		time.Sleep(time.Millisecond)
	}
	set(t, in, Config{Listeners: []Listener{{Addr: port(1), Protocol: spec.IngressHTTP}}})
	if got := talk(t, c, nil, "hello"); got != `1/10.30.1.1:1 "hello"` {
		t.Error(got)
	}
	if got := raw(t, addr(1), get("a", "/")); len(got) != 1 || got[0][:3] != "404" {
		t.Error(got)
	}
}

func TestProxyHeader(t *testing.T) {
	a := func(s string) net.Addr { x, _ := net.ResolveTCPAddr("tcp", s); return x }
	if got := proxyHeader(a("[2001:db8::1]:258"), a("[2001:db8::2]:80")); len(got) != 16+36 || got[13] != 0x21 || got[15] != 36 || !bytes.Equal(got[48:], []byte{1, 2, 0, 80}) {
		t.Errorf("%x", got)
	}
	if got := proxyHeader(a("[2001:db8::1]:258"), a("10.0.0.1:80")); len(got) != 16 || got[12] != 0x20 {
		t.Errorf("%x", got)
	}
}

func FuzzPeekHello(f *testing.F) {
	near, far := net.Pipe()
	go func() {
		_ = tls.Client(near, &tls.Config{ServerName: "shop.example"}).Handshake()
	}()
	hello := make([]byte, 4096)
	n, err := far.Read(hello)
	if err != nil {
		f.Fatal(err)
	}
	near.Close()
	far.Close()
	f.Add(hello[:n])
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Add([]byte{22, 3, 1, 255, 255})
	f.Fuzz(func(t *testing.T, in []byte) {
		near, far := net.Pipe()
		go func() { _, _ = near.Write(in); near.Close() }()
		seen, _, err := peekHello(far)
		_, _ = io.Copy(io.Discard, far)
		far.Close()
		if err == nil && !bytes.HasPrefix(in, seen) {
			t.Fatal("what was read is not what was sent")
		}
	})
}
