package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/certs"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

type (
	// OrderCertificate has a certificate ordered of the authority. The answers are ChallengeSet, any number of times, and CertificateDone
	// once.
	OrderCertificate struct {
		certs.Order
		Account []byte // the key, as PEM
	}
	// ChallengeSet has workers answer a challenge for a host, and no other; nil: none.
	ChallengeSet struct {
		Host      string
		Challenge *wire.IngressChallenge
	}
	// ChallengeLate says that workers had long enough to answer the challenge for a host: those that do are enough.
	ChallengeLate struct{ Host string }
	// ChallengeAnswered says that all workers do that clients may come to, or some and it is late.
	ChallengeAnswered struct{ Token string }
	// CertificateDone says what became of an order.
	CertificateDone struct{ certs.Result }
)

// startCerts ends loading, and gives the site an account's key if it needs one.
func (o *overlay) startCerts(now time.Time, fx *wire.Effects) {
	o.certs.Start(now)
	o.certs.look = true
	if len(o.certs.account.KeyPEM) == 0 && o.certs.Policy().Directory != "" && len(o.opt.AccountKey) > 0 {
		o.certs.account.KeyPEM = o.opt.AccountKey
		value, err := json.Marshal(&o.certs.account)
		if err != nil {
			panic(err) // plain data
		}
		fx.Put(certs.KeyAccount, value)
	}
}

// wantCerts takes up which hosts are offered with tls: acme.
func (o *overlay) wantCerts() {
	var list []certs.Want
	plain := map[skerry.AppKey]bool{}
	for way := range o.ingress.Offered() {
		plain[way.App] = plain[way.App] || certs.Plain80(way.Ingress)
	}
	for way, order := range o.ingress.Offered() {
		if way.TLS == spec.TLSACME && o.ingress.Leads(way) {
			list = append(list, certs.Want{Host: way.Host, Org: way.Org, App: way.App, Order: order,
				Ports: certs.Ports{HTTP: plain[way.App], TLS: certs.Listens443(way.Ingress)}})
		}
	}
	if o.certs.SetWants(list) {
		o.certs.look = true
		o.publicChanged()
	}
}

// publicChanged has the directories published again of applications that serve such certificates.
func (o *overlay) publicChanged() {
	for way := range o.ingress.Offered() {
		if way.TLS == spec.TLSACME {
			o.linked[way.App] = true
		}
	}
}

// settleCerts begins the orders that are due, and has those go on whose challenges workers have begun to answer.
func (o *overlay) settleCerts(now time.Time, fx *wire.Effects) {
	if o.certs.look || o.certs.Busy() {
		o.certs.look = false
		why := ""
		if !o.ingress.CanAnswer() {
			why = "no worker is connected whose ingress could answer the certificate authority"
		}
		o.certs.Postpone(why)
		for _, token := range o.certs.Answered(o.ingress.Answers) {
			fx.Actions = append(fx.Actions, ChallengeAnswered{token})
		}
	}
	orders, writes, changed := o.certs.Review(now)
	fx.Writes = append(fx.Writes, writes...)
	for _, order := range orders {
		fx.Actions = append(fx.Actions, OrderCertificate{order, o.certs.account.KeyPEM})
	}
	if changed {
		o.publicChanged()
	}
}

// challengeSet has workers answer a challenge.
func (o *overlay) challengeSet(m ChallengeSet) {
	if o.certs.Challenged(m.Host, m.Challenge) {
		o.publicChanged()
	}
	o.certs.look = true
}

// challengeLate has an order go on although not all workers answer.
func (o *overlay) challengeLate(m ChallengeLate) {
	o.certs.Late(m.Host)
	o.certs.look = true
}

// certificateDone takes what became of an order.
func (o *overlay) certificateDone(now time.Time, m CertificateDone, fx *wire.Effects) {
	writes, changed, why := o.certs.Done(now, m.Result)
	fx.Writes = append(fx.Writes, writes...)
	if changed {
		o.publicChanged()
	}
	w := o.certs.Want(m.Host)
	if w == nil || w.Org != m.Org {
		return
	}
	site := skerry.ClusterName(o.opt.Name)
	if why == "" {
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventNormal, Reason: "CertificateIssued", App: w.App, Org: w.Org,
			Cluster: site,
			Text:    "host " + m.Host + " has a new certificate"})
		return
	}
	fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "CertificateFailed", App: w.App, Org: w.Org,
		Cluster: site,
		Text:    "host " + m.Host + " gets no certificate: " + why})
}

// certify gives a directory the certificates of its hosts with tls: acme. A host without one is vouched for by the site's own authority. So
// the agents of workers need not know about any of that.
func (o *overlay) certify(directory *wire.AppNetwork) {
	room := maxPublicBytes
	for at := range directory.Services {
		for j := range directory.Services[at].Ingress {
			way := &directory.Services[at].Ingress[j]
			if way.TLS != spec.TLSACME {
				continue
			}
			c := o.certs.Serves(way.Host, directory.Org)
			if c == nil {
				way.TLS = spec.TLSSelf
				continue
			}
			named := func(other wire.IngressCertificate) bool { return other.Name == c.Name }
			if !slices.ContainsFunc(directory.Certificates, named) {
				if room -= len(c.CertPEM) + len(c.KeyPEM); room < 0 { // as many as an item of a set takes
					way.TLS = spec.TLSSelf
					continue
				}
				directory.Certificates = append(directory.Certificates, *c)
			}
			way.TLS = spec.IngressTLS(c.Name)
		}
	}
	directory.Challenges = o.certs.Challenges(directory.App)
}

// maxPublicBytes is how much of such certificates a directory carries, beside the uploaded ones.
const maxPublicBytes = 256 << 10

// noCertificates says why an application of the site's own may not be applied: the site orders no certificates for its hosts. What it asked
// for before is left as it is.
func (o *overlay) noCertificates(msg any) error {
	apply, is := msg.(apps.Apply)
	if !is {
		return nil
	}
	asked := certs.AskedBy(apply.App.Spec.Services)
	if len(asked) == 0 {
		return nil
	}
	app := apply.App.Key()
	had := map[string]bool{}
	if old := o.Apps.App(app); old != nil {
		for _, a := range certs.AskedBy(old.Manifest.Spec.Services) {
			had[a.Host] = true
		}
	}
	org := o.Apps.OrgOf(app.Namespace)
	hosts, most := o.certs.Wanted(org, app), o.certs.Policy().HostsPerOrg
	for _, a := range asked {
		hosts[a.Host] = true
		_, refused := o.certs.Policy().Kinds(a.Host, a.Ports)
		code := skerry.CodeUnsupported
		if refused == nil && len(hosts) > most {
			code, refused = skerry.CodeQuota, certs.TooMany(org, most)
		}
		if refused != nil && !had[a.Host] {
			return &skerry.Error{Code: code, Message: refused.Text, Hint: refused.Hint,
				Problems: []skerry.Problem{{Path: a.Path, Message: refused.Text, Hint: refused.Hint}}}
		}
	}
	return nil
}

// CheckCertificates gives the reason to refuse a new assignment whose hosts the site orders no certificates for, or nil. What other
// services of the application offer is not known here, and no reason.
func (p *Admission) CheckCertificates(assigned *spec.Assignment) *wire.Reason {
	for i, way := range assigned.Spec.Ingress {
		if way.TLS != spec.TLSACME {
			continue
		}
		if _, why := p.Certificates.Kinds(way.Host, certs.Ports{HTTP: true, TLS: true}); why != nil {
			return &wire.Reason{What: "admission", Text: fmt.Sprintf("the site does not admit it: ingress[%d]: %s", i, why.Text), Hint: why.Hint}
		}
	}
	return nil
}

// loadAccount takes the record of the account.
func (o *overlay) loadAccount(value []byte) error { return json.Unmarshal(value, &o.certs.account) }

// directory gives the directory of an application as workers with an ingress get it, and as others do.
func (o *overlay) directory(n *wire.AppNetwork) (withIngress, plain *wire.AppNetwork) {
	return o.ingress.Directory(n, o.certify)
}
