package apps

import (
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Quota bounds what the applications of an organisation may ask for together. A zero entry means no bound, but for Pushed and
// Definitions.
type Quota struct {
	CPU       skerry.MilliCPU `json:"cpu,omitempty" doc:"Cores that all instances together may request."`
	Memory    skerry.Bytes    `json:"memory,omitempty" doc:"Memory that all instances together may request."`
	Storage   skerry.Bytes    `json:"storage,omitempty" doc:"Storage that all instances together may request."`
	Instances int             `json:"instances,omitempty" doc:"Number of instances."`
	// ServiceAddresses are those of the organisation's own services; what others export to it costs it nothing.
	ServiceAddresses int          `json:"serviceAddresses,omitempty" doc:"Number of service addresses: three for each service, and one for each of its numbered instances."`
	Pushed           skerry.Bytes `json:"pushed,omitempty" doc:"Bytes of images pushed to the built-in registry, each blob counted once. 0 means 16Gi."`
	Definitions      skerry.Bytes `json:"definitions,omitempty" doc:"Bytes of applications, versions and secrets in the store. 0 means 1Gi."`
}

// DefaultPushed is how much an organisation may push where its quota says nothing.
const DefaultPushed = 16 * skerry.GiB

// MayPush is how many bytes an organisation may have in the built-in registry of a root or a site.
func (q Quota) MayPush() skerry.Bytes {
	if q.Pushed > 0 {
		return q.Pushed
	}
	return DefaultPushed
}

// DefaultDefinitions is how much the definitions of an organisation may take where its quota says nothing.
const DefaultDefinitions = skerry.GiB

// MayDefine is how many bytes of the store the applications of an organisation may take, with their earlier versions, and its secrets and
// claims of volumes. Instances are bounded by their number.
func (q Quota) MayDefine() skerry.Bytes {
	if q.Definitions > 0 {
		return q.Definitions
	}
	return DefaultDefinitions
}

// maxNamespaces is how many namespaces an organisation may have.
const maxNamespaces = 1000

// Org is an organisation: it owns namespaces and has a quota.
type Org struct {
	Name  string `json:"name"`
	Quota Quota  `json:"quota"`

	besides skerry.Bytes // of storage: its snapshots here
}

// tenants has the organisations with their namespaces, and says what they ask for together.
type tenants struct {
	catalog *catalog
	claims  *claims
	allows  func(s *spec.ServiceSpec, child string) bool
	orgs    map[string]*Org
	spaces  map[string]*Namespace
}

func newTenants(apps *catalog, instances *ledger) *tenants {
	return &tenants{apps, instances.claims, instances.Allows, map[string]*Org{}, map[string]*Namespace{}}
}

func (ts *tenants) loadOrg(value []byte) error {
	return read(value, func(o *Org) { ts.orgs[o.Name] = o })
}

func (ts *tenants) loadNamespace(value []byte) error {
	return read(value, func(n *Namespace) { ts.spaces[n.Name] = n })
}

// SetBesides says how much storage an organisation has besides its applications and their volumes.
func (ts *tenants) SetBesides(org string, n skerry.Bytes) {
	if o := ts.orgs[org]; o != nil {
		o.besides = n
	}
}

// Namespace belongs to one organisation.
type Namespace struct {
	Name string `json:"name"`
	Org  string `json:"org"`
}

// Usage is what an organisation's applications ask for, and what it has in the built-in registry.
type Usage struct {
	Need             spec.Resources `json:"need"`
	Instances        int            `json:"instances"`
	ServiceAddresses int            `json:"serviceAddresses"`
	Pushed           skerry.Bytes   `json:"pushed" doc:"Bytes of images in this server's built-in registry."`
	Uploads          int            `json:"uploads" doc:"Uploads in progress."`
	Definitions      skerry.Bytes   `json:"definitions" doc:"Bytes that definitions take in this server's store."`
}

func (u Usage) add(v Usage) Usage {
	return Usage{Need: u.Need.Add(v.Need), Instances: u.Instances + v.Instances, ServiceAddresses: u.ServiceAddresses + v.ServiceAddresses,
		Definitions: u.Definitions + v.Definitions}
}

// addressesOf is the number of service addresses that a service counts for.
func addressesOf(s *spec.ServiceSpec) int {
	n := len(spec.Balances())
	if s.Mode == spec.ModeService {
		n += min(*s.Replicas, spec.MaxInstanceAddrs)
	}
	return n
}

// instancesOf is the number of instances for which a service counts: an update's surge is not counted, because it ends.
func instancesOf(s *spec.ServiceSpec, targets int) int {
	switch s.Mode {
	case spec.ModeJob, spec.ModeCron:
		return min(*s.Job.Parallelism, *s.Job.Completions)
	case spec.ModePerWorker, spec.ModePerDevice:
		return max(1, targets)
	}
	return *s.Replicas
}

func (ts *tenants) ask(m *spec.Application) Usage {
	var u Usage
	for i := range m.Spec.Services {
		s := &m.Spec.Services[i]
		n := instancesOf(s, ts.targets(s))
		u.Instances += n
		u.ServiceAddresses += addressesOf(s)
		u.Need = u.Need.Add(s.AtMost().Times(n))
	}
	u.ServiceAddresses += len(m.Spec.Aliases()) * len(spec.Balances())
	return u
}

// targets counts the children that a perWorker service may have an instance at.
func (ts *tenants) targets(s *spec.ServiceSpec) (n int) {
	for _, child := range ts.catalog.targets {
		if ts.allows(s, child) {
			n++
		}
	}
	return n
}

// Usage sums what an organisation asks for, and the local volumes that it has besides, leaving one application out.
func (ts *tenants) Usage(org string, without skerry.AppKey) Usage {
	sum := Usage{Definitions: ts.defined(org)}
	for k, a := range ts.catalog.apps {
		if a.Org != org || a.Deleting || k == without {
			continue
		}
		sum = sum.add(ts.ask(&a.Manifest))
	}
	if o := ts.orgs[org]; o != nil {
		sum.Need.Storage += o.besides
	}
	for k := range ts.claims.claimed {
		if k == without || ts.OrgOf(k.Namespace) != org {
			continue
		}
		var m *spec.Application
		if a := ts.catalog.apps[k]; a != nil && !a.Deleting {
			m = &a.Manifest
		}
		sum.Need.Storage += ts.claims.resting(k, m)
	}
	return sum
}

func (ts *tenants) checkQuota(org string, m *spec.Application) error {
	if a := ts.catalog.apps[m.Key()]; a != nil && a.Delegated {
		return nil // its owner asks when it adopts that
	}
	o := ts.orgs[org]
	if o == nil {
		return skerry.Errorf(skerry.CodeNotFound, "there is no organisation %q", org)
	}
	if o.Quota == (Quota{}) {
		return nil // no bound, and no need to look at every application
	}
	used, asked := ts.Usage(org, m.Key()), ts.ask(m)
	asked.Need.Storage += ts.claims.resting(m.Key(), m)
	sum := used.add(asked)
	total := sum.Need
	over := func(what, limit, used, asked string) error {
		return skerry.Errorf(skerry.CodeQuota, "organisation %s may use %s %s; %s are used and the application asks for %s", org, limit, what, used, asked).
			WithHint("ask for less, delete something, or have an admin raise the quota with `skerry org quota %s`", org)
	}
	q := o.Quota
	switch {
	case q.CPU > 0 && total.CPU > q.CPU:
		return over("cores", q.CPU.String(), used.Need.CPU.String(), asked.Need.CPU.String())
	case q.Memory > 0 && total.Memory > q.Memory:
		return over("of memory", q.Memory.String(), used.Need.Memory.String(), asked.Need.Memory.String())
	case q.Storage > 0 && total.Storage > q.Storage:
		return over("of storage", q.Storage.String(), used.Need.Storage.String(), asked.Need.Storage.String())
	case q.Instances > 0 && sum.Instances > q.Instances:
		return over("instances", itoa(q.Instances), itoa(used.Instances), itoa(asked.Instances))
	case q.ServiceAddresses > 0 && sum.ServiceAddresses > q.ServiceAddresses:
		return over("service addresses", itoa(q.ServiceAddresses), itoa(used.ServiceAddresses), itoa(asked.ServiceAddresses))
	}
	return nil
}

// defined is how much the definitions of an organisation take.
func (ts *tenants) defined(org string) (sum skerry.Bytes) {
	for name, n := range ts.catalog.stored.by {
		if ts.OrgOf(name) == org {
			sum += n
		}
	}
	return sum
}

// full reports whether the owner of a namespace has no more room for definitions.
func (ts *tenants) full(namespace string) bool {
	o := ts.orgs[ts.OrgOf(namespace)]
	return o != nil && ts.defined(o.Name) > o.Quota.MayDefine()
}

// mayDefine refuses n more bytes of definitions of an organisation; fresh: in a record of their own.
func (ts *tenants) mayDefine(org string, n int, fresh bool) error {
	o := ts.orgs[org]
	if o == nil {
		return nil // whoever asks refuses that
	}
	used, more, most := ts.defined(org), skerry.Bytes(n), o.Quota.MayDefine()
	if fresh {
		more = max(more, leastStored)
	}
	if used+more <= most {
		return nil
	}
	return skerry.Errorf(skerry.CodeQuota, "applications of organisation %s, with their earlier versions, and its secrets may take %s of the "+
		"store; they take %s, and this takes %s more", org, most, used, more).
		WithHint("delete applications or secrets, or have an admin raise the quota with `skerry org quota %s --definitions`", org)
}

// putOrg creates or changes an organisation.
func (ts *tenants) putOrg(o Org) (wire.Effects, error) {
	var fx wire.Effects
	if err := skerry.CheckName(o.Name); err != nil {
		return fx, skerry.Errorf(skerry.CodeInvalid, "%s", err)
	}
	if q := o.Quota; q.CPU < 0 || min(q.Memory, q.Storage, q.Pushed, q.Definitions) < 0 || min(q.Instances, q.ServiceAddresses) < 0 {
		return fx, skerry.Errorf(skerry.CodeInvalid, "a quota is zero or more").WithHint("0 means no bound")
	}
	if old := ts.orgs[o.Name]; old != nil {
		o.besides = old.besides
	}
	ts.orgs[o.Name] = &o
	fx.Put(prefixOrg+o.Name, mustJSON(o))
	return fx, nil
}

// deleteOrg removes an organisation that owns no namespace.
func (ts *tenants) deleteOrg(name string) (wire.Effects, error) {
	var fx wire.Effects
	if ts.orgs[name] == nil {
		return fx, skerry.Errorf(skerry.CodeNotFound, "there is no organisation %q", name)
	}
	for _, n := range ts.spaces {
		if n.Org == name {
			return fx, skerry.Errorf(skerry.CodeConflict, "organisation %s still owns namespace %s", name, n.Name).WithHint("delete its namespaces first")
		}
	}
	delete(ts.orgs, name)
	fx.Delete(prefixOrg + name)
	return fx, nil
}

// putNamespace creates a namespace; an existing one keeps its organisation.
func (ts *tenants) putNamespace(n Namespace) (wire.Effects, error) {
	var fx wire.Effects
	if err := skerry.CheckName(n.Name); err != nil {
		return fx, skerry.Errorf(skerry.CodeInvalid, "%s", err)
	}
	if ts.orgs[n.Org] == nil {
		return fx, skerry.Errorf(skerry.CodeNotFound, "there is no organisation %q", n.Org).WithHint("create it with `skerry org create %s`", n.Org)
	}
	if old := ts.spaces[n.Name]; old != nil {
		if old.Org != n.Org {
			return fx, skerry.Errorf(skerry.CodeConflict, "namespace %s exists already", n.Name).WithHint("choose another name; a namespace belongs to one organisation")
		}
		return fx, nil
	}
	if has := ts.spacesOf(n.Org); has >= maxNamespaces {
		return fx, skerry.Errorf(skerry.CodeQuota, "organisation %s has %d namespaces, as many as it may have", n.Org, has).
			WithHint("delete some: `skerry get namespaces` lists them")
	}
	ts.spaces[n.Name] = &n
	fx.Put(prefixSpace+n.Name, mustJSON(n))
	return fx, nil
}

// spacesOf counts the namespaces of an organisation.
func (ts *tenants) spacesOf(org string) (has int) {
	for _, space := range ts.spaces {
		if space.Org == org {
			has++
		}
	}
	return has
}

// deleteNamespace removes an empty namespace; secret is one that it holds, or "".
func (ts *tenants) deleteNamespace(name, secret string) (wire.Effects, error) {
	var fx wire.Effects
	if ts.spaces[name] == nil {
		return fx, skerry.Errorf(skerry.CodeNotFound, "there is no namespace %q", name)
	}
	for k := range ts.catalog.apps {
		if k.Namespace == name {
			return fx, skerry.Errorf(skerry.CodeConflict, "namespace %s still holds application %s", name, k.Name).WithHint("delete its applications first")
		}
	}
	for k := range ts.claims.claimed {
		if k.Namespace == name {
			return fx, skerry.Errorf(skerry.CodeConflict, "namespace %s still holds volumes of application %s", name, k.Name).
				WithHint("`skerry get volumes` lists them, and `skerry delete volume NAME` deletes them")
		}
	}
	if secret != "" {
		return fx, skerry.Errorf(skerry.CodeConflict, "namespace %s still holds secret %s", name, secret).WithHint("remove its secrets first")
	}
	delete(ts.spaces, name)
	fx.Delete(prefixSpace + name)
	return fx, nil
}

// Orgs lists the organisations by name.
func (ts *tenants) Orgs() []*Org {
	out := slices.AppendSeq(make([]*Org, 0, len(ts.orgs)), maps.Values(ts.orgs))
	slices.SortFunc(out, func(a, b *Org) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Namespaces lists the namespaces by name.
func (ts *tenants) Namespaces() []*Namespace {
	out := slices.AppendSeq(make([]*Namespace, 0, len(ts.spaces)), maps.Values(ts.spaces))
	slices.SortFunc(out, func(a, b *Namespace) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// OrgOf gives the organisation that owns a namespace, or "".
func (ts *tenants) OrgOf(namespace string) string {
	if n := ts.spaces[namespace]; n != nil {
		return n.Org
	}
	return ""
}
