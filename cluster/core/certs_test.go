package core

import (
	"errors"
	"fmt"
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

// TestPublicCertificate orders the certificate of a host once a worker could answer for it, has workers with an ingress answer the challenge,
// and gives them the certificate. Others learn of neither.
func TestPublicCertificate(t *testing.T) {
	s := publicSite(t)
	gate, other := s.ingressWorker(1), s.join(2)
	facts := *s.c.workers[gate].Facts
	facts.Features = spec.AgentFeatures()
	s.report(gate, wire.WorkerReport{Facts: &facts})
	s.offer("acme", "shop", public("shop.example.org"))
	app := key("acme", "shop").App
	state := func() view.PublicCertificate {
		list := []view.AppView{{Key: app, Org: s.c.Apps.App(app).Org, Services: []view.ServiceView{{Name: "web"}}}}
		s.c.showIngress(list)
		return *list[0].Services[0].Ingress[0].Certificate
	}
	s.tell(gate)
	s.tell(other)
	if n := s.directory(gate, "acme", "shop"); n.Services[0].Ingress[0].TLS != spec.TLSSelf || n.Authority == nil || len(n.Challenges) > 0 {
		t.Errorf("before there is one: got tls %s, authority %v, want the site's own", n.Services[0].Ingress[0].TLS, n.Authority != nil)
	}
	if got := state(); got.State != view.CertificateWaiting || !strings.Contains(got.Reason, "no worker is connected") {
		t.Errorf("while no worker tells of an ingress: got %+v, want it to wait", got)
	}
	s.serve(gate, wire.IngressState{Serving: []skerry.AppKey{app}})
	if got := state(); got.State != view.CertificateOrdering || !s.c.certs.Busy() {
		t.Fatalf("when one does: got %+v, want an order", got)
	}
	s.step(ChallengeSet{Host: "shop.example.org", Challenge: &wire.IngressChallenge{Host: "shop.example.org", Token: "tok", Answer: "print"}})
	s.tell(gate)
	s.tell(other)
	if n := s.directory(gate, "acme", "shop"); len(n.Challenges) != 1 || n.Challenges[0].Answer != "print" {
		t.Errorf("challenges at the gate: got %v, want the one", n.Challenges)
	}
	if s.c.ingress.Answers("tok") {
		t.Error("the gate answers, and has not said so")
	}
	s.serve(gate, wire.IngressState{Serving: []skerry.AppKey{app}, Answers: []string{"tok"}})
	if !s.c.ingress.Answers("tok") {
		t.Error("the gate does not answer, and has said so")
	}
	s.step(CertificateDone{certs.Result{Host: "shop.example.org", Org: s.c.Apps.App(app).Org, Why: "the authority is not amused"}})
	if got := state(); got.State != view.CertificateWaiting || got.Reason != "the authority is not amused" || !got.Next.After(s.now) {
		t.Errorf("after a failure: got %+v, want the reason and when it is ordered next", got)
	}
	failed := false
	for _, e := range s.events {
		failed = failed || e.Reason == "CertificateFailed" && e.App == app && strings.Contains(e.Text, "not amused")
	}
	if !failed {
		t.Errorf("events: got %v, want CertificateFailed", s.events)
	}
	s.tell(gate)
	if n := s.directory(gate, "acme", "shop"); len(n.Challenges) > 0 {
		t.Errorf("challenges after the order: got %v, want none", n.Challenges)
	}
}

// TestPublicCertificateRefused refuses applications whose hosts the site orders no certificates for.
func TestPublicCertificateRefused(t *testing.T) {
	for _, x := range []struct {
		policy certs.Policy
		hosts  []string
		code   skerry.Code
		want   string
	}{
		{certs.Policy{}, []string{"shop.example.org"}, skerry.CodeUnsupported, "the site orders no certificates (tls: acme)"},
		{certs.Policy{Directory: "https://ca", Domains: []string{"example.com"}}, []string{"shop.example.org"}, skerry.CodeUnsupported, "only in example.com"},
		{certs.Policy{Directory: "https://ca"}, []string{"*.example.org"}, skerry.CodeUnsupported, "the site cannot set one"},
		{certs.Policy{Directory: "https://ca", HostsPerOrg: 1}, []string{"a.example.org", "b.example.org"}, skerry.CodeQuota, "certificates for 1 hosts"},
	} {
		s := newIngressSite(t)
		s.public(x.policy)
		svc := spec.ServiceSpec{Name: "web", Ports: []spec.Port{{Name: "http", Port: 80}}}
		svc.Image = "web:1"
		for _, h := range x.hosts {
			svc.Ingress = append(svc.Ingress, public(h))
		}
		for _, dry := range []bool{true, false} {
			fx := s.c.Step(s.now, apps.Apply{DryRun: dry, App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
				Metadata: spec.Metadata{Name: "shop", Namespace: "acme"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{svc}}}})
			if fx.Err == nil || codeOf(fx.Err) != x.code || !strings.Contains(fx.Err.Error(), x.want) {
				t.Errorf("apply of %v: got %v (%s), want %s with %q", x.hosts, fx.Err, codeOf(fx.Err), x.code, x.want)
			}
		}
		a := spec.Assignment{Org: "acme", Spec: svc}
		if why := s.c.opt.Admission.CheckCertificates(&a); x.code == skerry.CodeUnsupported && (why == nil || !strings.Contains(why.Text, x.want)) {
			t.Errorf("assignment of %v: got %v, want %q", x.hosts, why, x.want)
		}
	}
}

// TestPublicCertificateRestart begins a failed order anew after a restart, later, and keeps the account.
func TestPublicCertificateRestart(t *testing.T) {
	s := publicSite(t)
	opt := s.c.opt
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
		for _, w := range c.Start(s.now).Writes {
			kv[w.Key] = w.Value
		}
		keys = append(keys, string(c.certs.account.KeyPEM))
		opt.AccountKey = []byte("two")
		s.now = s.now.Add(time.Minute)
	}
	if got := fmt.Sprint(keys); got != "[one one]" {
		t.Errorf("keys of the account: got %s, want that of the first start", got)
	}
}

func codeOf(err error) skerry.Code {
	e := new(skerry.Error)
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
