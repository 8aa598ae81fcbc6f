package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry"
)

// Admission is what the operator of a site lets in, even against the root. The zero value trusts nobody with more than a
// contained service: no native runtime, privilege, host path or fixed host port for any organisation (DESIGN 9).
type Admission struct {
	// Trusted organisations may use everything below without being asked.
	Trusted []string `json:"trusted,omitempty"`
	// Denied organisations get nothing. Allowed, if not empty, lists all that get anything.
	Denied  []string `json:"denied,omitempty"`
	Allowed []string `json:"allowed,omitempty"`
	// What foreign organisations may use.
	Native     bool     `json:"native,omitempty"`
	Privileged bool     `json:"privileged,omitempty"`
	HostPorts  bool     `json:"hostPorts,omitempty"`
	HostPaths  []string `json:"hostPaths,omitempty"` // allowed prefixes
	Ingress    bool     `json:"ingress,omitempty"`   // ways in from outside by way of the workers
	// MaxPriority is the highest priority that foreign organisations may give their services; above it they could push
	// others out.
	MaxPriority int `json:"maxPriority,omitempty"`
	// Registries, if not empty, lists the registries that images of foreign organisations may come from.
	Registries []string `json:"registries,omitempty"`
	// NoMeasuring keeps the site's workers from measuring round trips to addresses of users that a service names, whoever
	// asks: a worker then sends nothing to addresses that a manifest chose. Round trips among workers are not meant.
	NoMeasuring bool `json:"noMeasuring,omitempty"`
	// MaxPerInstance bounds what one instance of a foreign organisation may ask for; zero entries do not.
	MaxPerInstance skerry.Resources `json:"maxPerInstance,omitempty"`
	// Quotas bound what the instances of an organisation may ask for together at this site, trusted or not.
	Quotas map[string]SiteQuota `json:"quotas,omitempty"`
}

// SiteQuota bounds what an organisation may have at a site; zero entries do not.
type SiteQuota struct {
	skerry.Resources
	Instances int `json:"instances,omitempty"`
	// ServiceAddresses are those that lead to something here: three for each service with an instance at the site, and one for
	// each of its numbered instances there.
	ServiceAddresses int `json:"serviceAddresses,omitempty"`
}

// siteUse is what an organisation has at a site.
type siteUse struct {
	need      skerry.Resources
	instances int
	numbered  int // of these
	services  map[skerry.ServiceKey]bool
}

// add counts an instance.
func (u *siteUse) add(a *skerry.Assignment) {
	if u.services == nil {
		u.services = map[skerry.ServiceKey]bool{}
	}
	u.need = u.need.Add(a.Spec.Need())
	u.instances++
	u.services[a.Service] = true
	if a.Spec.Mode == "" || a.Spec.Mode == skerry.ModeService {
		u.numbered++
	}
}

func (u *siteUse) addresses() int { return len(u.services)*len(skerry.Balances()) + u.numbered }

// CheckQuota gives the reason for which an organisation that has so much already may not have another instance, or nil.
func (p *Admission) CheckQuota(used siteUse, a *skerry.Assignment) *skerry.Reason {
	q, ok := p.Quotas[a.Org]
	if !ok {
		return nil
	}
	over := func(what string) *skerry.Reason {
		return &skerry.Reason{What: "quota", Text: fmt.Sprintf("the site's quota of %s for organisation %s is used up", what, a.Org),
			Hint: "delete something there, choose another site, or ask its operator"}
	}
	limit, have, ask := q.Vector(), used.need.Vector(), a.Spec.Need().Vector()
	for i := range limit {
		if limit[i] > 0 && ask[i] > 0 && have[i]+ask[i] > limit[i] {
			return over(skerry.ResourceNames[i])
		}
	}
	used.services = maps.Clone(used.services)
	used.add(a)
	switch {
	case q.Instances > 0 && used.instances > q.Instances:
		return over("instances")
	case q.ServiceAddresses > 0 && used.addresses() > q.ServiceAddresses:
		return over("service addresses")
	}
	return nil
}

// CheckIngress gives the reason for which the services of an organisation get no way in from outside, or "".
func (p *Admission) CheckIngress(org string) string {
	if p.Ingress || slices.Contains(p.Trusted, org) {
		return ""
	}
	return "the site does not admit it: no ingress for organisation " + org
}

// Check gives the reason to refuse an assignment, or nil.
func (p *Admission) Check(a *skerry.Assignment) *skerry.Reason {
	no := func(hint, format string, args ...any) *skerry.Reason {
		return &skerry.Reason{What: "admission", Text: "the site does not admit it: " + fmt.Sprintf(format, args...), Hint: hint}
	}
	switch {
	case slices.Contains(p.Denied, a.Org), len(p.Allowed) > 0 && !slices.Contains(p.Allowed, a.Org) && !slices.Contains(p.Trusted, a.Org):
		return no("choose another site", "organisation %s is not served", a.Org)
	case slices.Contains(p.Trusted, a.Org):
		return nil
	}
	s := &a.Spec
	if s.Runtime == "native" && !p.Native {
		return no("use an image in runtime oci", "no native runtime for organisation %s", a.Org)
	}
	if n := s.Placement.Priority; n > p.MaxPriority {
		return no(fmt.Sprintf("set placement.priority to %d or less", p.MaxPriority), "no priority above %d for organisation %s", p.MaxPriority, a.Org)
	}
	for _, q := range s.Ports {
		if q.HostPort > 0 && !p.HostPorts {
			return no("use hostPort: -1", "no fixed host ports for organisation %s", a.Org)
		}
	}
	for _, v := range s.Volumes {
		if v.Host != nil && !slices.ContainsFunc(p.HostPaths, func(prefix string) bool {
			return v.Host.Path == prefix || strings.HasPrefix(v.Host.Path, strings.TrimSuffix(prefix, "/")+"/")
		}) {
			return no("use an empty volume", "no host path %s for organisation %s", v.Host.Path, a.Org)
		}
	}
	need, most := s.Need().Vector(), p.MaxPerInstance.Vector()
	for i := range need {
		if most[i] > 0 && need[i] > most[i] {
			return no("ask for less", "more %s than one instance may have here", skerry.ResourceNames[i])
		}
	}
	containers := []*skerry.Container{&s.Container}
	for i := range s.Init {
		containers = append(containers, &s.Init[i].Container)
	}
	for i := range s.Sidecars {
		containers = append(containers, &s.Sidecars[i].Container)
	}
	for _, k := range containers {
		if k.Security.Privileged && !p.Privileged {
			return no("take privileged away", "no privileged containers for organisation %s", a.Org)
		}
		if len(p.Registries) > 0 && k.Image != "" && !slices.Contains(p.Registries, registryOf(k.Image)) {
			return no("push the image to an allowed registry", "no images from %s", registryOf(k.Image))
		}
	}
	return nil
}

// registryOf gives the registry part of an image reference; the built-in registry is the empty one.
func registryOf(ref string) string {
	first, _, ok := strings.Cut(ref, "/")
	if ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
		return first
	}
	return ""
}
