package api

import (
	"context"
	"net/http"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/view"
)

// SecretData is what a secret holds, on its way in. Nothing gives it out again.
type SecretData struct {
	Data map[string][]byte `json:"data" doc:"Files by name, in base64, at most 256Ki in total. They are never returned."`
}

// secretBody is the largest body that brings a secret.
const secretBody = 512 << 10

// secretIn names a secret.
type secretIn struct {
	Namespace string `path:"namespace" maxLength:"63"`
	Name      string `path:"name" maxLength:"63"`
}

func (h *Handler) addSecrets() {
	type spaceIn struct {
		Namespace string `path:"namespace" maxLength:"63"`
	}
	add(h, operation{ID: "list-secrets", Method: http.MethodGet, Path: "/v1/namespaces/{namespace}/secrets", Scope: auth.ScopeAppsRead,
		Object: objNamespace, Tag: "secrets", Summary: "List the secrets in a namespace, without their content."},
		func(ctx context.Context, _ *auth.Principal, in *spaceIn) (*listAnswer[view.SecretView], error) {
			list, err := h.opt.Backend.Secrets(ctx, in.Namespace)
			return seen(list, err, func(*view.SecretView) bool { return true })
		})
	type putIn struct {
		Namespace string `path:"namespace" maxLength:"63"`
		Name      string `path:"name" maxLength:"63"`
		Rotate    bool   `query:"rotate" doc:"Store a new version of an existing secret. Default: create a new secret."`
		Body      SecretData
	}
	add(h, operation{ID: "put-secret", Method: http.MethodPut, Path: "/v1/namespaces/{namespace}/secrets/{name}",
		Scope: auth.ScopeSecretsWrite, Object: objNamespace, Tag: "secrets",
		Summary: "Store a new secret or a new version of one. Services that do not pin a version are updated.", Body: secretBody, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *putIn) (*answer[view.SecretView], error) {
			v, err := h.opt.Backend.Do(ctx, apps.PutSecret{Namespace: in.Namespace, Name: in.Name, Rotate: in.Rotate, Actor: who.User,
				Value: in.Body.Data})
			if err != nil {
				return nil, err
			}
			return &answer[view.SecretView]{v.(view.SecretView)}, nil
		})
	type undoIn struct {
		Namespace string `path:"namespace" maxLength:"63"`
		Name      string `path:"name" maxLength:"63"`
		To        int    `query:"to" minimum:"0" doc:"Version to return to. Default: the one before the current version."`
	}
	add(h, operation{ID: "undo-secret", Method: http.MethodPost, Path: "/v1/namespaces/{namespace}/secrets/{name}/undo",
		Scope: auth.ScopeSecretsWrite, Object: objNamespace, Tag: "secrets",
		Summary: "Return to an earlier version of a secret. Services that do not pin a version are updated.", Audit: true},
		func(ctx context.Context, who *auth.Principal, in *undoIn) (*answer[view.SecretView], error) {
			v, err := h.opt.Backend.Do(ctx, apps.UndoSecret{Namespace: in.Namespace, Name: in.Name, To: in.To, Actor: who.User})
			if err != nil {
				return nil, err
			}
			return &answer[view.SecretView]{v.(view.SecretView)}, nil
		})
	addBare(h, operation{ID: "delete-secret", Method: http.MethodDelete, Path: "/v1/namespaces/{namespace}/secrets/{name}",
		Scope: auth.ScopeSecretsWrite, Object: objNamespace, Tag: "secrets",
		Summary: "Delete a secret that no service uses.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *secretIn) (*none, error) {
			_, err := h.opt.Backend.Do(ctx, apps.DeleteSecret{Namespace: in.Namespace, Name: in.Name, Actor: who.User})
			return nil, err
		})
}
