package network

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
)

// TestPaths: who must know whom follows from the routes, counted, and both ends of a path are looked at when it begins or ends.
func TestPaths(t *testing.T) {
	p := NewPaths()
	for n, x := range []struct {
		worker, service, to string // where the route leads
		touched             string // by that
		peers               string // of the worker, then
	}{
		{"a", "web", "b c", "a b c", "b c"},
		{"a", "web", "b c", "", "b c"}, // the same
		{"a", "db", "c", "", "b c"},    // a second reason to know c
		{"a", "web", "b", "", "b c"},
		{"a", "db", "", "a c", "b"},
		{"b", "web", "a", "a b", "a"}, // the way back exists, and is another route
		{"a", "web", "", "a b", "b"},  // and keeps them peers
		{"b", "web", "far/7", "a b far/7", "far/7"},
		{"b", "web", "", "b far/7", ""},
		{"b", "web", "", "", ""}, // it had none
	} {
		p.Route(x.worker, skerry.ServiceKey{Service: x.service}, strings.Fields(x.to))
		if got := strings.Join(slices.Sorted(maps.Keys(p.Changed())), " "); got != x.touched {
			t.Errorf("%d: %s were touched, want %s", n, got, x.touched)
		}
		if got := strings.Join(slices.Sorted(maps.Keys(p.Peers(x.worker))), " "); got != x.peers {
			t.Errorf("%d: %s has peers %s, want %s", n, x.worker, got, x.peers)
		}
		if faults := p.Audit(); len(faults) > 0 {
			t.Errorf("%d: %v", n, faults)
		}
	}
	if len(p.via)+len(p.reach)+len(p.from) > 0 {
		t.Errorf("something is kept of routes that ended: %v %v %v", p.via, p.reach, p.from)
	}
}

// TestTouch: what changes about a worker concerns those whose routes lead to it, or all that it exchanges packets with.
func TestTouch(t *testing.T) {
	p := NewPaths()
	web := skerry.ServiceKey{Service: "web"}
	p.Route("user", web, []string{"w"})
	p.Route("w", web, []string{"other"})
	p.Changed()
	for _, x := range []struct {
		touch func(string)
		want  []string
	}{{p.Touch, []string{"w"}}, {p.TouchUsers, []string{"user"}}, {p.TouchPeers, []string{"other", "user"}}} {
		x.touch("w")
		if got := slices.Sorted(maps.Keys(p.Changed())); !slices.Equal(got, x.want) {
			t.Errorf("%v, want %v", got, x.want)
		}
	}
	if !p.Exchange("w", "user") || !p.Exchange("user", "w") || p.Exchange("user", "other") || p.Reached("user") || !p.Reached("w") || !slices.Equal(slices.Collect(p.Users("w")), []string{"user"}) {
		t.Error("who exchanges packets with whom is wrong")
	}
}

// TestAuditOfPaths: counts that differ from the routes are found.
func TestAuditOfPaths(t *testing.T) {
	for want, spoil := range map[string]func(p *Paths){
		"a: its routes lead to map[b:1], counted map[b:2]": func(p *Paths) { p.reach["a"]["b"] = 2 },
		"c has no route, counted map[b:1]":                 func(p *Paths) { p.reach["c"] = map[string]int{"b": 1} },
		"routes of a lead to b, which is not listed there": func(p *Paths) { clear(p.from) },
		"b is listed for a route of c, which has none":     func(p *Paths) { p.from["b"]["c"] = true },
	} {
		p := NewPaths()
		p.Route("a", skerry.ServiceKey{Service: "web"}, []string{"b"})
		if faults := p.Audit(); len(faults) > 0 {
			t.Fatal(faults)
		}
		if spoil(p); !slices.Contains(p.Audit(), want) {
			t.Errorf("%v, want %q among them", p.Audit(), want)
		}
	}
}
