package api

import (
	"context"
	"net/http"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// What may be done with an upgrade of clusters.
const (
	UpgradePause  = "pause"
	UpgradeResume = "resume"
	UpgradeAbort  = "abort"
)

// addUpgrades adds upgrades of clusters in waves.
func addUpgrades(handler *Handler) {
	backend := handler.opt.Backend
	type UpgradePath struct {
		Upgrade string `path:"upgrade" maxLength:"63"`
	}
	row := func(id, method, path string, scope auth.Scope, summary string, status int) operation {
		return operation{ID: id, Method: method, Path: "/v1/upgrades" + path, Scope: scope, Object: objSite, Tag: "upgrades",
			At: wire.TierRoot, Summary: summary, Status: status, Audit: method != http.MethodGet}
	}
	add(handler, row("list-upgrades", http.MethodGet, "", auth.ScopeClustersRead, "List the upgrades of clusters.", 0),
		func(ctx context.Context, _ *auth.Principal, _ *none) (*listAnswer[view.Upgrade], error) {
			list, err := backend.Upgrades(ctx)
			return listOf(list), err
		})
	add(handler, row("get-upgrade", http.MethodGet, "/{upgrade}", auth.ScopeClustersRead, "Show an upgrade of clusters.", 0),
		func(ctx context.Context, _ *auth.Principal, in *UpgradePath) (*answer[view.Upgrade], error) {
			u, err := backend.Upgrade(ctx, in.Upgrade)
			return &answer[view.Upgrade]{u}, err
		})
	type startIn struct{ Body view.UpgradePlan }
	add(handler, row("start-upgrade", http.MethodPost, "", auth.ScopeClusterAdmin,
		"Upgrade the workers of many clusters in waves. A wave begins "+
			"once the clusters of the one before work with the new program. It stops when too many fail. Clusters need the grant waves.",
		http.StatusCreated),
		func(ctx context.Context, who *auth.Principal, in *startIn) (*answer[view.Upgrade], error) {
			callOf(ctx).object, callOf(ctx).detail = in.Body.Name, in.Body.Image
			u, err := backend.StartUpgrade(tier.WithRegistryAuth(ctx, handler.registryAuth(ctx, who)), in.Body, who.User)
			return &answer[view.Upgrade]{u}, err
		})
	type changeIn struct {
		UpgradePath
		Body struct {
			Action string `json:"action" enum:"pause,resume,abort" doc:"resume tries again what failed; after abort, what is upgraded stays."`
		}
	}
	addBare(handler, row("change-upgrade", http.MethodPost, "/{upgrade}/state", auth.ScopeClusterAdmin,
		"Pause, resume or abort an upgrade of clusters.",
		http.StatusNoContent),
		func(ctx context.Context, who *auth.Principal, in *changeIn) (*none, error) {
			callOf(ctx).detail = in.Body.Action
			to := map[string]view.UpgradeState{UpgradePause: view.UpgradePaused, UpgradeResume: view.UpgradeRunning,
				UpgradeAbort: view.UpgradeAborted}
			return nil, backend.ChangeUpgrade(ctx, in.Upgrade, to[in.Body.Action], who.User)
		})
	addBare(handler, row("delete-upgrade", http.MethodDelete, "/{upgrade}", auth.ScopeClusterAdmin,
		"Forget an upgrade of clusters that has ended.",
		http.StatusNoContent),
		func(ctx context.Context, _ *auth.Principal, in *UpgradePath) (*none, error) {
			return nil, backend.RemoveUpgrade(ctx, in.Upgrade)
		})
}
