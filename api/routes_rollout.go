package api

import (
	"context"
	"net/http"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
)

// What may be done with a rollout.
const (
	RolloutPause  = "pause"
	RolloutResume = "resume"
	RolloutUndo   = "undo"
)

// RolloutRequest asks for something to be done with the rollouts of an application.
type RolloutRequest struct {
	Action  string            `json:"action" enum:"pause,resume,undo" doc:"pause stops rollouts where they are; resume continues them and retries a version that was rolled back; undo rolls back to an earlier version."`
	Service string            `json:"service,omitempty" maxLength:"63" doc:"Service concerned. Default: all services."`
	To      skerry.Generation `json:"to,omitempty" doc:"Generation to return to. Default: the last one that differs."`
	// Amendment names a site, instead of To.
	Amendment string `json:"amendment,omitempty" maxLength:"63" doc:"Site whose override undo adopts, if it was made while the root was unreachable and not adopted."`
}

func (h *Handler) addRollouts() {
	type in struct {
		AppPath
		Body RolloutRequest
	}
	add(h, operation{ID: "change-rollout", Method: http.MethodPost, Path: "/v1/apps/{namespace}/{app}/rollout", Scope: auth.ScopeAppsWrite,
		Object: objApp, Tag: "applications",
		Summary: "Pause, resume or undo the rollout of a new version.", Status: http.StatusAccepted, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *in) (*answer[apps.Applied], error) {
			k := skerry.ServiceKey{App: in.key(), Service: in.Body.Service}
			switch in.Body.Action {
			case RolloutPause:
				return h.do(ctx, apps.Pause{Service: k, Actor: who.User})
			case RolloutResume:
				return h.do(ctx, apps.Resume{Service: k, Actor: who.User})
			}
			return h.do(ctx, apps.Undo{Service: k, To: in.Body.To, Site: in.Body.Amendment, Actor: who.User})
		})
}
