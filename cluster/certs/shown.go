package certs

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/view"
)

// State shows the certificate of a host to an organisation, as it is served for one of its applications.
func (c *Certs) State(name, org string, app skerry.AppKey) *view.PublicCertificate {
	want, record := c.wants[name], c.hosts[name]
	shown := &view.PublicCertificate{State: view.CertificateWaiting}
	if want == nil || want.Org != org {
		shown.State, shown.Reason = view.CertificateRefused, "the certificate of the host belongs to another organisation"
		return shown
	}
	if record != nil && record.Org == org {
		if c.live[name] {
			shown.State, shown.NotAfter = view.CertificateValid, record.NotAfter
		}
		shown.Reason = record.Why
		if shown.Next = later(c.renewal(record), record.Next); c.running[name] != nil {
			shown.Next = time.Time{}
		}
	}
	if shown.State == view.CertificateValid && slices.Contains(c.left[app], name) {
		shown.State, shown.Reason = view.CertificateUnserved, noRoom
		return shown
	}
	switch refused := c.refused[name]; {
	case refused != nil:
		shown.Reason, shown.Next = refused.Text+"; "+refused.Hint, time.Time{}
		if shown.State != view.CertificateValid {
			shown.State = view.CertificateRefused
		}
	case shown.State == view.CertificateValid:
	case c.running[name] != nil:
		shown.State = view.CertificateOrdering
	case !c.limited[name].IsZero():
		shown.Reason, shown.Next = "as many orders as the site allows in an hour were made", c.limited[name]
	case c.postponed != "":
		shown.Reason = c.postponed
	}
	return shown
}

// Metrics are what a site's certificates come to.
type Metrics struct {
	Hosts, Valid, Failing int
	Unserved              int       // valid, and some application's clients do not get it; they do not count as Valid
	Issued, Failed        uint64    // orders of this process
	Ends                  time.Time // when the first certificate ends that an application has; the zero time: there is none
}

// Metrics sums up the certificates.
func (certs *Certs) Metrics() (sum Metrics) {
	sum.Hosts, sum.Issued, sum.Failed = len(certs.wants), certs.issued, certs.failed
	for name, want := range certs.wants {
		record := certs.hosts[name]
		if certs.refused[name] != nil || record != nil && record.Failed > 0 {
			sum.Failing++
		}
		if record == nil || record.Org != want.Org || len(record.CertPEM) == 0 {
			continue
		}
		switch {
		case certs.live[name] && certs.leaves(name):
			sum.Unserved++
		case certs.live[name]:
			sum.Valid++
		}
		if sum.Ends.IsZero() || record.NotAfter.Before(sum.Ends) {
			sum.Ends = record.NotAfter
		}
	}
	return sum
}

// Expiring counts the certificates in use whose renewal is overdue: half of the time from there to their end is over. They may be valid,
// unserved or failing as well.
func (certs *Certs) Expiring(now time.Time) (n int) {
	for name, want := range certs.wants {
		record := certs.hosts[name]
		if record == nil || record.Org != want.Org || len(record.CertPEM) == 0 || !certs.live[name] {
			continue
		}
		if life := record.NotAfter.Sub(record.NotBefore); !now.Before(record.NotAfter.Add(-life / 6)) {
			n++
		}
	}
	return n
}
