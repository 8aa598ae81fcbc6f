package cluster

import (
	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/autonomy"
	"skerry.dev/skerry/decide/apps"
)

// The root's applications and the site's own have names of one kind. Two of one name would be in one network, and their services stand in
// for each other; that is no matter within an organisation. Of two organisations, whoever comes second is refused.

// takenAbove says why an application of the site's own may not be applied: the root has one of its name here, of another organisation.
func (d *directories) takenAbove(msg any) error {
	m, is := msg.(apps.Apply)
	if !is {
		return nil
	}
	k, _ := autonomy.Target(m)
	n := d.network(k)
	if n == nil || n.Org == "" || d.Apps.App(k) != nil {
		return nil
	}
	for _, s := range d.Apps.Namespaces() {
		if s.Name == k.Namespace && s.Org != n.Org {
			return skerry.Errorf(skerry.CodeConflict, "the root has an application %s at this site, of another organisation", k).WithHint("choose another name or namespace")
		}
	}
	return nil
}
