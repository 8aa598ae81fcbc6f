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
			if got := site.c.certs.State("shop.example.org", evil); got.State != view.CertificateRefused {
				t.Errorf("what is shown of it: got %+v, want refused", got)
			}
		})
	}
}
