package cluster

import (
	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/autonomy"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// The root's applications and the site's own have names of one kind. Two of one name would be in one network, and their services stand in
// for each other; that is no matter within an organisation. Of two organisations, whoever comes second is refused.

// takenHere says why an instance of the root's may not come: the site has an application of its name, and of another organisation.
func takenHere(c *Core, a *spec.Assignment, origin string) *wire.Reason {
	if own := c.ownApp(a.Service.App); origin != "root" || own == nil || own.Org == a.Org {
		return nil
	}
	return &wire.Reason{What: "admission", Text: "this site has an application " + a.Service.App.String() + " of its own, of another organisation",
		Hint: "choose another site or name, or ask the operator of the site"}
}

// takenAbove says why an application of the site's own may not be applied: the root has one of its name here, of another organisation.
func takenAbove(c *Core, msg any) error {
	m, is := msg.(apps.Apply)
	if !is {
		return nil
	}
	k, _ := autonomy.Target(m)
	n := c.network(k)
	if n == nil || n.Org == "" || c.Apps.App(k) != nil {
		return nil
	}
	for _, s := range c.Apps.Namespaces() {
		if s.Name == k.Namespace && s.Org != n.Org {
			return skerry.Errorf(skerry.CodeConflict, "the root has an application %s at this site, of another organisation", k).WithHint("choose another name or namespace")
		}
	}
	return nil
}
