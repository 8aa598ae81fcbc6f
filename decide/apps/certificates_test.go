package apps

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// keyPair makes a certificate for a name, and its key.
func keyPair(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	x := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: now, NotAfter: now.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, x, x, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}

func TestCertificates(t *testing.T) {
	c := controller(t, Quota{})
	do(t, c, PutOrg{Org: Org{Name: "other"}})
	cert, key := keyPair(t, "shop.example.org")
	_, foreign := keyPair(t, "shop.example.org")
	refused(t, c, PutCertificate{Org: "nobody", Name: "shop", CertPEM: cert, KeyPEM: key}, skerry.CodeNotFound, "no organisation")
	for name, part := range map[string]string{"Shop!": "name of the certificate", "self": "something else", "off": "something else"} {
		fx, _ := c.Handle(now, PutCertificate{Org: "harbour", Name: name, CertPEM: cert, KeyPEM: key})
		if e := skerry.AsError(fx.Err); e == nil || !bytes.Contains([]byte(e.Error()), []byte(part)) {
			t.Errorf("%s: %v", name, e)
		}
	}
	refused(t, c, PutCertificate{Org: "harbour", Name: "shop", CertPEM: cert, KeyPEM: foreign}, skerry.CodeInvalid, "cannot be used")
	refused(t, c, PutCertificate{Org: "harbour", Name: "shop", CertPEM: cert}, skerry.CodeInvalid, "cannot be used")
	refused(t, c, PutCertificate{Org: "harbour", Name: "shop", CertPEM: bytes.Repeat(cert, 100), KeyPEM: key}, skerry.CodeInvalid, "at most")

	do(t, c, apply(1, func(a *Apply) {
		s := &a.App.Spec.Services[0]
		s.Ports = []spec.Port{{Name: "http", Port: 80}}
		s.Ingress = []spec.Ingress{{Host: "shop.example.org", Port: "http", TLS: "shop"}, {Host: "safe.example.org", Port: "http", TLS: spec.TLSSelf}}
	}))
	if n := c.Network(shop); len(n.Certificates) != 0 || len(n.Services[0].Ingress) != 2 {
		t.Errorf("%+v", n)
	}
	c.Readdressed()
	fx := do(t, c, PutCertificate{Org: "harbour", Name: "shop", Actor: "ada", CertPEM: cert, KeyPEM: key})
	do(t, c, PutCertificate{Org: "other", Name: "shop", CertPEM: cert, KeyPEM: key})
	if v, ok := fx.Result.(view.CertificateView); !ok || v.Hosts[0] != "shop.example.org" || v.Author != "ada" || len(v.Print) != 64 {
		t.Errorf("%+v", fx.Result)
	} else if text, _ := json.Marshal(v); bytes.Contains(text, []byte("PRIVATE")) {
		t.Error("the key is shown")
	}
	// The application that names it is told at once; those of others are not concerned.
	if list := c.Readdressed(); len(list) != 1 || list[0] != shop {
		t.Errorf("readdressed: %v", list)
	}
	if n := c.Network(shop); len(n.Certificates) != 1 || n.Certificates[0].Name != "shop" || !bytes.Equal(n.Certificates[0].KeyPEM, key) {
		t.Errorf("%+v", n.Certificates)
	} else if text, _ := json.Marshal(n); bytes.Contains(text, []byte("PRIVATE")) || bytes.Contains(text, []byte("KeyPEM")) {
		t.Error("the directory shows the key")
	}
	if list := c.Certificates("harbour"); len(list) != 1 || list[0].Org != "harbour" {
		t.Errorf("%+v", list)
	}
	// Another life has it, too.
	d := New([16]byte{2}, "t")
	for _, w := range fx.Writes {
		if ok, err := d.Load(w.Key, w.Value); !ok || err != nil {
			t.Errorf("%s: %v, %v", w.Key, ok, err)
		}
	}
	if list := d.Certificates("harbour"); len(list) != 1 || list[0].Author != "ada" {
		t.Errorf("%+v", list)
	}
	refused(t, c, DeleteCertificate{Org: "harbour", Name: "shop"}, skerry.CodeConflict, "application default/shop names certificate shop")
	refused(t, c, DeleteCertificate{Org: "harbour", Name: "none"}, skerry.CodeNotFound, "no certificate")
	do(t, c, DeleteCertificate{Org: "other", Name: "shop"})
	if len(c.Certificates("other")) != 0 {
		t.Error("it is still there")
	}
}
