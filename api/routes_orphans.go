package api

import (
	"context"
	"net/http"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/view"
)

// addOrphans is for who looks after the whole: what runs unknown need not be of an organisation that is known.
func (h *Handler) addOrphans() {
	add(h, operation{ID: "list-orphans", Method: http.MethodGet, Path: "/v1/orphans", Scope: auth.ScopeAppsRead,
		Object: objSite, Tag: "instances",
		Summary: "List orphans: instances that are running but not recorded in the store, for example after a backup was restored, " +
			"and volumes and snapshots that workers keep and their site does not take up."},
		func(ctx context.Context, _ *auth.Principal, _ *none) (*listAnswer[view.Orphan], error) {
			list, err := h.opt.Backend.Orphans(ctx)
			return seen(list, err, func(*view.Orphan) bool { return true })
		})
	type orphanPath struct {
		ID string `path:"id" maxLength:"512" doc:"ID of an instance, or the name of what a worker keeps, with its slashes escaped."`
	}
	decide := func(adopt bool) func(context.Context, *auth.Principal, *orphanPath) (*none, error) {
		return func(ctx context.Context, who *auth.Principal, in *orphanPath) (*none, error) {
			_, err := h.opt.Backend.Do(ctx, apps.DecideOrphan{Name: in.ID, Adopt: adopt, Actor: who.User})
			return nil, err
		}
	}
	addBare(h, operation{ID: "adopt-orphan", Method: http.MethodPost, Path: "/v1/orphans/{id}/adopt", Scope: auth.ScopeAppsWrite,
		Object: objSite, Tag: "instances", Status: http.StatusNoContent, Audit: true,
		Summary: "Adopt an orphan: add it to its application as one more replica, and create the application if it does not exist."},
		decide(true))
	addBare(h, operation{ID: "delete-orphan", Method: http.MethodDelete, Path: "/v1/orphans/{id}", Scope: auth.ScopeAppsWrite,
		Object: objSite, Tag: "instances",
		Summary: "End an orphan, or delete it from the worker that keeps it.", Status: http.StatusAccepted, Audit: true}, decide(false))
}
