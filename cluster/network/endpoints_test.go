package network

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestEndpoints: a worker has the endpoints of what its instances are linked to: nearby under their own address, else at host ports.
func TestEndpoints(t *testing.T) {
	app := skerry.AppKey{Namespace: "acme", Name: "shop"}
	port := func(at string) []wire.PortBinding {
		return []wire.PortBinding{{Name: "http", Port: 80, Protocol: "tcp", Address: at}}
	}
	links := []spec.Link{{Service: "db"}}
	web := Instance{ID: "web-1", Service: "web", Links: links, Worker: "w1"}
	e := NewEndpoints()
	for n, x := range []struct {
		list []Instance
		want string // changes
	}{
		{nil, ""},
		{[]Instance{{ID: "db-1", Service: "db", Worker: "w2", Serves: true, Ports: port("192.0.2.2:8080")}}, ""}, // nobody is linked to it
		{[]Instance{web, {ID: "web-2", Service: "web", Links: links}}, "w1 db: "},                                // one has no place yet
		{[]Instance{
			{ID: "db-1", Service: "db", Worker: "w2", Serves: true, Address: "10.0.0.1", Ports: port("192.0.2.2:8080")},
			{ID: "db-2", Service: "db", Worker: "w1", Serves: true, Address: "fd00::1", Ports: port("192.0.2.1:8080")},
			{ID: "db-3", Service: "db", Worker: "w1", Serves: true, Ports: port("192.0.2.1:8081")},        // it has no address of its own
			{ID: "db-4", Service: "db", Worker: "w2", Serves: true, Address: "10.0.0.2", Ports: port("")}, // nor a port on its host
			{ID: "db-5", Service: "db", Worker: "w2", Address: "10.0.0.3", Ports: port("192.0.2.2:8082")}, // not ready
			// Published at the loopback address of its worker: at another worker that would be whatever listens there.
			{ID: "db-6", Service: "db", Worker: "w2", Serves: true, Address: "10.0.0.4", Ports: port("127.0.0.1:8083")},
			web,
		}, "w1 db: db-1 192.0.2.2:8080, db-2 [fd00::1]:80, db-3 192.0.2.1:8081"},
		{[]Instance{{ID: "web-1", Service: "web", Links: links, Worker: "w1", Next: "w2"}}, "w1 db: ; w2 db: "}, // a copy starts
		{[]Instance{{ID: "web-1", Service: "web", Links: links, Worker: "w2"}}, "w2 db: ; w1 db gone"},
		{[]Instance{{ID: "web-1", Service: "web", Worker: "w2"}}, "w2 db gone"},
		{nil, ""},
	} {
		var got []string
		for _, c := range e.Publish(app, slices.Values(x.list)) {
			var at []string
			for _, p := range c.List {
				at = append(at, fmt.Sprint(p.Instance, " ", p.Address))
			}
			if text := c.Worker + " " + c.Service.Service; c.Gone {
				got = append(got, text+" gone")
			} else {
				got = append(got, text+": "+strings.Join(at, ", "))
			}
		}
		if strings.Join(got, "; ") != x.want {
			t.Errorf("%d: %q, want %q", n, strings.Join(got, "; "), x.want)
		}
	}
	if len(e.given) > 0 {
		t.Errorf("something is kept: %v", e.given)
	}
}

// TestEndpointsOfAnEarlierLife are taken back where nothing is linked any more, and found where nothing is at all.
func TestEndpointsOfAnEarlierLife(t *testing.T) {
	e := NewEndpoints()
	for key, want := range map[string]bool{"ep/acme/shop/db": true, "ep/acme/shop": false, "net/acme/shop/db": false} {
		if app, ok := e.Load("w1", key); ok != want || ok && app.String() != "acme/shop" {
			t.Errorf("%s: %v, %v", key, app, ok)
		}
	}
	yes, no := func(string) bool { return true }, func(string) bool { return false }
	here := func(skerry.AppKey) bool { return true }
	if len(e.Audit(yes, here)) != 0 || !slices.Equal(e.Audit(no, here), []string{"endpoints of acme/shop/db are kept at w1"}) ||
		len(e.Audit(yes, func(skerry.AppKey) bool { return false })) != 1 {
		t.Error("the audit is wrong")
	}
	if got := e.Publish(skerry.AppKey{Namespace: "acme", Name: "shop"}, slices.Values[[]Instance](nil)); len(got) != 1 || !got[0].Gone || got[0].Worker != "w1" {
		t.Errorf("%+v", got)
	}
}

// TestHostPort holds hostPort against the standard library.
func TestHostPort(t *testing.T) {
	for _, host := range []string{"", "10.0.0.1", "fd00::1", "fe80::1%eth0", "name"} {
		if got, want := hostPort(host, 80), net.JoinHostPort(host, "80"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
