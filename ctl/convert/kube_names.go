package convert

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"skerry.dev/skerry/spec"
)

// nameWorkloads has each workload named after a Service that leads to it alone, else as it is. What leads to several is an alias, whose
// name no service has.
func (conv *kube) nameWorkloads(leading map[*workload][]*peer, shared map[string]bool) {
	taken := map[string]string{}
	for _, load := range conv.workloads {
		best := load.object.name
		for i, one := range leading[load] {
			if i == 0 || one.object.name == load.object.name {
				best = one.object.name
			}
		}
		if shared[Name(best)] {
			best += "-" + strings.ToLower(load.object.kind)
		}
		load.svc.Name = Name(best)
		obj := load.object
		switch other := taken[load.svc.Name]; {
		case obj.m == nil:
		case other != "" || load.svc.Name == "":
			obj.refuse("metadata.name", "it would be called %q, as %s is", load.svc.Name, other)
		case load.svc.Name != obj.name && len(leading[load]) == 0:
			obj.approx("metadata.name", "name: %s, because %s leads to others, too", load.svc.Name, obj.name)
		case load.svc.Name != obj.name:
			obj.kept("metadata.name", "name: %s, as its Service is called", load.svc.Name)
		default:
			obj.kept("metadata.name", "name")
		}
		taken[load.svc.Name] = obj.at
	}
}

// namePeers has each Service be the name of the service that it leads to, or an alias of those that it leads to, where it can be one.
func (conv *kube) namePeers() {
	taken := map[string]bool{}
	for _, load := range conv.workloads {
		taken[load.svc.Name] = true
	}
	for _, key := range slices.Sorted(maps.Keys(conv.peers)) {
		one := conv.peers[key]
		one.name = one.loads[0].svc.Name
		name := one.object.name
		possible := Name(name) == name && !slices.Contains(spec.Balances(), spec.Balance(name))
		if name != one.name && !taken[name] && possible {
			one.name = name
			for _, load := range one.loads {
				load.svc.Aliases = append(load.svc.Aliases, name)
			}
		}
	}
}

// hostsPattern makes the expression that finds the names of Services in texts.
func (conv *kube) hostsPattern() {
	names := slices.Sorted(maps.Keys(conv.peers))
	if len(names) == 0 {
		return
	}
	slices.Reverse(names) // the longest of two that begin alike
	for i := range names {
		names[i] = regexp.QuoteMeta(names[i])
	}
	namespace := "default"
	if conv.namespace != "" {
		namespace = regexp.QuoteMeta(conv.namespace)
	}
	conv.hosts = regexp.MustCompile(`(https?://(?:[^/@\s]*@)?)?(?:([a-z0-9-]+)-(\d+)\.)?\b(` + strings.Join(names, "|") + `)(\.` + namespace +
		`(?:\.svc(?:\.cluster\.local\.?)?)?)?(?::(\d+)\b)?`)
}
