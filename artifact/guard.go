package artifact

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Guard bounds where a Source goes on behalf of others. Its zero value lets it ask every registry that is at a public address. It must not
// be copied once used.
type Guard struct {
	// Listed are registries (host, or host:port) that may be anywhere, also at loopback or in a private network.
	Listed []string
	// Only refuses registries that are not listed.
	Only bool
	// Organisations are those for which a registry (as in an image's name) is asked at all, and its images are taken from a store; one
	// without an entry is there for everybody.
	Organisations map[string][]string

	mu      sync.Mutex      // protects proxies
	proxies map[string]bool // host:port of the machine's own
}

// RefusedError says where a guard lets nobody go, and why. It is an ErrDenied.
type RefusedError struct{ Host, Why string }

func (e *RefusedError) Error() string { return e.Host + " is not asked for images: " + e.Why }
func (e *RefusedError) Unwrap() error { return ErrDenied }

// Hint says who may change it.
func (e *RefusedError) Hint() string {
	return "the operator of this root or cluster lists registries that it is to ask with --registry; else push the image to the built-in registry"
}

// Lists reports whether a registry is listed. Nil lists all.
func (g *Guard) Lists(registry string) bool {
	if g == nil {
		return true
	}
	host := registry
	if h, port, err := net.SplitHostPort(registry); err == nil {
		if host = h; port == "443" {
			registry = h
		}
	}
	return slices.Contains(g.Listed, registry) || slices.Contains(g.Listed, host)
}

// Serves reports whether a registry is asked for an organisation.
func (g *Guard) Serves(registry, org string) bool {
	if g == nil {
		return true
	}
	list, bounded := g.Organisations[registry]
	return !bounded || slices.Contains(list, org)
}

// check decides about a registry before it is asked.
func (g *Guard) check(registry string) error {
	if g != nil && g.Only && !g.Lists(registry) {
		return &RefusedError{registry, "it is none of the registries that are listed here"}
	}
	return nil
}

// Refuses gives the reason for which a registry is not asked, as far as that is known before anybody asks it, or nil.
func (g *Guard) Refuses(ctx context.Context, registry string) error {
	if err := g.check(registry); err != nil || g.Lists(registry) {
		return err
	}
	host := registry
	if h, _, err := net.SplitHostPort(registry); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil // nobody reaches it now
	}
	var why error
	for _, a := range addrs {
		what := special(a)
		if what == "" {
			return nil
		}
		why = &RefusedError{registry, fmt.Sprintf("%s is %s", a, what)}
	}
	return why
}

type originKey struct{}

// withOrigin notes on whose behalf requests are made, also after redirects and to token servers.
func withOrigin(ctx context.Context, registry string) context.Context {
	return context.WithValue(ctx, originKey{}, registry)
}

// transport gives a transport that stays within the guard.
func (g *Guard) transport(t *http.Transport) http.RoundTripper {
	proxy := t.Proxy
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		if proxy == nil {
			return nil, nil
		}
		u, err := proxy(r)
		if u != nil {
			port := u.Port()
			if port == "" {
				port = map[string]string{"https": "443", "socks5": "1080"}[u.Scheme]
			}
			if port == "" {
				port = "80"
			}
			g.mu.Lock()
			if g.proxies == nil {
				g.proxies = map[string]bool{}
			}
			g.proxies[net.JoinHostPort(u.Hostname(), port)] = true
			g.mu.Unlock()
		}
		return u, err
	}
	anywhere := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	public := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: controlPublic}
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		g.mu.Lock()
		own := g.proxies[addr]
		g.mu.Unlock()
		if own || g.Lists(addr) {
			return anywhere.DialContext(ctx, network, addr)
		}
		return public.DialContext(ctx, network, addr)
	}
	return guarded{g, t}
}

// controlPublic refuses a connection when the name is resolved and nothing has been sent.
func controlPublic(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if why := special(a.Addr()); why != "" {
		return &RefusedError{address, "it is " + why}
	}
	return nil
}

type guarded struct {
	g *Guard
	t http.RoundTripper
}

// RoundTrip refuses what one registry makes of a request for another: a listed one, which may be in a private network, is asked for its own
// images alone. An address that is written as such is looked at here, since a proxy would dial it.
func (x guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Host
	origin, _ := r.Context().Value(originKey{}).(string)
	why := ""
	if x.g.Lists(host) {
		if !x.g.Lists(origin) {
			why = fmt.Sprintf("registry %s, which is not listed here, leads there", origin)
		}
	} else if a, err := netip.ParseAddr(strings.Trim(r.URL.Hostname(), "[]")); err == nil {
		if why = special(a); why != "" {
			why = "it is " + why
		}
	}
	if why == "" {
		return x.t.RoundTrip(r)
	}
	if r.Body != nil {
		r.Body.Close()
	}
	return nil, &RefusedError{host, why}
}

// special says what an address is that is no public one of a machine, or "".
func special(a netip.Addr) string {
	a = a.WithZone("").Unmap()
	switch {
	case a.IsLoopback():
		return "a loopback address"
	case a.IsPrivate():
		return "an address of a private network"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case a.IsUnspecified(), a.IsMulticast(), !a.IsValid():
		return "no address of a machine"
	}
	for _, p := range specialPrefixes() {
		if p.Contains(a) {
			return "an address for special purposes (" + p.String() + ")"
		}
	}
	return ""
}

// specialPrefixes are the rest of IANA's registries of special-purpose addresses, as far as they are not global, and
// those of IPv6 that hold an address of IPv4.
func specialPrefixes() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
		"240.0.0.0/4",
		"168.63.129.16/32", // where Azure tells machines of themselves
		"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10",
	} {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}
