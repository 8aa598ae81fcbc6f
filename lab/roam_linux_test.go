package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	dns "golang.org/x/net/dns/dnsmessage"
)

const roamLab = `
name: NAME
hosts:
- {name: site, role: cluster, root: none, admission: {trusted: [default]}, args: [--dns, "0.0.0.0:53", --dns-zone, site.example.org, --dns-zone, example.org]}
- {name: roam-a, role: worker, args: [--probe-every, 40ms]}
- {name: roam-b, role: worker, args: [--probe-every, 40ms]}
- {name: phone, role: none}
links:
- {between: [phone, roam-a], delay: 2ms}
- {between: [phone, roam-b], delay: 25ms}
`

const roamApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: web
    image: demo/kit:1
    args: [answer, ":80"]
    replicas: 2
    ports: [{name: http, port: 80}]
    probes: {readiness: {http: {port: 80}, interval: 1s}}
    resources: {cpu: 20m, memory: 32Mi}
    placement: {policy: spread}
    ingress: [{host: shop.example.org, port: http}]
`

// phone is a client outside that asks by name, as the resolver of a telephone does: an answer is good for its TTL.
type phone struct {
	l      *Lab
	server string

	addr  netip.Addr
	until time.Time
}

func (p *phone) dial(network, addr string) (c net.Conn, err error) {
	err = p.l.In("phone", func() error {
		c, err = (&net.Dialer{Timeout: 5 * time.Second}).Dial(network, addr)
		return err
	})
	return c, err
}

func (p *phone) lookup(host string) (netip.Addr, error) {
	if time.Now().Before(p.until) {
		return p.addr, nil
	}
	m, err := p.exchange(p.server, host)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range m.Answers {
		if r, ok := a.Body.(*dns.AResource); ok {
			p.addr, p.until = netip.AddrFrom4(r.A), time.Now().Add(time.Duration(a.Header.TTL)*time.Second)
			return p.addr, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s: %s", host, m.RCode)
}

// exchange asks a name server for an address.
func (p *phone) exchange(server, host string) (m dns.Message, err error) {
	name, err := dns.NewName(host + ".")
	if err != nil {
		return m, err
	}
	q := dns.Message{Header: dns.Header{ID: 7}, Questions: []dns.Question{{Name: name, Type: dns.TypeA, Class: dns.ClassINET}}}
	out, err := q.Pack()
	if err != nil {
		return m, err
	}
	c, err := p.dial("udp", server+":53")
	if err != nil {
		return m, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write(out); err != nil {
		return m, err
	}
	buf := make([]byte, 1500)
	n, err := c.Read(buf)
	if err != nil {
		return m, err
	}
	return m, m.Unpack(buf[:n])
}

// ask sends a request on a connection.
func ask(c net.Conn, r *bufio.Reader) error {
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop.example.org\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return err
}

// TestRoaming has a client outside move away from one ingress and near another one: what it asks anew goes there, the
// connection that it has is kept, and nothing fails.
func TestRoaming(t *testing.T) {
	s := newSite(t, roamLab, roamApp)
	l := s.l
	p := &phone{l: l, server: l.Topology.Host("site").Address}
	a, b := netip.MustParseAddr(l.Topology.Host("roam-a").Address), netip.MustParseAddr(l.Topology.Host("roam-b").Address)
	s.await("the name has an address", func() bool { _, err := p.lookup("shop.example.org"); return err == nil })
	q := &phone{l: l, server: p.server}
	if at, err := q.lookup("shop.example.org.site.example.org"); err != nil || at != a && at != b {
		t.Errorf("the name that a root leads to is %s, %v", at, err)
	}
	if at, err := (&phone{l: l, server: p.server}).lookup("nobody.example.org"); err == nil {
		t.Errorf("a name that nobody has is %s", at)
	}

	var mu sync.Mutex
	at := netip.Addr{} // where the last new request went
	var failures []error
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	fail := func(what string, err error) {
		mu.Lock()
		defer mu.Unlock()
		failures = append(failures, fmt.Errorf("%s: %w", what, err))
	}
	n := 0
	wg.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			to, err := p.lookup("shop.example.org")
			if err != nil {
				fail("lookup", err)
				continue
			}
			c, err := p.dial("tcp", netip.AddrPortFrom(to, 80).String())
			if err == nil {
				err = ask(c, bufio.NewReader(c))
				c.Close()
			}
			if err != nil {
				fail("request to "+to.String(), err)
			}
			mu.Lock()
			at = to
			n++
			mu.Unlock()
		}
	})
	defer wg.Wait()
	defer cancel()
	goesTo := func(want netip.Addr) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return at == want
		}
	}
	s.await("the near ingress is asked", goesTo(a))
	long, err := p.dial("tcp", netip.AddrPortFrom(a, 80).String())
	if err != nil {
		t.Fatal(err)
	}
	defer long.Close()
	r := bufio.NewReader(long)
	keep := func() bool {
		if err := ask(long, r); err != nil {
			fail("the long connection", err)
			return false
		}
		return true
	}
	keep()
	for _, move := range []struct {
		to   netip.Addr
		a, b time.Duration
	}{{b, 30 * time.Millisecond, 2 * time.Millisecond}, {a, 3 * time.Millisecond, 40 * time.Millisecond}} {
		for host, delay := range map[string]time.Duration{"roam-a": move.a, "roam-b": move.b} {
			if err := l.SetLink(t.Context(), []string{"phone", host}, LinkChange{Delay: &delay}); err != nil {
				t.Fatal(err)
			}
		}
		s.await("the other ingress is nearer", func() bool { return keep() && goesTo(move.to)() })
		keep()
	}
	s.await("it was asked often enough", func() bool { mu.Lock(); defer mu.Unlock(); return n >= 20 || len(failures) > 0 })
	cancel()
	wg.Wait()
	if len(failures) > 0 {
		t.Errorf("%d of %d requests failed, the first: %v", len(failures), n, failures)
	}
}
