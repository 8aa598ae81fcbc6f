package certs

import (
	"fmt"
	"slices"
	"strings"

	"skerry.dev/skerry/spec"
)

// Kind is a challenge of RFC 8555 or RFC 8737: how the authority finds out that a host belongs to the site.
type Kind string

// The kinds that a site can answer.
const (
	HTTP01    Kind = "http-01"     // at port 80 of the workers
	TLSALPN01 Kind = "tls-alpn-01" // at port 443 of the workers
	DNS01     Kind = "dns-01"      // by the operator's program
)

// Ports are where workers let clients in for the application that asks.
type Ports struct {
	HTTP bool // 80, without TLS
	TLS  bool // 443, with a certificate for the host
}

// Policy is what the operator of a site allows.
type Policy struct {
	Directory     string   // where the authority's directory is; empty: nothing is ordered
	Domains       []string // that hosts must be in; none: all
	DNS           bool     // the operator's program sets records
	HostsPerOrg   int      // that an organisation may have certificates for; 0: 50
	OrdersPerHour int      // of the site; 0: 20
}

func (p Policy) withDefaults() Policy {
	if p.HostsPerOrg <= 0 {
		p.HostsPerOrg = 50
	}
	if p.OrdersPerHour <= 0 {
		p.OrdersPerHour = 20
	}
	return p
}

// Refusal says why no certificate is ordered for a host, and what can be done about it.
type Refusal struct{ Text, Hint string }

// TooMany is the refusal of a host beyond the limit of an organisation.
func TooMany(org string, most int) *Refusal {
	return &Refusal{fmt.Sprintf("organisation %s has certificates for %d hosts, as many as the site allows", org, most),
		"remove a host, or ask the operator of the site, who sets --acme-hosts"}
}

// Kinds gives the challenges by which a host can be proved, best first, or the reason for which no certificate is ordered for it.
func (p Policy) Kinds(host string, at Ports) ([]Kind, *Refusal) {
	within := func(domain string) bool { return spec.HostWithin(host, domain) }
	switch {
	case p.Directory == "":
		return nil, &Refusal{"the site orders no certificates (tls: acme)",
			"use tls: self or an uploaded certificate, or ask the operator of the site, who starts the cluster with --acme-url and " +
				"--acme-accept-terms"}
	case len(p.Domains) > 0 && !slices.ContainsFunc(p.Domains, within):
		return nil, &Refusal{fmt.Sprintf("the site orders no certificates for host %s, only in %s", host, strings.Join(p.Domains, ", ")),
			"use another host, or ask the operator of the site, who adds domains with --acme-domain"}
	case !strings.Contains(host, "."):
		return nil, &Refusal{fmt.Sprintf("public authorities sign no name without a dot, such as %s", host), "use a full host name, or tls: self"}
	}
	var out []Kind
	if wild := strings.HasPrefix(host, "*."); !wild && at.HTTP {
		out = append(out, HTTP01)
	}
	if wild := strings.HasPrefix(host, "*."); !wild && at.TLS {
		out = append(out, TLSALPN01)
	}
	if p.DNS {
		out = append(out, DNS01)
	}
	switch {
	case len(out) > 0:
		return out, nil
	case strings.HasPrefix(host, "*."):
		return nil, &Refusal{fmt.Sprintf("host %s is proved by a DNS record alone, and the site cannot set one", host),
			"list single hosts, or ask the operator of the site, who sets --acme-dns-hook"}
	}
	return nil, &Refusal{fmt.Sprintf("nothing answers the authority for host %s", host),
		"have its ingress listen on port 443, or offer one on port 80, or ask the operator of the site, who sets --acme-dns-hook"}
}

// Asked is one host of an application with tls: acme.
type Asked struct {
	Host  string
	Path  string // of the ingress in the manifest
	Ports Ports
}

// AskedBy lists the hosts that the services of an application ask certificates for, each once, with the ports that they are offered on.
func AskedBy(services []spec.ServiceSpec) (out []Asked) {
	plain := false
	for i := range services {
		plain = plain || slices.ContainsFunc(services[i].Ingress, Plain80)
	}
	for i := range services {
		for j, way := range services[i].Ingress {
			if way.TLS != spec.TLSACME {
				continue
			}
			at := slices.IndexFunc(out, func(a Asked) bool { return a.Host == way.Host })
			if at < 0 {
				at = len(out)
				out = append(out, Asked{Host: way.Host, Path: fmt.Sprintf("spec.services[%d].ingress[%d].tls", i, j), Ports: Ports{HTTP: plain}})
			}
			out[at].Ports.TLS = out[at].Ports.TLS || Listens443(way)
		}
	}
	return out
}

// Plain80 reports whether a way in lets HTTP in at port 80.
func Plain80(way spec.Ingress) bool {
	return way.Protocol != spec.IngressTCP && (way.Listen == 80 || way.Listen == 0) && (way.TLS == "" || way.TLS == spec.TLSOff)
}

// Listens443 reports whether TLS ends at port 443 for a way in with tls: acme.
func Listens443(way spec.Ingress) bool {
	return way.Listen == 443 || way.Listen == 0 && way.Protocol != spec.IngressTCP
}
