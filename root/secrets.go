package root

import (
	"context"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// Secrets lists the secrets of a namespace, without what they hold.
func (s *Server) Secrets(ctx context.Context, namespace string) ([]view.SecretView, error) {
	return tier.View(ctx, s.Role, func(c *Core) ([]view.SecretView, error) { return c.Apps.Secrets(namespace), nil })
}

// findSecret gives a site a secret that something uses which it holds.
func (s *Server) findSecret(ctx context.Context, site string, n spec.SecretName) ([]byte, error) {
	return tier.View(ctx, s.Role, func(c *Core) ([]byte, error) {
		sealed := c.Apps.Secret(n)
		if sealed == nil || !c.hasSecret(site, n) {
			return nil, skerry.Errorf(skerry.CodeNotFound, "no instance that site %s holds uses such a secret", site)
		}
		return sealed, nil
	})
}

// hasSecret reports whether something uses a secret that a site holds or is to take over.
func (c *Core) hasSecret(site string, n spec.SecretName) bool {
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
