package sched

import "skerry.dev/skerry/spec"

// ResourceRules is the chain of Resource-Only Match. The seed document prints no body for Algorithm 1; the rules are
// those of line 1 of Algorithm 2 (CPU, memory, virtualization), and what an operator or a developer states of single
// workers.
func ResourceRules() []Rule {
	return []Rule{NotTried{}, Volumes{}, Virtualization{}, Abilities{}, Architecture{}, Devices{}, Attachable{}, Area{}, Taints{}, Egress{},
		Levels{}, Signatures{}, Features{}, Capacity{}, Distance{}, Labels{}, HostPorts{}, Affinity{}}
}

// AllRules adds the limits of links and users (Algorithm 2, lines 2 to 16).
func AllRules() []Rule { return append(ResourceRules(), Links{}, Users{}) }

// OfMachines keeps the rules of a policy that ask what a worker is, and not what runs there or how far it is from anybody.
func (p Policy) OfMachines() Policy {
	rules := p.Rules
	p.Rules = nil
	for _, r := range rules {
		switch r.(type) {
		case NotTried, Volumes, Capacity, HostPorts, Affinity, Links, Users:
		case Attachable:
			p.Rules = append(p.Rules, Attachable{Bare: true})
		default:
			p.Rules = append(p.Rules, r)
		}
	}
	return p
}

// ROM is Resource-Only Match (Oakestra, section 3.2.1): the best fit among the workers with the resources.
func ROM() Policy { return Policy{Name: spec.PolicyROM, Rules: ResourceRules(), Rank: BestFit{}} }

// LDP is Latency & Distance Aware Placement (Oakestra, Algorithm 2); ROM's rule chooses inside its set W.
func LDP() Policy { return Policy{Name: spec.PolicyLDP, Rules: AllRules(), Rank: BestFit{}} }

// Policies lists the policies by name; the cluster core is given it by main.
func Policies() map[string]Policy {
	out := map[string]Policy{}
	for _, p := range []Policy{
		ROM(), LDP(),
		{Name: spec.PolicySpread, Rules: AllRules(), Rank: Spread{}},
		{Name: spec.PolicyPack, Rules: AllRules(), Rank: Pack{}},
		{Name: spec.PolicyContention, Rules: AllRules(), Rank: LeastContention{}},
		{Name: spec.PolicyEnergy, Rules: AllRules(), Rank: LeastPower{}},
		{Name: spec.PolicyFirstFit, Rules: AllRules(), Rank: FirstFit{}, ByName: true},
		{Name: spec.PolicyBestFit, Rules: AllRules(), Rank: BestFit{}},
		{Name: spec.PolicyWorstFit, Rules: AllRules(), Rank: WorstFit{}},
	} {
		out[p.Name] = p
	}
	return out
}
