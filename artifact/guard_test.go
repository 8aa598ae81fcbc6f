package artifact

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// What a name leads to is refused before anything is sent there, unless the operator listed it.
func TestGuard(t *testing.T) {
	t.Setenv("HTTP_PROXY", "")
	t.Setenv("HTTPS_PROXY", "")
	var asked atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.NotFound(w, nil)
	}))
	defer inside.Close()
	host := strings.TrimPrefix(inside.URL, "http://")
	_, port, err := net.SplitHostPort(host)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		guard    *Guard
		registry string
		reached  bool
	}{
		"no guard":                  {nil, host, true},
		"an address":                {&Guard{}, host, false},
		"a name for it":             {&Guard{}, "localhost:" + port, false},
		"listed":                    {&Guard{Listed: []string{host}}, host, true},
		"listed at every port":      {&Guard{Listed: []string{"localhost"}}, "localhost:" + port, true},
		"another is listed":         {&Guard{Listed: []string{"localhost:1"}}, "localhost:" + port, false},
		"nothing but what is named": {&Guard{Listed: []string{"registry.example"}, Only: true}, host, false},
		"named":                     {&Guard{Listed: []string{host}, Only: true}, host, true},
		"link-local":                {&Guard{}, "169.254.169.254:80", false},
		"private":                   {&Guard{}, "10.1.2.3", false},
		"in another form":           {&Guard{}, "[::ffff:127.0.0.1]:" + port, false},
	} {
		asked.Store(0)
		src := &Source{Guard: c.guard, PlainHTTP: []string{c.registry}}
		_, err := openStore(t, Options{}).Resolve(t.Context(), c.registry+"/team/app:1", Platform{}, src)
		refused, ok := errors.AsType[*RefusedError](err)
		if ok == c.reached || (asked.Load() > 0) != c.reached {
			t.Errorf("%s: %d requests, %v", name, asked.Load(), err)
		}
		if ok && (!errors.Is(err, ErrDenied) || !strings.Contains(refused.Hint(), "--registry")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A registry that is asked does not lead to one that is listed, or to where nobody may go: neither by a redirect nor by a token server.
func TestGuardRedirects(t *testing.T) {
	var asked atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked.Add(1) }))
	defer inside.Close()
	target := strings.TrimPrefix(inside.URL, "http://")
	for _, how := range []string{"redirect", "realm"} {
		for _, listed := range []bool{false, true} {
			evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if how == "realm" {
					w.Header().Set("WWW-Authenticate", `Bearer realm="`+inside.URL+`/token"`)
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				http.Redirect(w, r, inside.URL+"/secret", http.StatusFound)
			}))
			at := strings.TrimPrefix(evil.URL, "http://")
			g := &Guard{}
			if listed {
				g.Listed = []string{target}
			}
			// Evil stands for a registry at a public address: it is reached through a transport that takes it for one.
			src := &Source{Guard: g, PlainHTTP: []string{at, target}}
			src.Transport = publicly{t, at, g.transport(http.DefaultTransport.(*http.Transport).Clone())}
			asked.Store(0)
			_, err := openStore(t, Options{}).Resolve(t.Context(), at+"/team/app:1", Platform{}, src)
			if _, ok := errors.AsType[*RefusedError](err); !ok || asked.Load() > 0 {
				t.Errorf("%s, listed %v: %d requests, %v", how, listed, asked.Load(), err)
			}
			evil.Close()
		}
	}
}

// publicly passes by the guard for one host.
type publicly struct {
	t    *testing.T
	host string
	next http.RoundTripper
}

func (p publicly) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == p.host {
		return http.DefaultTransport.RoundTrip(r)
	}
	return p.next.RoundTrip(r)
}

// A connection is refused when its name is resolved, whatever the name says.
func TestGuardDials(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := net.Dialer{Control: controlPublic}
	if c, err := d.DialContext(context.Background(), "tcp", l.Addr().String()); err == nil {
		c.Close()
		t.Error("it is reached")
	}
	for a, want := range map[string]bool{
		"1.1.1.1": true, "2606:4700::1111": true, "127.0.0.1": false, "10.0.0.1": false, "172.31.0.1": false, "192.168.0.1": false, "169.254.169.254": false, "168.63.129.16": false, "100.64.0.1": false,
		"0.0.0.0": false, "224.0.0.1": false, "255.255.255.255": false, "198.18.0.1": false, "::1": false, "::": false, "fe80::1": false, "fd00::1": false, "::ffff:10.0.0.1": false,
		"64:ff9b::a00:1": false, "2002:a00:1::": false, "::127.0.0.1": false, "fe80::1%eth0": false,
	} {
		if got := special(netip.MustParseAddr(a)) == ""; got != want {
			t.Errorf("%s is public: %v", a, got)
		}
	}
}

func TestRegistryConfig(t *testing.T) {
	read := func(text string) (*RegistryConfig, error) {
		file := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadRegistryConfig(file)
	}
	c, err := read(`{"auths": {"https://corp.example/v1/": {"username": "u", "password": "p", "organisations": ["shop"]}, "nobody.example": {"organisations": []}, "all.example": {"username": "u"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	g := &Guard{Organisations: c.Organisations}
	for what, want := range map[[2]string]bool{
		{"corp.example", "shop"}: true, {"corp.example", "bank"}: false, {"corp.example", ""}: false, {"nobody.example", "shop"}: false, {"all.example", "bank"}: true, {"docker.io", "bank"}: true,
	} {
		if g.Serves(what[0], what[1]) != want {
			t.Errorf("%v: %v", what, !want)
		}
	}
	if cred, _ := c.Credentials("corp.example"); cred.Username != "u" {
		t.Errorf("%+v", cred)
	}
	if _, err := read(`{"auths": {"https://corp.example/v1/": {"organisations": ["shop"]}, "corp.example": {"username": "u"}}}`); err == nil {
		t.Error("the same registry with and without a list")
	}
}

func FuzzRegistryConfig(f *testing.F) {
	f.Add([]byte(`{"auths": {"r.example": {"auth": "dTpw", "organisations": ["a"]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseRegistryConfig(data)
		if err != nil {
			return
		}
		for host, list := range c.Organisations {
			if g := (&Guard{Organisations: c.Organisations}); list == nil || g.Serves(host, "\x00nobody") {
				t.Fatalf("%q serves everybody", host)
			}
		}
	})
}
