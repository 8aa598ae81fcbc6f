package root

import (
	"context"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/root/core"
	"skerry.dev/skerry/wire"
)

// pulls tells what a site may pull: what it was given, and images that belong to no organisation, which its own applications may use.
func (s *Server) pulls(ctx context.Context, site, have string) (tier.Pulls, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (tier.Pulls, error) {
		child := c.Children.Get(site)
		if child == nil {
			return tier.Pulls{}, skerry.Errorf(skerry.CodeForbidden, "there is no site %s", site)
		}
		p := tier.AssignedImages(child.Desired, wire.New().Unmarshal, have)
		owned := map[string]bool{}
		for _, n := range c.Apps.Namespaces() {
			owned[n.Name] = true
		}
		p.Shared = func(repository string) bool {
			space, _, nested := strings.Cut(repository, "/")
			return !nested || !owned[space]
		}
		return p, nil
	})
}

// imageUses lists what the images of the applications are used for. Applications that sites have of their own are not among them.
func (s *Server) imageUses(ctx context.Context) (apps.ImageUses, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (apps.ImageUses, error) { return c.Views().ImageUses(), nil })
}
