package core

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/certs"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// publicSite is a site that orders certificates.
func publicSite(t *testing.T) *ingressSite {
	s := newIngressSite(t)
	s.public(certs.Policy{Directory: "https://ca.example/dir"})
	return s
}

// public has the site start with a policy.
func (s *ingressSite) public(p certs.Policy) {
	s.c.opt.Admission.Certificates = p
	s.c.certs.Certs = certs.New(p)
	s.c.certs.account.KeyPEM = []byte("account")
}

func public(host string) spec.Ingress {
	way := web(host, "/")
	way.TLS = spec.TLSACME
	return way
}

// directory is what a worker is told of an application.
func (s *ingressSite) directory(worker, ns, app string) wire.AppNetwork {
	return *item[wire.AppNetwork](s.overlayNetSite, worker, wire.NetworkItem(key(ns, app).App))
}

// step has the core take a message, and gives the effects.
func (s *ingressSite) step(msg any) wire.Effects {
	s.t.Helper()
	fx := s.c.Step(s.now, msg)
	if fx.Err != nil {
		s.t.Fatal(fx.Err)
	}
	s.keep(fx)
	s.events = append(s.events, fx.Events...)
	return fx
}

// TestPublicCertificate orders the certificate of a host once a worker could answer for it, has workers with an ingress answer the
// challenge, and gives them the certificate. Others learn of neither.
func TestPublicCertificate(t *testing.T) {
	site := publicSite(t)
	front, other := site.ingressWorker(1), site.join(2)
	facts := *site.c.workers[front].Facts
	facts.Features = spec.AgentFeatures()
	site.report(front, wire.WorkerReport{Facts: &facts})
	site.offer("acme", "shop", public("shop.example.org"))
	app := key("acme", "shop").App
	state := func() view.PublicCertificate {
		list := []view.AppView{{Key: app, Org: site.c.Apps.App(app).Org, Services: []view.ServiceView{{Name: "web"}}}}
		site.c.showIngress(list)
		return *list[0].Services[0].Ingress[0].Certificate
	}
	site.tell(front)
	site.tell(other)
	if n := site.directory(front, "acme", "shop"); n.Services[0].Ingress[0].TLS != spec.TLSSelf || n.Authority == nil ||
		len(n.Challenges) > 0 {
		t.Errorf("before there is one: got tls %s, authority %v, want the site's own", n.Services[0].Ingress[0].TLS, n.Authority != nil)
	}
	if got := state(); got.State != view.CertificateWaiting || !strings.Contains(got.Reason, "no worker is connected") {
		t.Errorf("while no worker tells of an ingress: got %+v, want it to wait", got)
	}
	site.serve(front, wire.IngressState{Serving: []skerry.AppKey{app}})
	if got := state(); got.State != view.CertificateOrdering || !site.c.certs.Busy() {
		t.Fatalf("when one does: got %+v, want an order", got)
	}
	site.step(ChallengeSet{Host: "shop.example.org", Challenge: &wire.IngressChallenge{Host: "shop.example.org", Token: "tok",
		Answer: "print"}})
	site.tell(front)
	site.tell(other)
	if n := site.directory(front, "acme", "shop"); len(n.Challenges) != 1 || n.Challenges[0].Answer != "print" {
		t.Errorf("challenges at the front: got %v, want the one", n.Challenges)
	}
	if some, _ := site.c.ingress.Answers("tok"); some {
		t.Error("the front answers, and has not said so")
	}
	site.serve(front, wire.IngressState{Serving: []skerry.AppKey{app}, Answers: []string{"tok"}})
	if _, all := site.c.ingress.Answers("tok"); !all {
		t.Error("the front does not answer, and has said so")
	}
	site.step(CertificateDone{certs.Result{Host: "shop.example.org", Org: site.c.Apps.App(app).Org, Why: "the authority is not amused"}})
	if got := state(); got.State != view.CertificateWaiting || got.Reason != "the authority is not amused" || !got.Next.After(site.now) {
		t.Errorf("after a failure: got %+v, want the reason and when it is ordered next", got)
	}
	failed := false
	for _, e := range site.events {
		failed = failed || e.Reason == "CertificateFailed" && e.App == app && strings.Contains(e.Text, "not amused")
	}
	if !failed {
		t.Errorf("events: got %v, want CertificateFailed", site.events)
	}
	site.tell(front)
	if n := site.directory(front, "acme", "shop"); len(n.Challenges) > 0 {
		t.Errorf("challenges after the order: got %v, want none", n.Challenges)
	}
}

// TestPublicCertificateRefused refuses applications whose hosts the site orders no certificates for.
func TestPublicCertificateRefused(t *testing.T) {
	for _, row := range []struct {
		policy certs.Policy
		hosts  []string
		code   skerry.Code
		want   string
	}{
		{certs.Policy{}, []string{"shop.example.org"}, skerry.CodeUnsupported, "the site orders no certificates (tls: acme)"},
		{certs.Policy{Directory: "https://ca", Domains: []string{"example.com"}}, []string{"shop.example.org"}, skerry.CodeUnsupported,
			"only in example.com"},
		{certs.Policy{Directory: "https://ca"}, []string{"*.example.org"}, skerry.CodeUnsupported, "the site cannot set one"},
		{certs.Policy{Directory: "https://ca", HostsPerOrg: 1}, []string{"a.example.org", "b.example.org"}, skerry.CodeQuota,
			"certificates for 1 hosts"},
	} {
		site := newIngressSite(t)
		site.public(row.policy)
		svc := spec.ServiceSpec{Name: "web", Ports: []spec.Port{{Name: "http", Port: 80}}}
		svc.Image = "web:1"
		for _, h := range row.hosts {
			svc.Ingress = append(svc.Ingress, public(h))
		}
		for _, dry := range []bool{true, false} {
			fx := site.c.Step(site.now, apps.Apply{DryRun: dry, App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
				Metadata: spec.Metadata{Name: "shop", Namespace: "acme"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{svc}}}})
			if fx.Err == nil || codeOf(fx.Err) != row.code || !strings.Contains(fx.Err.Error(), row.want) {
				t.Errorf("apply of %v: got %v (%s), want %s with %q", row.hosts, fx.Err, codeOf(fx.Err), row.code, row.want)
			}
		}
		a := spec.Assignment{Org: "acme", Spec: svc}
		if why := site.c.opt.Admission.CheckCertificates(&a); row.code == skerry.CodeUnsupported && (why == nil || !strings.Contains(why.Text,
			row.want)) {
			t.Errorf("assignment of %v: got %v, want %q", row.hosts, why, row.want)
		}
	}
}

// TestPublicCertificateRestart begins a failed order anew after a restart, later, and keeps the account.
func TestPublicCertificateRestart(t *testing.T) {
	site := publicSite(t)
	opt := site.c.opt
	opt.AccountKey = []byte("one")
	kv := map[string][]byte{}
	var keys []string
	for range 2 {
		c := New(opt)
		for k, v := range kv {
			if err := c.Load(k, v); err != nil {
				t.Fatal(err)
			}
		}
		for _, w := range c.Start(site.now).Writes {
			kv[w.Key] = w.Value
		}
		keys = append(keys, string(c.certs.account.KeyPEM))
		opt.AccountKey = []byte("two")
		site.now = site.now.Add(time.Minute)
	}
	if got := fmt.Sprint(keys); got != "[one one]" {
		t.Errorf("keys of the account: got %s, want that of the first start", got)
	}
}

// TestTakeOverOfOrder has a successor take over in the middle of an order: it begins the order anew, with the account that the site has.
func TestTakeOverOfOrder(t *testing.T) {
	site := publicSite(t)
	policy := certs.Policy{Directory: "https://ca.example/dir", DNS: true}
	site.public(policy)
	kv := map[string][]byte{}
	keep := func(fx wire.Effects) (orders []OrderCertificate) {
		for _, w := range fx.Writes {
			if kv[w.Key] = w.Value; w.Value == nil {
				delete(kv, w.Key)
			}
		}
		for _, a := range fx.Actions {
			if order, is := a.(OrderCertificate); is {
				orders = append(orders, order)
			}
		}
		return orders
	}
	opt := site.c.opt
	begin := func(key string) (*Core, []OrderCertificate) {
		opt.AccountKey = []byte(key)
		core := New(opt)
		for k, v := range kv {
			if err := core.Load(k, v); err != nil {
				t.Fatalf("record %s: %v", k, err)
			}
		}
		return core, keep(core.Start(site.now))
	}
	leader, _ := begin("of the leader")
	replicas := 1
	service := spec.ServiceSpec{Name: "web", Replicas: &replicas, Ingress: []spec.Ingress{public("*.example.org")},
		Ports: []spec.Port{{Name: "http", Port: 80}}}
	service.Image = "web:1"
	keep(leader.Step(site.now, apps.PutOrg{Org: apps.Org{Name: "acme"}}))
	keep(leader.Step(site.now, apps.PutNamespace{Namespace: apps.Namespace{Name: "acme", Org: "acme"}}))
	orders := keep(leader.Step(site.now, apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Name: "shop", Namespace: "acme"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{service}}}}))
	if len(orders) != 1 {
		t.Fatalf("orders of the leader: got %d, want 1", len(orders))
	}
	successor, again := begin("of the successor")
	for tries := 0; len(again) == 0 && tries < 100; tries++ {
		site.now = successor.NextWake()
		again = keep(successor.Tick(site.now))
	}
	if len(again) != 1 || again[0].Host != "*.example.org" || string(again[0].Account) != "of the leader" {
		t.Errorf("orders of the successor: got %+v, want one of the same host with the account of the leader", again)
	}
	if got := successor.certs.State("*.example.org", "acme", key("acme", "shop").App); got.State != view.CertificateOrdering {
		t.Errorf("state at the successor: got %+v, want it to be ordered", got)
	}
}

func codeOf(err error) skerry.Code {
	e := new(skerry.Error)
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// TestChallengeLate has an order go on once some workers answer and the others had their time: one alone, which is broken or means ill,
// must not keep the site from its certificates.
func TestChallengeLate(t *testing.T) {
	site := publicSite(t)
	front, mute := site.ingressWorker(1), site.ingressWorker(2)
	for _, w := range []string{front, mute} {
		facts := *site.c.workers[w].Facts
		facts.Features = spec.AgentFeatures()
		site.report(w, wire.WorkerReport{Facts: &facts})
	}
	site.offer("acme", "shop", public("shop.example.org"))
	app, host := key("acme", "shop").App, "shop.example.org"
	for _, w := range []string{front, mute} {
		site.serve(w, wire.IngressState{Serving: []skerry.AppKey{app}})
	}
	answered := func(fx wire.Effects) (n int) {
		for _, a := range fx.Actions {
			if _, is := a.(ChallengeAnswered); is {
				n++
			}
		}
		return n
	}
	site.step(ChallengeSet{Host: host, Challenge: &wire.IngressChallenge{Host: host, Token: "tok", Answer: "print"}})
	if n := answered(site.step(ChallengeLate{Host: host})); n != 0 {
		t.Errorf("answered by nobody: got %d, want 0", n)
	}
	site.step(ChallengeSet{Host: host, Challenge: &wire.IngressChallenge{Host: host, Token: "tok", Answer: "print"}})
	site.serve(front, wire.IngressState{Serving: []skerry.AppKey{app}, Answers: []string{"tok"}})
	if n := answered(site.step(ChallengeLate{Host: host})); n != 1 {
		t.Errorf("answered by one of two, late: got %d, want 1", n)
	}
	if n := answered(site.step(ChallengeLate{Host: host})); n != 0 {
		t.Errorf("answered again: got %d, want 0", n)
	}
}

// TestCertificateOfAnothersHost: who offers a host of another organisation at a port of its own gets no certificate for it, whoever came
// first, as long as the other is reached where authorities look.
func TestCertificateOfAnothersHost(t *testing.T) {
	for _, row := range []struct {
		name, theirs string
		lateOwner    bool
	}{
		{"the same host", "shop.example.org", false}, {"a host below it", "*.example.org", false},
		{"the owner comes later", "shop.example.org", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			site := publicSite(t)
			site.ingressWorker(1)
			mine := web(row.theirs, "/")
			mine.TLS, mine.Listen = spec.TLSSelf, 443
			grab := public("shop.example.org")
			grab.Listen = 8443
			if !row.lateOwner {
				site.offer("acme", "shop", mine)
			}
			site.offer("other", "evil", grab, web("evil.example.net", "/"))
			if want := site.c.certs.Want("shop.example.org"); (want != nil) != row.lateOwner {
				t.Errorf("ordered for another's host: got %+v, want an order: %v", want, row.lateOwner)
			}
			if row.lateOwner {
				site.offer("acme", "shop", mine)
			}
			if want := site.c.certs.Want("shop.example.org"); want != nil {
				t.Errorf("got an order for %s, want none", want.Org)
			}
			evil := site.c.Apps.App(key("other", "evil").App).Org
			if got := site.c.certs.State("shop.example.org", evil, key("other", "evil").App); got.State != view.CertificateRefused {
				t.Errorf("what is shown of it: got %+v, want refused", got)
			}
		})
	}
}

// TestUnservedCertificates has an application order more certificates than its directory has room for: those that workers do not get are
// not shown as valid, with an event and a metric, and the directory still reaches the workers, also beside uploaded certificates.
func TestUnservedCertificates(t *testing.T) {
	for _, row := range []struct {
		name           string
		uploaded, want int // certificates, and how many of the ordered ones are served
	}{{"alone", 0, 8}, {"beside uploaded ones", 8, 7}} {
		t.Run(row.name, func(t *testing.T) { unservedCertificates(t, row.uploaded, row.want) })
	}
}

func unservedCertificates(t *testing.T, uploaded, want int) {
	const hosts = 10
	site := publicSite(t)
	site.public(certs.Policy{Directory: "https://ca.example/dir", OrdersPerHour: 1000})
	front := site.ingressWorker(1)
	facts := *site.c.workers[front].Facts
	facts.Features = spec.AgentFeatures()
	site.report(front, wire.WorkerReport{Facts: &facts})
	var ways []spec.Ingress
	for i := range hosts {
		ways = append(ways, public(fmt.Sprintf("h%d.example.org", i)))
	}
	site.step(apps.PutOrg{Org: apps.Org{Name: "acme"}})
	for i := range uploaded {
		name := fmt.Sprintf("up%d", i)
		cert, key := largeCertificate(t, name+".example.org", site.now)
		site.step(apps.PutCertificate{Org: "acme", Name: name, CertPEM: cert, KeyPEM: key})
		way := web(name+".example.org", "/")
		way.TLS = spec.IngressTLS(name)
		ways = append(ways, way)
	}
	site.offer("acme", "shop", ways...)
	app := key("acme", "shop").App
	site.serve(front, wire.IngressState{Serving: []skerry.AppKey{app}})
	for range hosts { // as many orders at once as the site makes
		for i := range hosts {
			if host := fmt.Sprintf("h%d.example.org", i); site.c.certs.Running(host) {
				cert, key := largeCertificate(t, host, site.now)
				site.step(CertificateDone{certs.Result{Host: host, Org: site.c.Apps.App(app).Org, CertPEM: cert, KeyPEM: key}})
			}
		}
	}
	site.tell(front)
	served := map[string]bool{}
	for _, way := range site.directory(front, "acme", "shop").Services[0].Ingress {
		served[way.Host] = way.TLS.Named()
	}
	list := []view.AppView{{Key: app, Org: site.c.Apps.App(app).Org, Services: []view.ServiceView{{Name: "web"}}}}
	site.c.showIngress(list)
	valid := 0
	for _, way := range list[0].Services[0].Ingress {
		if way.TLS != spec.TLSACME {
			continue
		}
		shown := way.Certificate.State == view.CertificateValid
		if shown != served[way.Host] {
			t.Errorf("%s: got state %s, and served is %v", way.Host, way.Certificate.State, served[way.Host])
		}
		if shown {
			valid++
		} else if way.Certificate.State != view.CertificateUnserved || way.Certificate.NotAfter.IsZero() ||
			!strings.Contains(way.Certificate.Reason, "more than workers take") {
			t.Errorf("%s: got %+v, want it unserved, with the reason and its end", way.Host, way.Certificate)
		}
	}
	if valid != want {
		t.Errorf("valid certificates: got %d, want %d", valid, want)
	}
	told := 0
	for _, e := range site.events {
		if e.Reason == "CertificateUnserved" && e.App == app {
			told++
		}
	}
	if told != hosts-want {
		t.Errorf("events CertificateUnserved: got %d, want %d", told, hosts-want)
	}
	if m := site.c.CertificateMetrics(); m.Valid != want || m.Unserved != hosts-want {
		t.Errorf("metrics: got %+v, want %d valid and %d unserved", m, want, hosts-want)
	}
	if sum := site.c.certificateCounts(site.now); sum == nil || sum.Hosts != hosts || sum.Valid != want || sum.Unserved != hosts-want ||
		sum.Expiring != 0 {
		t.Errorf("the root is told of %+v, want %d hosts, %d valid and %d unserved", sum, hosts, want, hosts-want)
	}
	site.offer("acme", "shop", ways[:2]...)
	if m := site.c.CertificateMetrics(); m.Valid != 2 || m.Unserved != 0 {
		t.Errorf("metrics with two hosts: got %+v, want both valid", m)
	}
}

// largeCertificate makes a certificate whose files have almost as many bytes as one may have.
func largeCertificate(t *testing.T, host string, now time.Time) (cert, private []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	x := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.AddDate(0, 0, 90), DNSNames: []string{host}}
	der, err := x509.CreateCertificate(rand.Reader, x, x, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	cert = append(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: make([]byte, 23400)})...)
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}
