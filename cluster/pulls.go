package cluster

import (
	"context"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/wire"
)

// pulls tells what a worker may pull: what it was given.
func (s *Server) pulls(ctx context.Context, worker, have string) (tier.Pulls, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (tier.Pulls, error) {
		child := c.Children.Get(worker)
		if child == nil {
			return tier.Pulls{}, skerry.Errorf(skerry.CodeForbidden, "there is no worker %s", worker)
		}
		return tier.AssignedImages(child.Desired, wire.New().Unmarshal, have), nil
	})
}

// OrgsBehind lists the organisations of a namespace of the root's, as far as the site has anything of them: their
// images may be in its cache.
func (s *Server) OrgsBehind(ctx context.Context, namespace string) ([]string, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]string, error) { return c.OrgsBehind(namespace), nil })
}

// imageUses lists what the images of what the site holds are used for.
func (s *Server) imageUses(ctx context.Context) (apps.ImageUses, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (apps.ImageUses, error) { return c.ImageUses(), nil })
}
