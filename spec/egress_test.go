package spec

import (
	"encoding/json"
	"net/netip"
	"testing"
)

func TestEgressBeyond(t *testing.T) {
	rule := func(cidr string, ports ...EgressPort) EgressRule {
		return EgressRule{CIDR: netip.MustParsePrefix(cidr), Ports: ports}
	}
	but := func(r EgressRule, except ...string) EgressRule {
		for _, x := range except {
			r.Except = append(r.Except, netip.MustParsePrefix(x))
		}
		return r
	}
	web, dns, named := EgressPort{Port: 443}, EgressPort{Port: 53, Protocol: "udp"}, EgressPort{Port: 443, Protocol: "tcp"}
	for name, c := range map[string]struct {
		asks, bound []EgressRule
		want        int
	}{
		"nothing":                    {nil, nil, -1},
		"something where nothing is": {[]EgressRule{rule("203.0.113.0/24")}, nil, 0},
		"the same":                   {[]EgressRule{rule("203.0.113.0/24", web)}, []EgressRule{rule("203.0.113.0/24", named)}, -1},
		"a part":                     {[]EgressRule{rule("203.0.113.8/29", web)}, []EgressRule{rule("203.0.113.0/24")}, -1},
		"more":                       {[]EgressRule{rule("203.0.112.0/23")}, []EgressRule{rule("203.0.113.0/24")}, 0},
		"all ports":                  {[]EgressRule{rule("203.0.113.0/24")}, []EgressRule{rule("203.0.113.0/24", web)}, 0},
		"another port":               {[]EgressRule{rule("203.0.113.0/24", web), rule("203.0.113.0/24", web, dns)}, []EgressRule{rule("203.0.113.0/24", web)}, 1},
		"what is excepted":           {[]EgressRule{rule("203.0.113.0/24")}, []EgressRule{but(rule("203.0.113.0/24"), "203.0.113.7/32")}, 0},
		"excepted as well":           {[]EgressRule{but(rule("203.0.113.0/24"), "203.0.113.0/29")}, []EgressRule{but(rule("203.0.113.0/24"), "203.0.113.7/32")}, -1},
		"excepted in part":           {[]EgressRule{but(rule("203.0.113.0/24"), "203.0.113.7/32")}, []EgressRule{but(rule("203.0.113.0/24"), "203.0.113.0/29")}, 0},
		"within what is excepted":    {[]EgressRule{rule("203.0.113.7/32")}, []EgressRule{but(rule("203.0.113.0/24"), "203.0.113.0/29")}, 0},
		"beside what is excepted":    {[]EgressRule{rule("203.0.113.128/25")}, []EgressRule{but(rule("203.0.113.0/24"), "203.0.113.0/29")}, -1},
		"another family":             {[]EgressRule{rule("::/0")}, []EgressRule{rule("0.0.0.0/0")}, 0},
		"two that only together do":  {[]EgressRule{rule("203.0.112.0/23")}, []EgressRule{rule("203.0.112.0/24"), rule("203.0.113.0/24")}, 0},
		"one of several":             {[]EgressRule{rule("2001:db8:1::/48")}, []EgressRule{rule("0.0.0.0/0"), rule("2001:db8::/32")}, -1},
	} {
		if got := (&Egress{Allow: c.asks}).Beyond(&Egress{Allow: c.bound}); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	var none *Egress
	if none.Beyond(&Egress{}) != -1 || (&Egress{Allow: []EgressRule{rule("0.0.0.0/0")}}).Beyond(nil) != -1 {
		t.Error("no policy bounds, or goes beyond one")
	}
}

// A policy that opens nothing is not the same as none, on every way.
func TestEmptyEgressIsKept(t *testing.T) {
	in := ServiceSpec{Name: "web", Egress: &Egress{}}
	data, err := json.Marshal(in)
	var out ServiceSpec
	if err != nil || json.Unmarshal(data, &out) != nil || out.Egress == nil {
		t.Errorf("%s, %v", data, err)
	}
	if p := DecodeStrict([]byte(`{"name": "web", "egress": {}}`), &out); len(p) > 0 || out.Egress == nil {
		t.Errorf("%+v, %v", out.Egress, p)
	}
	if in.Egress.String() == (*Egress)(nil).String() {
		t.Error("both read alike")
	}
}
