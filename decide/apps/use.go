package apps

import (
	"skerry.dev/skerry/wire"
)

// Used takes what the instances of a service use together at a child that tells sums alone. Of a single one that is known, too.
func Used(list []*Instance, child string, sum wire.QoS) {
	var here []*Instance
	for _, i := range list {
		if i.Holder == child {
			here = append(here, i)
		}
	}
	for _, i := range here {
		i.Shared, i.QoS = &sum, nil
		if len(here) == 1 && !i.Spec.Mode.HasCopies() {
			i.QoS = &sum
		}
	}
}

// sharedUses adds up what instances use: what is shared once for each holder.
type sharedUses map[string]bool

// of gives what an instance adds, or nil.
func (u sharedUses) of(i *Instance) *wire.QoS {
	switch {
	case i.Shared == nil:
		return i.QoS
	case u[i.Holder]:
		return nil
	}
	u[i.Holder] = true
	return i.Shared
}
