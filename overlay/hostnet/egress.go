package hostnet

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"skerry.dev/skerry/spec"
)

// egress is where all instances of a worker may go outside the overlay: the policies, each once, and who is held to which.
//
//	from an instance ─┬─ to another one, or to the overlay's devices: not looked at here
//	                  ├─ of a connection that exists: through
//	                  ├─ from one without a policy: through, but for what the worker closes
//	                  ├─ from one with a policy: its chain; through is what that allows and the worker does not close
//	                  └─ else: refused
type egress struct {
	free     []netip.Addr // of instances without one
	policies []policy
}

// policy is one of them, with the addresses that are held to it.
type policy struct {
	allow   []spec.EgressRule
	sources []netip.Addr
}

// planEgress works out what is to be; nil: nobody has a policy. One that makes no sense opens nothing.
func planEgress(wants []Want, addrs func(id string) []netip.Prefix) *egress {
	e, at := &egress{}, map[string]int{}
	for _, want := range wants {
		var own []netip.Addr
		for _, p := range addrs(want.ID) {
			own = append(own, p.Addr())
		}
		if want.Egress == nil {
			e.free = append(e.free, own...)
			continue
		}
		allow := want.Egress.Allow
		if want.checkEgress() != nil {
			allow = nil
		}
		text := (&spec.Egress{Allow: allow}).String()
		i, ok := at[text]
		if !ok {
			i = len(e.policies)
			at[text] = i
			e.policies = append(e.policies, policy{allow: allow})
		}
		e.policies[i].sources = append(e.policies[i].sources, own...)
	}
	if len(e.policies) == 0 {
		return nil
	}
	slices.SortFunc(e.free, netip.Addr.Compare)
	for _, p := range e.policies {
		slices.SortFunc(p.sources, netip.Addr.Compare)
	}
	return e
}

// held are the addresses of instances with a policy.
func (e *egress) held() (out []netip.Addr) {
	for _, p := range e.policies {
		out = append(out, p.sources...)
	}
	return out
}

// String shows it for people; equal texts are equal rules.
func (e *egress) String() string {
	if e == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "free %v\n", e.free)
	for _, p := range e.policies {
		fmt.Fprintf(&b, "from %v\n", p.sources)
		for _, r := range p.allow {
			fmt.Fprintf(&b, "  allow %s\n", r)
		}
		b.WriteString("  refuse\n")
	}
	return b.String()
}

// chain names the chain of a policy by what is in it.
func (p *policy) chain(prefix string) string {
	sum := sha256.Sum256([]byte((&spec.Egress{Allow: p.allow}).String()))
	return prefix + "-" + hex.EncodeToString(sum[:8])
}

func (w Want) checkEgress() error {
	if w.Egress == nil {
		return nil
	}
	if problems := w.Egress.Check("egress"); len(problems) > 0 {
		return fmt.Errorf("%s: %s", problems[0].Path, problems[0].Message)
	}
	return nil
}
