package apps

import (
	"fmt"
	"maps"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

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

const (
	// leastStored is what a record counts for at least: a small one takes more memory than its own bytes.
	leastStored = 4 << 10
	// maxNamespaces is how many namespaces an organisation may have.
	maxNamespaces = 1000
)

// definitions counts what the records of each namespace take, those of applications, versions, secrets and claims. What a tier holds for the one
// above it counts there.
type definitions struct{ by map[string]skerry.Bytes }

// note has a record of a namespace take n bytes, and 0 none; counts is what it has counted for until now.
func (st *definitions) note(namespace string, counts *skerry.Bytes, n int) {
	size := skerry.Bytes(n)
	if n > 0 {
		size = max(size, leastStored)
	}
	st.by[namespace] += size - *counts
	*counts = size
	if st.by[namespace] == 0 {
		delete(st.by, namespace)
	}
}

// put writes a record and counts it.
func (st *definitions) put(fx *wire.Effects, key, namespace string, counts *skerry.Bytes, data []byte) {
	st.note(namespace, counts, len(data))
	fx.Put(key, data)
}

// remove removes a record that was counted.
func (st *definitions) remove(fx *wire.Effects, key, namespace string, counts *skerry.Bytes) {
	st.note(namespace, counts, 0)
	fx.Delete(key)
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
	return skerry.Errorf(skerry.CodeQuota, "applications of organisation %s, with their earlier versions, and its secrets may take %s of the store; "+
		"they take %s, and this takes %s more", org, most, used, more).
		WithHint("delete applications or secrets, or have an admin raise the quota with `skerry org quota %s --definitions`", org)
}

// auditStored says where what is counted is not what the records count for.
func (c *Controller) auditStored() (wrong []string) {
	sums := map[string]skerry.Bytes{}
	for k, a := range c.apps {
		sums[k.Namespace] += a.counts
	}
	for k, list := range c.history.earlier {
		for _, p := range list {
			sums[k.Namespace] += p.counts
		}
	}
	for k, x := range c.byName {
		sums[k.namespace] += x.counts
	}
	for k, list := range c.claimed {
		for _, claimed := range list {
			sums[k.Namespace] += claimed.counts
		}
	}
	maps.DeleteFunc(sums, func(_ string, n skerry.Bytes) bool { return n == 0 })
	if !maps.Equal(sums, c.lifecycle.stored.by) {
		wrong = append(wrong, fmt.Sprintf("records are counted as %v and count for %v", c.lifecycle.stored.by, sums))
	}
	return wrong
}
