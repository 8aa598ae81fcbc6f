package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dns "golang.org/x/net/dns/dnsmessage"
)

const federation = `
name: NAME
hosts:
- {name: site, role: root, address: 10.88.0.10, args: [--dns, "10.88.0.10:53", --dns-zone, example.org]}
- {name: east, role: cluster, address: 10.88.0.20, args: [--dns, "10.88.0.20:53", --dns-zone, east.example.org]}
- {name: gate-e, role: worker, cluster: east}
- {name: phone, role: none}
`

const rootApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: web
    image: demo/kit:1
    args: [answer, ":80"]
    ports: [{name: http, port: 80}]
    resources: {cpu: 20m, memory: 32Mi}
    ingress:
    - {host: shop.example.org, port: http}
    - {host: shop.example.org, port: http, tls: shop}
`

// follow asks a name server as a resolver does, and goes where it is led.
func (p *phone) follow(server, host string) (netip.Addr, error) {
	for range 8 {
		m, err := p.exchange(server, host)
		if err != nil {
			return netip.Addr{}, err
		}
		led := false
		for _, a := range m.Answers {
			switch r := a.Body.(type) {
			case *dns.AResource:
				return netip.AddrFrom4(r.A), nil
			case *dns.CNAMEResource:
				host, led = strings.TrimSuffix(r.CNAME.String(), "."), true
			}
		}
		for _, a := range m.Additionals {
			if r, ok := a.Body.(*dns.AResource); ok && !led {
				server, led = netip.AddrFrom4(r.A).String(), true
			}
		}
		if !led {
			return netip.Addr{}, errors.New(m.RCode.String())
		}
	}
	return netip.Addr{}, errors.New("led in circles")
}

// TestIngressUnderARoot has an application of a root let clients in at a site: by a certificate that was uploaded at the
// root, and under a name that the root answers for.
func TestIngressUnderARoot(t *testing.T) {
	s := newSite(t, federation, rootApp)
	l := s.l
	p := &phone{l: l}
	gate := l.Topology.Host("gate-e").Address
	s.await("the root leads to the ingress", func() bool {
		at, err := p.follow("10.88.0.10", "shop.example.org")
		return err == nil && at.String() == gate
	})
	s.await("it answers", func() bool {
		out, err := s.curl("phone", "--resolve", "shop.example.org:80:"+gate, "http://shop.example.org/")
		_, worker := by(out)
		return err == nil && worker == "gate-e"
	})
	if out := string(s.skerry("", "get", "ingress", "-o", "wide")); !strings.Contains(out, "there is no") && !strings.Contains(out, "no worker offers it now") {
		t.Errorf("nothing is said of a certificate that is missing:\n%s", out)
	}

	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	x := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "shop"}, DNSNames: []string{"shop.example.org"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, x, x, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	for file, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.skerry("", "certificate", "put", "shop", "--cert", cert, "--key", key)
	if out := string(s.skerry("", "certificate", "get", "-o", "yaml")); !strings.Contains(out, "shop.example.org") || strings.Contains(out, "PRIVATE") {
		t.Error(out)
	}
	s.await("it answers by the certificate", func() bool {
		out, err := s.curl("phone", "--cacert", cert, "--resolve", "shop.example.org:443:"+gate, "https://shop.example.org/")
		_, worker := by(out)
		return err == nil && worker == "gate-e"
	})
	s.await("the root knows where", func() bool {
		out := string(s.skerry("", "describe", "app", "shop"))
		return strings.Contains(out, "shop.example.org:443/ with tls shop at east")
	})
	if out, err := s.try("", l.Binary, "certificate", "delete", "shop"); err == nil || !strings.Contains(err.Error(), "names certificate shop") {
		t.Errorf("%s, %v", out, err)
	}
	s.skerry("", "delete", "app", "shop")
	s.naps("phone", "gate-e", 1)
}
