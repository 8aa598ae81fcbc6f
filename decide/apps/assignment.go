package apps

import (
	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// AssignedGen is the generation under which its holder has or gets an instance.
func (i *Instance) AssignedGen() skerry.Generation {
	if i.Resize != nil {
		return i.Resize.Gen
	}
	return i.Gen
}

// AssignedRevision is the revision under which its holder has or gets an instance. Of one generation there may be two: limits
// that are taken back, and then others.
func (i *Instance) AssignedRevision() string { return i.wanted() }

// AskedRevision is the revision about which its holder is asked, or "".
func (i *Instance) AskedRevision() string {
	if i.Ask == nil {
		return ""
	}
	return i.Ask.Revision
}

// Assignment is what a holder is told of an instance.
func (i *Instance) Assignment(digests map[string]string) *spec.Assignment {
	as := &spec.Assignment{ID: i.ID, Service: i.Service, Org: i.Org, Ordinal: i.Ordinal, Gen: i.Gen, Revision: i.Revision,
		Spec: *i.Spec, Fence: i.Fence, Restart: i.Restart, Deadline: i.Deadline, Due: i.Due, PriorFence: i.PriorFence, Exchange: i.Exchange}
	if r := i.Resize; r != nil {
		as.Gen, as.Revision, as.Spec = r.Gen, r.Revision, *r.Spec
	}
	if k := i.Ask; k != nil {
		as.Successor = &spec.Successor{Revision: k.Revision, Gen: k.Gen, Spec: *k.Spec}
	}
	for _, ref := range i.Spec.Images() {
		d := i.Spec.Pinned[ref]
		if d == "" {
			d = digests[ref] // applied before digests were a part of revisions, or not known then
		}
		if d != "" {
			if as.Digest == nil {
				as.Digest = map[string]string{}
			}
			as.Digest[ref] = d
		}
	}
	return as
}
