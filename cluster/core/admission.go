package core

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact/imagekey"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/cluster/certs"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Admission is what the operator of a site lets in, even against the root. The zero value grants nobody more than
// spec.LevelRestricted: no capabilities, no native runtime, privilege, device, host path or fixed host port.
// docs/RATIONALE.md has the reason ("Why levels, and a list of harmless fields").
type Admission struct {
	// Trusted organisations have the level privileged, and may use everything below without being asked.
	Trusted []string `json:"trusted,omitempty"`
	// Denied organisations get nothing. Allowed, if not empty, lists all that get anything.
	Denied  []string `json:"denied,omitempty"`
	Allowed []string `json:"allowed,omitempty"`
	// Level is that of every organisation that Levels does not name; restricted by default.
	Level  spec.SecurityLevel            `json:"level,omitempty"`
	Levels map[string]spec.SecurityLevel `json:"levels,omitempty"`
	// What foreign organisations may use, whatever their level.
	Native     bool `json:"native,omitempty"`
	Privileged bool `json:"privileged,omitempty"`
	HostPorts  bool `json:"hostPorts,omitempty"`
	// HostPaths are directories of workers that they may mount, with what is below them; to read, unless the entry is writable.
	HostPaths []spec.HostPath `json:"hostPaths,omitempty"`
	// NFS is what servers export that they may mount, on workers whose operators allow it, too.
	NFS     []spec.NFSGrant `json:"nfs,omitempty"`
	Ingress bool            `json:"ingress,omitempty"` // ways in from outside by way of the workers
	// MaxPriority is the highest priority that foreign organisations may give their services; above it they could push
	// others out.
	MaxPriority int `json:"maxPriority,omitempty"`
	// Registries, if not empty, lists the registries that images of foreign organisations may come from.
	Registries []string `json:"registries,omitempty"`
	// RegistryOrgs are those that a registry is there for, as the operator's registry credentials have it; one without an entry is for all.
	RegistryOrgs map[string][]string `json:"-"`
	// NoMeasuring keeps the site's workers from measuring round trips to addresses of users that a service names, whoever
	// asks: a worker then sends nothing to addresses that a manifest chose. Round trips among workers are not meant.
	NoMeasuring bool `json:"noMeasuring,omitempty"`
	// MeasureNetworks are private networks to whose addresses workers measure round trips for foreign organisations, MeasurePorts TCP
	// ports for that beside 80, 443, 8080 and 8443.
	MeasureNetworks []netip.Prefix `json:"measureNetworks,omitempty"`
	MeasurePorts    []int          `json:"measurePorts,omitempty"`
	// RequireUserNamespaces keeps containers, whoever's they are, out of runtimes that do not give them user namespaces.
	RequireUserNamespaces bool `json:"requireUserNamespaces,omitempty"`
	// MaxPerInstance bounds what one instance of a foreign organisation may ask for; zero entries do not.
	MaxPerInstance spec.Resources `json:"maxPerInstance,omitempty"`
	// Egress is where the services of an organisation, trusted or not, may go outside the overlay at most, and where those go that say
	// nothing; under the name *, of all that are not named and not trusted.
	Egress map[string]spec.Egress `json:"egress,omitempty"`
	// Signers are public keys in PEM, ECDSA on P-256, by organisation, trusted or not: workers start only images for it
	// that one of them has signed, as cosign does. The name * is every organisation without an entry; an empty list
	// asks for no signature.
	Signers map[string][]string `json:"signers,omitempty"`
	// Certificates says which hosts the site orders certificates for, of a public authority. Its flags are those of the cluster.
	Certificates certs.Policy `json:"-"`
	// Quotas bound what the instances of an organisation may ask for together at this site, trusted or not.
	Quotas map[string]SiteQuota `json:"quotas,omitempty"`
}

// SiteQuota bounds what an organisation may have at a site; zero entries do not.
type SiteQuota struct {
	spec.Resources
	Instances int `json:"instances,omitempty"`
	// ServiceAddresses are those that lead to something here: three for each service with an instance at the site, and one for
	// each of its numbered instances there.
	ServiceAddresses int `json:"serviceAddresses,omitempty"`
}

// siteUse is what an organisation has at a site.
type siteUse struct {
	need      spec.Resources
	instances int
	numbered  int // of these
	services  map[skerry.ServiceKey]bool
}

// add counts an instance.
func (u *siteUse) add(a *spec.Assignment) {
	if u.services == nil {
		u.services = map[skerry.ServiceKey]bool{}
	}
	u.need = u.need.Add(a.Spec.AtMost())
	u.instances++
	u.services[a.Service] = true
	if a.Spec.Mode == "" || a.Spec.Mode == spec.ModeService {
		u.numbered++
	}
}

func (u *siteUse) addresses() int { return len(u.services)*len(spec.Balances()) + u.numbered }

// CheckQuota gives the reason for which an organisation that has so much already may not have another instance, or nil.
func (p *Admission) CheckQuota(used siteUse, assigned *spec.Assignment) *wire.Reason {
	quota, ok := p.Quotas[assigned.Org]
	if !ok {
		return nil
	}
	over := func(what string) *wire.Reason {
		return &wire.Reason{What: "quota", Text: fmt.Sprintf("the site's quota of %s for organisation %s is used up", what, assigned.Org),
			Hint: "delete something there, choose another site, or ask its operator"}
	}
	asked := assigned.Spec.AtMost()
	limit, ask, sum := quota.Vector(), asked.Vector(), used.need.Add(asked).Vector()
	for i := range limit {
		if limit[i] > 0 && ask[i] > 0 && sum[i] > limit[i] {
			return over(spec.ResourceNames[i])
		}
	}
	used.services = maps.Clone(used.services)
	used.add(assigned)
	switch {
	case quota.Instances > 0 && used.instances > quota.Instances:
		return over("instances")
	case quota.ServiceAddresses > 0 && used.addresses() > quota.ServiceAddresses:
		return over("service addresses")
	}
	return nil
}

// LevelOf gives the security level of an organisation.
func (p *Admission) LevelOf(org string) spec.SecurityLevel {
	switch level, ok := p.Levels[org]; {
	case slices.Contains(p.Trusted, org):
		return spec.LevelPrivileged
	case ok:
		return level
	}
	return cmp.Or(p.Level, spec.LevelRestricted)
}

// granted reports whether the site grants a single thing to every organisation.
func (p *Admission) granted(need spec.LevelNeed, s *spec.ServiceSpec) bool {
	switch need.Field {
	case "ServiceSpec.Runtime":
		return p.Native
	case "Security.Privileged":
		return p.Privileged
	case "Port.HostPort":
		return p.HostPorts
	case "Volume.NFS":
		return !slices.ContainsFunc(s.Volumes, func(v spec.Volume) bool {
			return v.NFS != nil && !slices.ContainsFunc(p.NFS, func(g spec.NFSGrant) bool { return g.Covers(v.NFS) })
		})
	case "Volume.Host":
		return !slices.ContainsFunc(s.Volumes, func(v spec.Volume) bool {
			return v.Host != nil && len(spec.HostPathsFor(p.HostPaths, v.Host.Path)) == 0
		})
	}
	return false
}

// confine tells the worker of an instance what the site grants its organisation.
func (p *Admission) confine(a *spec.Assignment) {
	a.Level, a.HostPaths, a.Egress, a.Signers = p.LevelOf(a.Org), nil, p.egressOf(a.Org, &a.Spec), p.signersOf(a.Org)
	if a.Level == spec.LevelPrivileged {
		return
	}
	for _, h := range p.HostPaths {
		if slices.ContainsFunc(a.Spec.Volumes, func(v spec.Volume) bool { return v.Host != nil && h.Covers(v.Host.Path) }) {
			a.HostPaths = append(a.HostPaths, h)
		}
	}
}

// checkLevel gives the reason for which an organisation may not have a service that weakens isolation, or nil.
func (p *Admission) checkLevel(org string, s *spec.ServiceSpec) *wire.Reason {
	level := p.LevelOf(org)
	for _, need := range s.LevelNeeds() {
		if level.Allows(need.Level) || p.granted(need, s) {
			continue
		}
		return &wire.Reason{What: "admission",
			Text: fmt.Sprintf("the site does not admit it: %s asks for %s, which needs the security level %s; organisation %s has %s", need.Path,
				need.What, need.Level, org, level),
			Hint: fmt.Sprintf("do without %s, or ask the operator of the site, who grants it by \"levels: {%s: %s}\" in the site's admission policy", need.Path, org, need.Level)}
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
func (p *Admission) Check(assigned *spec.Assignment) *wire.Reason {
	no := func(hint, format string, args ...any) *wire.Reason {
		return &wire.Reason{What: "admission", Text: "the site does not admit it: " + fmt.Sprintf(format, args...), Hint: hint}
	}
	switch {
	case slices.Contains(p.Denied, assigned.Org), len(p.Allowed) > 0 && !slices.Contains(p.Allowed, assigned.Org) &&
		!slices.Contains(p.Trusted, assigned.Org):
		return no("choose another site", "organisation %s is not served", assigned.Org)
	}
	service := &assigned.Spec
	// Workers start what they have without asking: an organisation must not find another's image there.
	for _, ref := range service.Images() {
		if registry, ok := imageref.ServesOrg(p.RegistryOrgs, ref, assigned.Digest[ref], assigned.Org); !ok {
			return no("use another registry, or ask the operator of the site, who lists organisations beside the registry's credentials (--registry-config)",
				"registry %s is not there for organisation %s", registry, assigned.Org)
		}
	}
	if why := p.checkEgress(assigned.Org, service); why != nil || slices.Contains(p.Trusted, assigned.Org) {
		return why
	}
	if why := p.checkLevel(assigned.Org, service); why != nil {
		return why
	}
	if err := assigned.CheckPlaces(); err != nil { // a root that was taken over looks at no manifest
		return no("apply a manifest that a root of this version accepts", "%v", err)
	}
	for ref, pinned := range assigned.Digest {
		if pinned != "" && !imageref.Pins(ref, pinned) {
			return no("apply the application again", "image %.200q is not what %.200q stands for", pinned, ref)
		}
	}
	if n := service.Placement.Priority; n > p.MaxPriority {
		return no(fmt.Sprintf("set placement.priority to %d or less", p.MaxPriority), "no priority above %d for organisation %s", p.MaxPriority,
			assigned.Org)
	}
	need, most := service.AtMost().Vector(), p.MaxPerInstance.Vector()
	for i := range need {
		if most[i] > 0 && need[i] > most[i] {
			return no("ask for less", "more %s than one instance may have here", spec.ResourceNames[i])
		}
	}
	for _, image := range service.Images() {
		if len(p.Registries) > 0 && !slices.Contains(p.Registries, registryOf(image)) {
			return no("push the image to an allowed registry", "no images from %s", registryOf(image))
		}
	}
	return nil
}

// exceeded names the bounds that are exceeded, or gives "".
func (q SiteQuota) exceeded(used siteUse) string {
	var names []string
	limit, sum := q.Vector(), used.need.Vector()
	for i := range limit {
		if limit[i] > 0 && sum[i] > limit[i] {
			names = append(names, spec.ResourceNames[i])
		}
	}
	if q.Instances > 0 && used.instances > q.Instances {
		names = append(names, "instances")
	}
	if q.ServiceAddresses > 0 && used.addresses() > q.ServiceAddresses {
		names = append(names, "service addresses")
	}
	return strings.Join(names, ", ")
}

// offered gives the facts of a worker as the site takes them: without a runtime that the policy does not let in.
func (p *Admission) offered(f *wire.WorkerFacts) *wire.WorkerFacts {
	if !p.RequireUserNamespaces || !slices.ContainsFunc(f.Runtimes, func(r wire.RuntimeReport) bool { return r.HostUsers() }) {
		return f
	}
	out := *f
	out.Runtimes = slices.Clone(f.Runtimes)
	for i := range out.Runtimes {
		if r := &out.Runtimes[i]; r.HostUsers() {
			why := "the worker's agent is older than that"
			if !r.NoUserNamespaces() {
				why = "containers of containerd have the host's users"
			}
			r.Passed, r.Cause = false, "the site's admission policy has requireUserNamespaces; "+cmp.Or(r.Cause, why)
		}
	}
	return &out
}

// registryOf gives the registry part of an image reference; the built-in registry is the empty one.
func registryOf(ref string) string {
	first, _, ok := strings.Cut(ref, "/")
	if ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
		return first
	}
	return ""
}

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
func (p *Admission) checkEgress(org string, service *spec.ServiceSpec) *wire.Reason {
	bound := p.egressBound(org)
	if i := service.Egress.Beyond(bound); i >= 0 {
		return &wire.Reason{What: "admission",
			Text: fmt.Sprintf("the site does not admit it: egress.allow[%d] asks for %s, and organisation %s may reach %s", i,
				service.Egress.Allow[i], org, bound),
			Hint: fmt.Sprintf("keep each entry within one of these, or ask the operator of the site, who grants more by egress.%s in the site's admission policy", org)}
	}
	if p.egressOf(org, service) == nil {
		return nil
	}
	for _, need := range service.LevelNeeds() {
		native := need.Field == "ServiceSpec.Runtime" && p.LevelOf(org) == spec.LevelPrivileged // below that it has a user of its own
		if !native && need.Field != "Security.Privileged" && (need.Field != "Security.AddCaps" || need.Level != spec.LevelPrivileged) {
			continue
		}
		by := "egress of its manifest"
		if service.Egress == nil {
			by = "the site's policy for organisation " + org
		}
		return &wire.Reason{What: "admission",
			Text: fmt.Sprintf("the site does not admit it: %s asks for %s, which could change the rules that hold it to %s", need.Path, need.What,
				by),
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
			if _, err := imagekey.Parse([]byte(key)); err != nil {
				out = append(out, skerry.Problem{Path: fmt.Sprintf("signers.%s[%d]", org, i), Message: err.Error(),
					Hint: "give a public key of ECDSA on P-256 in PEM, such as cosign.pub"})
			}
		}
	}
	return out
}

// measuringPorts are the TCP ports at which workers measure round trips to users for any organisation, beside those of
// the admission policy.
var measuringPorts = []int{80, 443, 8080, 8443}

// shared is the network that providers use behind their translation (RFC 6598); it is as private as those of RFC 1918.
var sharedNetwork = netip.MustParsePrefix("100.64.0.0/10")

// checkUser gives the reason for which workers measure no round trip to a user that an organisation's service names, or "". A manifest
// could otherwise have the workers look for who listens in the site's own networks. path is that of the user in the manifest.
func (p *Admission) checkUser(org, path string, u spec.User) string {
	if slices.Contains(p.Trusted, org) {
		return ""
	}
	addr, port, err := spec.ParseTarget(u.Address)
	if err != nil {
		return fmt.Sprintf("%s.address: %v", path, err)
	}
	if addr.IsPrivate() || sharedNetwork.Contains(addr) {
		if !slices.ContainsFunc(p.MeasureNetworks, func(n netip.Prefix) bool { return n.Contains(addr) }) {
			return fmt.Sprintf("%s.address: %s is in a private network, to which the site measures nothing for organisation %s; its operator grants it by \"measureNetworks: [NETWORK]\" in the admission policy", path, addr, org)
		}
	}
	if port > 0 && !slices.Contains(measuringPorts, port) && !slices.Contains(p.MeasurePorts, port) {
		return fmt.Sprintf("%s.address: the site measures nothing at port %d for organisation %s, only at 80, 443, 8080 and 8443; its operator grants it by \"measurePorts: [%d]\" in the admission policy", path, port, org, port)
	}
	return ""
}

// checkUsers is checkUser for all users of a service that take a measurement.
func (p *Admission) checkUsers(org string, q *spec.Placement) string {
	for i, u := range q.Users {
		if q.UserLatency(u) > 0 {
			if why := p.checkUser(org, fmt.Sprintf("placement.users[%d]", i), u); why != "" {
				return why
			}
		}
	}
	return ""
}

// signersOf gives the keys that count for an organisation; nil: its images need no signature.
func (p *Admission) signersOf(org string) []string {
	keys, ok := p.Signers[org]
	if !ok {
		keys = p.Signers[anyOrg]
	}
	if len(keys) == 0 {
		return nil
	}
	return keys
}

// elsewhere gives the reason to refuse an application of the site's own that may not run here, or that is for sites with certain labels, or
// nil: labels are the root's, and the site does not know which it has.
func elsewhere(msg any, site string) error {
	apply, is := msg.(apps.Apply)
	if !is {
		return nil
	}
	for n := range apply.App.Spec.Services {
		place := &apply.App.Spec.Services[n].Placement
		field, text, hint := "", "", ""
		switch {
		case len(place.ClusterLabels) > 0:
			field, text, hint = "clusterLabels", "a cluster does not know its labels at the root", "apply it at the root, or leave clusterLabels out"
		case site == "" || place.AllowsCluster(site):
			continue
		case place.Cluster != "":
			field, text, hint = "cluster", "it may run only at cluster "+place.Cluster+", and this is "+site, "apply it there, or at the root"
		default:
			field, text = "clusters", "it may run only at clusters "+strings.Join(place.Clusters, ", ")+", and this is "+site
			hint = "apply it at one of them, or at the root"
		}
		return &skerry.Error{Code: skerry.CodeUnsupported, Message: text, Hint: hint,
			Problems: []skerry.Problem{{Path: fmt.Sprintf("spec.services[%d].placement.%s", n, field), Message: text, Hint: hint}}}
	}
	return nil
}
