package core

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/certs"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/reconcile"
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
	var left []string
	room := -1 // it takes time to measure, and few need it
	for at := range directory.Services {
		for n := range directory.Services[at].Ingress {
			if way := &directory.Services[at].Ingress[n]; way.TLS == spec.TLSACME {
				cert := o.certs.Serves(way.Host, directory.Org)
				if cert != nil && room < 0 {
					room = o.certificateRoom(directory)
				}
				if way.TLS = spec.TLSSelf; cert == nil {
					continue
				}
				if addTo(directory, cert, &room) {
					way.TLS = spec.IngressTLS(cert.Name)
				} else if !slices.Contains(left, way.Host) {
					left = append(left, way.Host)
				}
			}
		}
	}
	directory.Challenges = o.certs.Challenges(directory.App)
	slices.Sort(left)
	for _, host := range o.certs.Leave(directory.App, left) {
		o.certs.unserved = append(o.certs.unserved, unserved{directory.App, directory.Org, host})
	}
}

// addTo adds the certificate of a way in to a directory, and reports whether there is room for it.
func addTo(directory *wire.AppNetwork, cert *wire.IngressCertificate, room *int) bool {
	takes := len(cert.Name)
	has := slices.ContainsFunc(directory.Certificates, func(other wire.IngressCertificate) bool { return other.Name == cert.Name })
	if !has {
		takes += len(cert.Name) + len(cert.CertPEM) + len(cert.KeyPEM)
	}
	if takes > *room {
		return false
	}
	*room -= takes
	if !has {
		directory.Certificates = append(directory.Certificates, *cert)
	}
	return true
}

const (
	// maxPublicBytes is how much of such certificates a directory carries, beside the uploaded ones.
	maxPublicBytes = 256 << 10
	// directoryRest is kept free for what else comes into a directory: challenges, and the site's own authority.
	directoryRest = 16 << 10
)

// certificateRoom gives how many bytes of such certificates go with a directory: a set takes no larger item, and workers would keep the
// directory of before.
func (o *overlay) certificateRoom(directory *wire.AppNetwork) int {
	most := cmp.Or(o.opt.Sets.MaxItem, reconcile.DefaultMaxItem)
	return max(0, min(maxPublicBytes, most-directoryRest-len(o.codec.Marshal(directory))))
}

// tellUnserved tells of certificates that there are, and that clients do not see.
func (o *overlay) tellUnserved(now time.Time, fx *wire.Effects) {
	for _, u := range o.certs.unserved {
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "CertificateUnserved", App: u.app, Org: u.org,
			Cluster: skerry.ClusterName(o.opt.Name), Text: "the certificate of host " + u.host + " is not served: " +
				o.certs.State(u.host, u.org, u.app).Reason})
	}
	o.certs.unserved = nil
}

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
