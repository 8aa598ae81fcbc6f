package cluster

import (
	"context"

	"skerry.dev/skerry"
	"skerry.dev/skerry/view"
)

// notRoot answers what only a root can: a cluster does not know others.
type notRoot struct{}

func (notRoot) err() error {
	return skerry.Errorf(skerry.CodeWrongTier, "a cluster does not know other clusters").
		WithHint("log in at the root or choose its context (`skerry context use NAME`)")
}

// Clusters is answered by the root only.
func (n notRoot) Clusters(context.Context) ([]view.ClusterView, error) { return nil, n.err() }

// TrustCluster is answered by the root only.
func (n notRoot) TrustCluster(context.Context, string) error { return n.err() }

// CordonCluster is answered by the root only.
func (n notRoot) CordonCluster(context.Context, string, string) error { return n.err() }

// DrainCluster is answered by the root only.
func (n notRoot) DrainCluster(context.Context, string, view.ClusterDrainRequest) error {
	return n.err()
}

// LabelCluster is answered by the root only.
func (n notRoot) LabelCluster(context.Context, string, view.ClusterLabels) error { return n.err() }

// Upgrades is answered by the root only.
func (n notRoot) Upgrades(context.Context) ([]view.Upgrade, error) { return nil, n.err() }

// Upgrade is answered by the root only.
func (n notRoot) Upgrade(context.Context, string) (view.Upgrade, error) {
	return view.Upgrade{}, n.err()
}

// StartUpgrade is answered by the root only.
func (n notRoot) StartUpgrade(context.Context, view.UpgradePlan, string) (view.Upgrade, error) {
	return view.Upgrade{}, n.err()
}

// ChangeUpgrade is answered by the root only.
func (n notRoot) ChangeUpgrade(context.Context, string, view.UpgradeState, string) error {
	return n.err()
}

// RemoveUpgrade is answered by the root only.
func (n notRoot) RemoveUpgrade(context.Context, string) error { return n.err() }

// AskSite is answered by the root only.
func (n notRoot) AskSite(context.Context, string, view.SiteRequest, any) error { return n.err() }
