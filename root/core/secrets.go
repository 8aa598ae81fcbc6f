package core

import (
	"slices"

	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
)

// Secret gives what is sealed of a secret to a site that has something which uses it; nil: the site has nothing of the kind.
func (c *Views) Secret(site string, n spec.SecretName) []byte {
	if !c.hasSecret(site, n) {
		return nil
	}
	return c.Apps.Secret(n)
}

// hasSecret reports whether something uses a secret that a site holds or is to take over.
func (c *Views) hasSecret(site string, n spec.SecretName) bool {
	for _, a := range c.Apps.Apps() {
		if a.Key().Namespace != n.Namespace {
			continue
		}
		if slices.ContainsFunc(c.Apps.InstancesOf(a.Key()), func(i *apps.Instance) bool {
			there := i.Holder == site || i.Next != nil && i.Next.Holder == site || i.Left != nil && i.Left.Holder == site
			return there && i.Spec != nil && slices.Contains(i.Spec.SecretNames(n.Namespace), n)
		}) {
			return true
		}
	}
	return false
}
