package cluster

import (
	"fmt"
	"maps"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// anyOrg stands in Admission.Egress for every organisation that has no entry and is not trusted.
const anyOrg = "*"

// egressBound gives what a site lets the services of an organisation reach at most; nil: it says nothing.
func (p *Admission) egressBound(org string) *spec.Egress {
	if e, ok := p.Egress[org]; ok {
		return &e
	}
	if e, ok := p.Egress[anyOrg]; ok && !slices.Contains(p.Trusted, org) {
		return &e
	}
	return nil
}

// egressOf gives the policy that holds for a service: its own, which checkEgress has compared with the organisation's, or that.
func (p *Admission) egressOf(org string, s *spec.ServiceSpec) *spec.Egress {
	if s.Egress != nil {
		return s.Egress
	}
	return p.egressBound(org)
}

// checkEgress gives the reason for which an organisation may not have a service that would go further than the site lets it, or that
// no rules could hold.
func (p *Admission) checkEgress(org string, s *spec.ServiceSpec) *wire.Reason {
	bound := p.egressBound(org)
	if i := s.Egress.Beyond(bound); i >= 0 {
		return &wire.Reason{What: "admission",
			Text: fmt.Sprintf("the site does not admit it: egress.allow[%d] asks for %s, and organisation %s may reach %s", i, s.Egress.Allow[i], org, bound),
			Hint: fmt.Sprintf("keep each entry within one of these, or ask the operator of the site, who grants more by egress.%s in the site's admission policy", org)}
	}
	if p.egressOf(org, s) == nil {
		return nil
	}
	for _, need := range s.LevelNeeds() {
		native := need.Field == "ServiceSpec.Runtime" && p.LevelOf(org) == spec.LevelPrivileged // below that it has a user of its own
		if !native && need.Field != "Security.Privileged" && (need.Field != "Security.AddCaps" || need.Level != spec.LevelPrivileged) {
			continue
		}
		by := "egress of its manifest"
		if s.Egress == nil {
			by = "the site's policy for organisation " + org
		}
		return &wire.Reason{What: "admission",
			Text: fmt.Sprintf("the site does not admit it: %s asks for %s, which could change the rules that hold it to %s", need.Path, need.What, by),
			Hint: fmt.Sprintf("do without %s, or without rules: leave egress out, and ask the operator of the site, who sets egress.%s in the site's admission policy", need.Path, org)}
	}
	return nil
}

// Problems lists what of a policy makes no sense.
func (p *Admission) Problems() (out []skerry.Problem) {
	for _, org := range slices.Sorted(maps.Keys(p.Egress)) {
		e := p.Egress[org]
		out = append(out, e.Check("egress."+org)...)
	}
	for _, org := range slices.Sorted(maps.Keys(p.Signers)) {
		for i, key := range p.Signers[org] {
			if err := tier.CheckKeys(key); err != nil {
				out = append(out, skerry.Problem{Path: fmt.Sprintf("signers.%s[%d]", org, i), Message: err.Error(), Hint: "give a public key of ECDSA on P-256 in PEM, such as cosign.pub"})
			}
		}
	}
	return out
}
