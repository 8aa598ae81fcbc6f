package auth

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// TestStandbyIdentity: images go to successors and to whoever has the authority's own key, and to no worker, cluster or other site.
func TestStandbyIdentity(t *testing.T) {
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for _, tier := range []wire.Tier{wire.TierRoot, wire.TierCluster} {
		a, err := OpenAuthority(t.Context(), AuthorityConfig{Site: "harbour", Tier: tier, Store: st, Prefix: "auth-" + string(tier) + "/"})
		if err != nil {
			t.Fatal(err)
		}
		other, err := newSiteCA("harbour", tier)
		if err != nil {
			t.Fatal(err)
		}
		pub, _, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		admit := func(ca *siteCA, of wire.Tier, usage x509.ExtKeyUsage) error {
			der, err := ca.issue(pub, of, "second", 0, time.Now(), time.Hour, usage)
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			cs := tls.ConnectionState{NegotiatedProtocol: imagesProto, PeerCertificates: []*x509.Certificate{leaf}}
			return a.ServerTLS().VerifyConnection(cs)
		}
		for _, of := range []wire.Tier{wire.TierRoot, wire.TierCluster, wire.TierWorker, wire.TierSuccessor} {
			may := of == tier || of == wire.TierSuccessor
			if err := admit(a.ca, of, x509.ExtKeyUsageClientAuth); (err == nil) != may {
				t.Errorf("a %s at a %s: got %v, want admitted: %v", of, tier, err, may)
			}
			if err := admit(other, of, x509.ExtKeyUsageClientAuth); err == nil {
				t.Errorf("a %s of another site at a %s: got no error, want one", of, tier)
			}
		}
		if err := admit(a.ca, tier, x509.ExtKeyUsageServerAuth); err == nil {
			t.Errorf("the certificate with which a %s serves: got no error, want one", tier)
		}
		cfg, err := a.StandbyTLS("second-1")
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(cfg.Certificates[0].Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		id, err := a.IdentifyStandby(tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}})
		if err != nil || id.Name != "second-1" || id.Tier != tier {
			t.Errorf("a process with the store of a %s: got %+v, %v, want second-1", tier, id, err)
		}
		if _, err := a.Identify(tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}); err == nil {
			t.Errorf("the same as a child of a %s: got no error, want one", tier)
		}
	}
}
