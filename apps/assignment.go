package apps

import "skerry.dev/skerry"

// Assignment is what a holder is told of an instance.
func (i *Instance) Assignment(digests map[string]string) *skerry.Assignment {
	as := &skerry.Assignment{ID: i.ID, Service: i.Service, Org: i.Org, Ordinal: i.Ordinal, Gen: i.Gen, Revision: i.Revision,
		Spec: *i.Spec, Fence: i.Fence, Restart: i.Restart, Deadline: i.Deadline, Due: i.Due, Held: i.Held}
	for _, ref := range i.Spec.Images() {
		if d := digests[ref]; d != "" {
			if as.Digest == nil {
				as.Digest = map[string]string{}
			}
			as.Digest[ref] = d
		}
	}
	return as
}
