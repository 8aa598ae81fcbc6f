package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

const small = `
name: t
hosts:
- {name: r, role: root}
- {name: a, role: cluster}
- {name: b, role: cluster}
- {name: a1, role: worker, cluster: a, resources: {cpu: 1, memory: 64Mi}}
- {name: b1, role: worker, cluster: b}
- {name: out, address: 10.88.0.1}
links:
- {host: out, delay: 5ms, rate: 10mbit}
- {between: [r, b/*], delay: 20ms, jitter: 1ms, loss: 1%}
`

func parse(t *testing.T, text string) Topology {
	t.Helper()
	top, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func TestParseFillsIn(t *testing.T) {
	top := parse(t, small)
	var got []string
	for _, h := range top.Hosts {
		got = append(got, fmt.Sprintf("%s %s %s %s%s", h.Name, h.Role, h.Address, h.Root, h.Cluster))
	}
	want := []string{"r root 10.88.0.2 ", "a cluster 10.88.0.3 r", "b cluster 10.88.0.4 r", "a1 worker 10.88.0.5 a", "b1 worker 10.88.0.6 b", "out none 10.88.0.1 "}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, path, says string }{
		{"no hosts", "name: t\nhosts: []", "hosts", "1 to 200"},
		{"name", "name: T_\nhosts: [{name: a}]", "name", ""},
		{"unknown field", "name: t\nhosts: [{name: a, rolle: root}]", "hosts[0].rolle", "unknown"},
		{"role", "name: t\nhosts: [{name: a, role: boss}]", "hosts[0].role", "boss"},
		{"twice", "name: t\nhosts: [{name: a}, {name: a}]", "hosts[1].name", "hosts[0]"},
		{"reserved", "name: t\nhosts: [{name: wan}]", "hosts[0].name", "between the hosts"},
		{"address outside", "name: t\nhosts: [{name: a, address: 1.2.3.4}]", "hosts[0].address", "10.88.0.0/24"},
		{"address twice", "name: t\nhosts: [{name: a, address: 10.88.0.9}, {name: b, address: 10.88.0.9}]", "hosts[1].address", "also that of a"},
		{"network", "name: t\nnetwork: 10.0.0.0/30\nhosts: [{name: a}]", "network", "28 bits"},
		{"no cluster", "name: t\nhosts: [{name: a, role: worker}]", "hosts[0]", "no host with role cluster"},
		{"which cluster", "name: t\nhosts: [{name: a, role: cluster}, {name: b, role: cluster}, {name: w, role: worker}]", "hosts[2].cluster", "several"},
		{"cluster of nobody", "name: t\nhosts: [{name: a, role: cluster}, {name: w, role: worker, cluster: x}]", "hosts[1].cluster", "no cluster"},
		{"resources", "name: t\nhosts: [{name: a, resources: {cpu: 1}}]", "hosts[0]", "not a worker"},
		{"limits", "name: t\nhosts: [{name: a, limits: {cpu: 5m}}]", "hosts[0].limits", "no machine"},
		{"limits of memory", "name: t\nhosts: [{name: a, limits: {memory: 1Mi}}]", "hosts[0].limits", "no machine"},
		{"negative", "name: t\nhosts: [{name: a}]\nlinks: [{host: a, delay: -1s}]", "links[0].delay", "negative"},
		{"loss", "name: t\nhosts: [{name: a}]\nlinks: [{host: a, loss: 120%}]", "links[0].loss", "share"},
		{"rate", "name: t\nhosts: [{name: a}]\nlinks: [{host: a, rate: fast}]", "links[0].rate", "10mbit"},
		{"rate between", "name: t\nhosts: [{name: a}, {name: b}]\nlinks: [{between: [a, b], rate: 1mbit}]", "links[0].rate", "cable"},
		{"link of nobody", "name: t\nhosts: [{name: a}]\nlinks: [{between: [a, x]}]", "links[0].between[1]", "no host"},
		{"half a link", "name: t\nhosts: [{name: a}]\nlinks: [{delay: 1s}]", "links[0]", "two sides"},
		{"kind of NAT", "name: t\nhosts: [{name: gw, role: nat, nat: cone}]", "hosts[0].nat", "use full-cone, restricted"},
		{"no kind of NAT", "name: t\nhosts: [{name: gw, role: nat}]", "hosts[0].nat", "no kind"},
		{"kind of no NAT", "name: t\nhosts: [{name: a, nat: symmetric}]", "hosts[0]", "not a NAT"},
		{"inside of no NAT", "name: t\nhosts: [{name: a, inside: 10.1.0.0/24}]", "hosts[0]", "not a NAT"},
		{"inside", "name: t\nhosts: [{name: gw, role: nat, nat: symmetric, inside: 10.1.0.0}]", "hosts[0].inside", "28 bits"},
		{"inside too small", "name: t\nhosts: [{name: gw, role: nat, nat: symmetric, inside: 10.1.0.0/29}]", "hosts[0].inside", "28 bits"},
		{"inside is outside", "name: t\nhosts: [{name: gw, role: nat, nat: symmetric, inside: 10.88.0.0/16}]", "hosts[0].inside", "overlaps"},
		{"behind nobody", "name: t\nhosts: [{name: a, behind: x}]", "hosts[0].behind", "no NAT"},
		{"behind no NAT", "name: t\nhosts: [{name: b}, {name: a, behind: b}]", "hosts[1].behind", "no NAT"},
		{"behind itself", "name: t\nhosts: [{name: m, role: nat, nat: symmetric, behind: gw}, {name: gw, role: nat, nat: symmetric, behind: m}]", "hosts[0].behind", "itself"},
		{"insides overlap", "name: t\nhosts: [{name: m, role: nat, nat: symmetric}, {name: gw, role: nat, nat: symmetric, behind: m, inside: 192.168.0.0/16}]", "hosts[1].inside", "overlaps"},
		{"address of the outside", "name: t\nhosts: [{name: gw, role: nat, nat: symmetric}, {name: a, behind: gw, address: 10.88.0.9}]", "hosts[1].address", "192.168.1.0/24"},
		{"address of the NAT", "name: t\nhosts: [{name: gw, role: nat, nat: symmetric}, {name: a, behind: gw, address: 192.168.1.1}]", "hosts[1].address", "also that of gw"},
		{"a cluster behind a NAT", "name: t\nhosts: [{name: gw, role: nat, nat: full-cone}, {name: c, role: cluster, behind: gw}, {name: w, role: worker}]", "hosts[2].behind", "cannot reach c"},
		{"delay behind a NAT", "name: t\nhosts: [{name: gw, role: nat, nat: symmetric}, {name: a, behind: gw}]\nlinks: [{host: a, delay: 1ms}]", "links[0]", "behind the NAT gw"},
		{"link behind a NAT", "name: t\nhosts: [{name: gw, role: nat, nat: symmetric}, {name: a, behind: gw}, {name: b, behind: gw}]\nlinks: [{between: [a, b], delay: 1ms}]", "links[0].between", "no way"},
		{"args of a NAT", "name: t\nhosts: [{name: gw, role: nat, nat: symmetric, args: [x]}]", "hosts[0].args", "no command"},
		{"long delay", "name: t\nhosts: [{name: a}]\nlinks: [{host: a, delay: 2m}]", "links[0].delay", "minute"},
	} {
		_, err := Parse([]byte(c.text))
		var e *skerry.Error
		if !errors.As(err, &e) || !slices.ContainsFunc(e.Problems, func(p skerry.Problem) bool {
			return p.Path == c.path && strings.Contains(p.Message+" "+p.Hint, c.says)
		}) {
			t.Errorf("%s: %+v", c.name, err)
		}
	}
	for _, text := range []string{"", "hosts: [", "name: t\nname: u\nhosts: [{name: a}]", "[]"} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// behind has a whole site, and a worker of another, behind NATs with the same inside, and a NAT behind a NAT.
const behind = `
name: t
hosts:
- {name: r, role: root}
- {name: office, role: nat, nat: port-restricted}
- {name: a, role: cluster, behind: office}
- {name: a1, role: worker, cluster: a, behind: office}
- {name: b, role: cluster}
- {name: carrier, role: nat, nat: symmetric, inside: 100.64.0.0/24}
- {name: home, role: nat, nat: full-cone, inside: 192.168.1.0/24, behind: carrier}
- {name: b1, role: worker, cluster: b, behind: home}
- {name: b2, role: worker, cluster: b}
links:
- {host: home, rate: 10mbit}
- {between: [r, "b/*"], delay: 5ms}
- {host: carrier, delay: 3ms}
`

func TestBehindNATs(t *testing.T) {
	top := parse(t, behind)
	var got []string
	for _, h := range top.Hosts {
		got = append(got, fmt.Sprintf("%s %s %s", h.Name, h.Address, top.outer(h.Name)))
	}
	want := []string{"r 10.88.0.1 r", "office 10.88.0.2 office", "a 192.168.1.2 office", "a1 192.168.1.3 office", "b 10.88.0.3 b", "carrier 10.88.0.4 carrier",
		"home 100.64.0.2 carrier", "b1 192.168.1.2 carrier", "b2 10.88.0.5 b2"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	got = nil
	for _, h := range top.outwardFirst() {
		got = append(got, h.Name)
	}
	if want := []string{"r", "office", "b", "carrier", "b2", "a", "a1", "home", "b1"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if side := top.side("b/*"); !slices.Equal(side, []string{"b", "carrier", "b2"}) {
		t.Errorf("%q", side)
	}
	w := ways{Links: top.Links}
	for _, c := range []struct {
		from, to string
		delay    time.Duration
	}{{"r", "carrier", 5 * time.Millisecond}, {"carrier", "r", 5 * time.Millisecond}, {"r", "b2", 5 * time.Millisecond}, {"carrier", "office", 3 * time.Millisecond}} {
		if s := w.shape(&top, c.from, c.to); s.Delay != c.delay {
			t.Errorf("%s to %s: %+v", c.from, c.to, s)
		}
	}
	for _, r := range w.rules(&top) {
		if network := netip.MustParsePrefix(top.Network); !network.Contains(r.From) || !network.Contains(r.To) {
			t.Errorf("%s to %s is not seen between the hosts", r.From, r.To)
		}
	}
	if cut, err := top.waysBetween("b1", "r", true); err != nil || !slices.Equal(cut, []Way{{"carrier", "r"}}) {
		t.Errorf("%v, %v", cut, err)
	}
	if _, err := top.waysBetween("a", "a1", false); err == nil {
		t.Error("the network between the hosts sees what passes behind a NAT")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(behind))
	f.Add([]byte("name: t\nhosts: [{name: a}]\nlinks: [{host: a, loss: 0.5, rate: 1gbit}]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		top, err := Parse(b)
		if err != nil {
			return
		}
		w := ways{Links: top.Links}
		_ = w.ruleset(&top)
		for _, h := range top.outwardFirst() {
			if h.Role == RoleNAT {
				_ = top.natRules(h, h.NAT)
			}
		}
	})
}

func TestRates(t *testing.T) {
	for text, want := range map[string]Rate{"512kbit": 512e3, "10mbit": 10e6, "1.5Gbit": 1.5e9, "0": 0, "8000bit": 8000} {
		got, err := ParseRate(text)
		if err != nil || got != want {
			t.Error(text, got, err)
		}
		if again, err := ParseRate(got.String()); err != nil || again != got {
			t.Error(text, got.String(), err)
		}
	}
	for _, text := range []string{"", "x", "-1mbit", "10", "1bit", "1e30gbit", "nanmbit"} {
		if _, err := ParseRate(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestShapes(t *testing.T) {
	top := parse(t, small)
	w := ways{Links: top.Links}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct {
		from, to string
		delay    time.Duration
		loss     float64
	}{
		{"r", "a", 0, 0}, {"r", "out", ms(5), 0}, {"out", "r", ms(5), 0}, {"r", "b", ms(20), 0.01}, {"b1", "r", ms(20), 0.01}, {"b", "b1", 0, 0}, {"out", "b1", ms(5), 0},
	} {
		s := w.shape(&top, c.from, c.to)
		if s.Delay != c.delay || s.Loss != c.loss {
			t.Errorf("%s to %s: %+v", c.from, c.to, s)
		}
	}
	// The cables of both ends add up; what is said of the way between takes their place.
	w.set(Link{Host: "a", Delay: spec.Duration(ms(10)), Loss: 0.5})
	w.set(Link{Host: "out", Loss: 0.5})
	if s := w.shape(&top, "a", "out"); s.Delay != ms(10) || s.Loss != 0.75 {
		t.Errorf("%+v", s)
	}
	w.set(Link{Host: "a", Duplicate: 0.5, Reorder: 0.25})
	w.set(Link{Host: "out", Duplicate: 0.5})
	if s := w.shape(&top, "a", "out"); s.Duplicate != 0.75 || s.Reorder != 0.25 || !strings.Contains(w.ruleset(&top), "mod 1000 <= 749 counter dup to ip daddr") {
		t.Errorf("%+v\n%s", s, w.ruleset(&top))
	}
	w.set(Link{Between: []string{"out", "a"}, Delay: spec.Duration(ms(1))})
	if s := w.shape(&top, "a", "out"); s.Delay != ms(1) || s.Loss != 0 {
		t.Errorf("%+v", s)
	}
	if w.lossy(&top, "out") != true || w.lossy(&top, "b1") != true {
		t.Error("lossy cables")
	}
}

func TestCutAndHeal(t *testing.T) {
	top := parse(t, small)
	var w ways
	both, err := top.waysBetween("r", "b/*", false)
	if err != nil || len(both) != 4 {
		t.Fatal(both, err)
	}
	w.cut(both)
	w.cut(both)
	if len(w.Cut) != 4 || !strings.Contains(w.ruleset(&top), "10.88.0.2 . 10.88.0.4, 10.88.0.2 . 10.88.0.6") {
		t.Error(w.Cut, w.ruleset(&top))
	}
	one, err := top.waysBetween("r", "b", true)
	if err != nil || !slices.Equal(one, []Way{{"r", "b"}}) {
		t.Fatal(one, err)
	}
	w.heal(one)
	if len(w.Cut) != 3 {
		t.Error(w.Cut)
	}
	if _, err := top.waysBetween("r", "nobody", false); skerry.AsError(err).Code != skerry.CodeNotFound {
		t.Error(err)
	}
}

func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../examples/labs/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if _, err := Load(f); err != nil {
			t.Error(err)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
