package api

import (
	"context"
	"fmt"
	"net/http"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

func (h *Handler) addVolumes() {
	type listIn struct {
		PageIn
		Namespace string `query:"namespace" maxLength:"63" doc:"Return only volumes in this namespace."`
	}
	add(h, operation{ID: "list-volumes", Method: http.MethodGet, Path: "/v1/volumes", Scope: auth.ScopeAppsRead, Object: objEach,
		Tag: "volumes", Summary: "List the local volumes of replicas, including those kept after their application was deleted."},
		func(ctx context.Context, who *auth.Principal, in *listIn) (*pageAnswer[view.VolumeView], error) {
			list, err := h.opt.Backend.Volumes(ctx)
			return pageSeen("/v1/volumes", in.PageIn, list, err, func(v *view.VolumeView) bool {
				return (in.Namespace == "" || v.Namespace == in.Namespace) && who.May(auth.ScopeAppsRead, v.Org, h.cluster())
			}, func(v *view.VolumeView) string {
				return fmt.Sprintf("%s/%s/%s/%010d/%s/%s", v.Namespace, v.App, v.Service, v.Replica, v.Volume, v.Cluster)
			})
		})
	type deleteIn struct {
		ServicePath
		Replica int    `path:"replica" minimum:"0"`
		Volume  string `query:"volume" maxLength:"63" doc:"Only this one, which the service had and no longer has."`
	}
	addBare(h, operation{ID: "delete-volume", Method: http.MethodDelete, Path: "/v1/volumes/{namespace}/{app}/{service}/{replica}",
		Scope: auth.ScopeAppsWrite, Object: objNamespace, Tag: "volumes",
		Summary: "Delete the local volumes of a replica and their content. No instance may be using them.",
		Status:  http.StatusNoContent, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *deleteIn) (*none, error) {
			v := spec.VolumeClaim{Service: in.service(), Ordinal: in.Replica, Volume: in.Volume}
			_, err := h.opt.Backend.Do(ctx, apps.DeleteVolume{Claim: v, Actor: who.User})
			return nil, err
		})
}
