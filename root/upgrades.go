package root

import (
	"context"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/root/core"
	"skerry.dev/skerry/view"
)

// Upgrades lists the upgrades of clusters.
func (s *Server) Upgrades(ctx context.Context) ([]view.Upgrade, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]view.Upgrade, error) { return c.Views().Upgrades(), nil })
}

// Upgrade shows one of them.
func (s *Server) Upgrade(ctx context.Context, name string) (view.Upgrade, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (view.Upgrade, error) { return c.Views().Upgrade(name) })
}

// StartUpgrade has clusters upgraded in waves. All get the same image, by its digest.
func (s *Server) StartUpgrade(ctx context.Context, plan view.UpgradePlan, by string) (view.Upgrade, error) {
	pinned, err := s.opt.Images.Resolve(ctx, plan.Image)
	if err != nil {
		return view.Upgrade{}, err
	}
	if pinned.Digest == "" {
		return view.Upgrade{}, skerry.Errorf(skerry.CodeInvalid, "the digest of image %s is not known, so clusters could get different programs",
			plan.Image).WithHint("push it to the root (skerry image push), or name it with its digest")
	}
	out, err := s.Role.Do(ctx, core.StartUpgrade{Plan: plan, Digest: pinned.Digest, By: by})
	if err != nil {
		return view.Upgrade{}, err
	}
	return out.(view.Upgrade), nil
}

// ChangeUpgrade pauses, resumes or aborts an upgrade.
func (s *Server) ChangeUpgrade(ctx context.Context, name string, to view.UpgradeState, by string) error {
	_, err := s.Role.Do(ctx, core.ChangeUpgrade{Name: name, To: to, By: by})
	return err
}

// RemoveUpgrade forgets an upgrade that has ended.
func (s *Server) RemoveUpgrade(ctx context.Context, name string) error {
	_, err := s.Role.Do(ctx, core.RemoveUpgrade{Name: name})
	return err
}
