package api

import (
	"context"
	"net/http"

	"skerry.dev/skerry/view"
)

// Upgrades lists the upgrades of clusters.
func (c *Client) Upgrades(ctx context.Context) ([]view.Upgrade, error) {
	return list[view.Upgrade](ctx, c, "/v1/upgrades", nil)
}

// Upgrade shows an upgrade of clusters.
func (c *Client) Upgrade(ctx context.Context, name string) (view.Upgrade, error) {
	return get[view.Upgrade](ctx, c, "/v1/upgrades/"+esc(name), nil)
}

// StartUpgrade has clusters upgraded in waves.
func (c *Client) StartUpgrade(ctx context.Context, plan view.UpgradePlan) (view.Upgrade, error) {
	return send[view.Upgrade](ctx, c, http.MethodPost, "/v1/upgrades", nil, plan)
}

// ChangeUpgrade pauses, resumes or aborts an upgrade of clusters.
func (c *Client) ChangeUpgrade(ctx context.Context, name, action string) error {
	return c.do(ctx, http.MethodPost, "/v1/upgrades/"+esc(name)+"/state", nil, map[string]string{"action": action}, nil)
}

// DeleteUpgrade forgets an upgrade of clusters that has ended.
func (c *Client) DeleteUpgrade(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/upgrades/"+esc(name), nil, nil, nil)
}
