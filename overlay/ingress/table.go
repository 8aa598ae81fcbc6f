package ingress

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"skerry.dev/skerry/spec"
)

// table says where what comes in at one listener goes. It never changes.
type table struct {
	http  bool
	tls   bool // of an HTTP listener
	peek  bool // of a TCP listener: routes differ by the name in the TLS hello
	certs *keyring
	// By host name, by domain for *.DOMAIN, and for any host; longer paths first.
	hosts, wild map[string][]*route
	any         []*route
	trusted     []netip.Prefix
	replaced    chan struct{} // closed when another one is in its place
}

// route is a Route made ready.
type route struct {
	Route
	segments []string
	pool     *pool
	counters *counters
	config   *tls.Config // of TCP with TLS
}

// listenerKind is what cannot change while a listener is open.
type listenerKind struct{ http, tls bool }

func (t *table) kind() listenerKind { return listenerKind{t.http, t.tls} }

// newTable makes the table of a listener, and says which routes it has to leave out.
func (in *Ingress) newTable(l Listener, certs *keyring, trusted []netip.Prefix, pools map[poolKey]*pool,
	counts map[routeKey]*counters) (*table, error) {
	t := &table{http: l.Protocol == spec.IngressHTTP, certs: certs, hosts: map[string][]*route{}, wild: map[string][]*route{},
		trusted: slices.Clone(trusted), replaced: make(chan struct{})}
	var problems []error
	for i, r := range l.Routes {
		refuse := func(format string, args ...any) {
			problems = append(problems, fmt.Errorf("route %s%s of %s on %s: %w", r.Host, r.Path, r.Name, l.Addr, fmt.Errorf(format, args...)))
		}
		secure := r.TLS != "" && r.TLS != spec.TLSOff
		if t.http && i == 0 {
			t.tls = secure
		} else if t.http && secure != t.tls {
			refuse("some routes have TLS and some do not")
			continue
		}
		if secure && !certs.has(r.TLS) {
			refuse("there is no certificate %q", string(r.TLS))
			continue
		}
		n := &route{Route: r}
		n.Targets = slices.Clone(r.Targets)
		if t.http {
			n.segments, _ = segments(strings.TrimSuffix(r.Path, "/"))
		} else if secure {
			n.config = &tls.Config{MinVersion: tls.VersionTLS12,
				GetCertificate:     func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return certs.get(r.TLS, h) },
				GetConfigForClient: certs.challenges.config}
		}
		t.peek = t.peek || !t.http && (secure || r.Host != "")
		list := &t.any
		m, host := t.hosts, r.Host
		if domain, ok := strings.CutPrefix(r.Host, "*."); ok {
			m, host = t.wild, domain
		}
		if host != "" {
			got := m[host]
			list = &got
		}
		if slices.ContainsFunc(*list, func(o *route) bool { return slices.Equal(o.segments, n.segments) }) {
			refuse("another route has the same host and path")
			continue
		}
		n.pool = in.poolFor(r, pools)
		k := routeKey{l.Addr, r.Name, r.Host, r.Path}
		if n.counters = in.counters[k]; n.counters == nil {
			n.counters = &counters{}
		}
		counts[k] = n.counters
		*list = append(*list, n)
		slices.SortStableFunc(*list, func(a, b *route) int { return len(b.segments) - len(a.segments) })
		if host != "" {
			m[host] = *list
		}
	}
	return t, errors.Join(problems...)
}

// match finds the route of a host and a path: that of the name itself before that of *.DOMAIN before that of any host,
// and among them the longest path.
func (t *table) match(host string, path []string) *route {
	for _, list := range t.candidates(host) {
		for _, r := range list {
			if len(r.segments) <= len(path) && slices.Equal(r.segments, path[:len(r.segments)]) {
				return r
			}
		}
	}
	return nil
}

// candidates lists the routes that a host may have, best first.
func (t *table) candidates(host string) [3][]*route {
	_, domain, _ := strings.Cut(host, ".")
	return [3][]*route{t.hosts[host], t.wild[domain], t.any}
}

// cleanHost gives a host name as it is compared: without port, in lower case, without the dot at its end. It gives false
// for what no client of good faith sends.
func cleanHost(s string) (string, bool) {
	if h, _, err := net.SplitHostPort(s); err == nil {
		s = h
	}
	s = strings.TrimSuffix(strings.ToLower(strings.Trim(s, "[]")), ".")
	return s, len(s) <= 253 && !strings.ContainsAny(s, "/\\@?# \t%")
}

// segments splits a path as it was sent, so that an encoded slash divides nothing. It gives false for paths with parts
// that lead upwards or nowhere, in any disguise: what a route was chosen by must be what the service sees.
func segments(escaped string) ([]string, bool) {
	if escaped == "" || escaped == "/" {
		return nil, true
	}
	if escaped[0] != '/' {
		return nil, false
	}
	out := strings.Split(escaped[1:], "/")
	for i, s := range out {
		u, err := url.PathUnescape(s)
		if err != nil || strings.ContainsRune(u, 0) {
			return nil, false
		}
		for _, part := range strings.FieldsFunc(u, func(r rune) bool { return r == '/' || r == '\\' }) {
			if part == "." || part == ".." || strings.HasPrefix(part, "..;") || strings.HasPrefix(part, ".;") {
				return nil, false
			}
		}
		out[i] = u
	}
	return out, true
}

// answers says in few words what happened, for the statuses that come from here.
func answers(status int) string {
	switch status {
	case http.StatusNotFound:
		return "no service is offered under this host and path"
	case http.StatusBadGateway:
		return "the service refused the connection, broke off, or did not speak HTTP"
	case http.StatusServiceUnavailable:
		return "no instance of the service can be reached now"
	case http.StatusGatewayTimeout:
		return "the service did not answer in time"
	case http.StatusBadRequest:
		return "the host or the path of the request is not valid"
	case http.StatusMethodNotAllowed:
		return "this is no proxy for other hosts"
	}
	return http.StatusText(status)
}
