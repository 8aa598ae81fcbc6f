package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// AppPath and the other Path types are the parts of paths; huma reads embedded structs only if they are exported.
type AppPath struct {
	Namespace string `path:"namespace" maxLength:"63"`
	App       string `path:"app" maxLength:"63"`
}

func (in *AppPath) key() skerry.AppKey { return skerry.AppKey{Namespace: in.Namespace, Name: in.App} }

// ServicePath names a service.
type ServicePath struct {
	AppPath
	Service string `path:"service" maxLength:"63"`
}

func (in *ServicePath) service() skerry.ServiceKey {
	return skerry.ServiceKey{App: in.key(), Service: in.Service}
}

// do gives the backend a message whose answer is an Applied.
func (h *Handler) do(ctx context.Context, msg any) (*answer[apps.Applied], error) {
	res, err := h.opt.Backend.Do(ctx, msg)
	if err != nil {
		return nil, err
	}
	a, _ := res.(apps.Applied)
	return &answer[apps.Applied]{a}, nil
}

func addManifest(h *Handler) {
	type manifestIn struct {
		AppPath
		Gen skerry.Generation `query:"generation" minimum:"1" doc:"Generation that is retained (revisions). Default: the current one."`
	}
	add(h, operation{ID: "get-manifest", Method: http.MethodGet, Path: "/v1/apps/{namespace}/{app}/manifest", Scope: auth.ScopeAppsRead,
		Object: objApp, Tag: "applications", Summary: "Show the manifest of an application without defaults, as it is or as it was."},
		func(ctx context.Context, _ *auth.Principal, in *manifestIn) (*answer[view.VersionView], error) {
			shown, err := h.opt.Backend.App(ctx, in.key(), in.Gen)
			if err == nil && shown.Manifest == nil {
				err = skerry.Errorf(skerry.CodeWrongTier, "the manifest of %s is known at the root only", shown.Key).
					WithHint("ask the root for it")
			}
			if err != nil {
				return nil, err
			}
			return &answer[view.VersionView]{view.VersionView{Gen: shown.Gen, At: shown.UpdatedAt, Author: shown.Author,
				Manifest: *shown.Manifest.WithoutDefaults()}}, nil
		})
}

// appPage gives the page of applications that a user may see.
func appPage(ctx context.Context, handler *Handler, in PageIn, page apps.AppPage) (*pageAnswer[view.AppView], error) {
	const list = "/v1/apps"
	page.Limit = in.Limit
	if in.Continue != "" {
		var err error
		if page.After, err = readPageToken(list, in.Continue); err != nil {
			return nil, err
		}
	}
	got, more, err := handler.opt.Backend.AppPage(ctx, page)
	if err != nil {
		return nil, err
	}
	out := &pageAnswer[view.AppView]{Page[view.AppView]{Items: got}}
	if more {
		out.Body.Continue = pageToken(list, got[len(got)-1].Key.String())
	}
	return out, nil
}

func (h *Handler) addApps() {
	type listIn struct {
		PageIn
		Namespace string `query:"namespace" maxLength:"63" doc:"Return only applications in this namespace."`
	}
	add(h, operation{ID: "list-apps", Method: http.MethodGet, Path: "/v1/apps",
		Scope: auth.ScopeAppsRead, Object: objEach, Tag: "applications",
		Summary: "List the applications."},
		func(ctx context.Context, who *auth.Principal, in *listIn) (*pageAnswer[view.AppView], error) {
			cluster := h.cluster()
			return appPage(ctx, h, in.PageIn, apps.AppPage{Namespace: in.Namespace,
				May: func(org string) bool { return who.May(auth.ScopeAppsRead, org, cluster) }})
		})
	h.addApply()
	h.addRollouts()
	addManifest(h)
	add(h, operation{ID: "get-app", Method: http.MethodGet, Path: "/v1/apps/{namespace}/{app}", Scope: auth.ScopeAppsRead, Object: objApp,
		Tag: "applications", Summary: "Show an application with its manifest."},
		func(ctx context.Context, _ *auth.Principal, in *AppPath) (*answer[view.AppView], error) {
			v, err := h.opt.Backend.App(ctx, in.key(), 0)
			return &answer[view.AppView]{v}, err
		})
	type deleteApp struct {
		AppPath
		Volumes bool `query:"volumes" doc:"Also delete all its local volumes. Default: only volumes with reclaim delete."`
	}
	add(h, operation{ID: "delete-app", Method: http.MethodDelete, Path: "/v1/apps/{namespace}/{app}", Scope: auth.ScopeAppsWrite,
		Object: objApp, Tag: "applications", Summary: "Delete an application, whatever its state.", Status: http.StatusAccepted, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *deleteApp) (*answer[apps.Deleted], error) {
			res, err := h.opt.Backend.Do(ctx, apps.Delete{Key: in.key(), Volumes: in.Volumes, Actor: who.User})
			d, _ := res.(apps.Deleted)
			return &answer[apps.Deleted]{d}, err
		})
	add(h, operation{ID: "deploy-app", Method: http.MethodPost, Path: "/v1/apps/{namespace}/{app}/deploy", Scope: auth.ScopeAppsWrite,
		Object: objApp, Tag: "applications", Summary: "Deploy a registered application.", Status: http.StatusAccepted, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *AppPath) (*answer[apps.Applied], error) {
			return h.do(ctx, apps.Deploy{Key: in.key(), Actor: who.User})
		})
	type restartApp struct {
		AppPath
		Pull bool `query:"pull" doc:"Resolve the image tags again first. A service whose images have changed is updated instead of restarted."`
	}
	add(h, operation{ID: "restart-app", Method: http.MethodPost, Path: "/v1/apps/{namespace}/{app}/restart", Scope: auth.ScopeAppsWrite,
		Object: objApp, Tag: "applications",
		Summary: "Restart every instance of an application, one at a time.", Status: http.StatusAccepted, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *restartApp) (*answer[apps.Applied], error) {
			return h.restart(ctx, who, skerry.ServiceKey{App: in.key()}, in.Pull)
		})
	type restartService struct {
		ServicePath
		Pull bool `query:"pull" doc:"Resolve the image tags again first. A service whose images have changed is updated instead of restarted."`
	}
	type scaleIn struct {
		ServicePath
		Body struct {
			Replicas int `json:"replicas" minimum:"0" maximum:"10000"`
		}
	}
	add(h, operation{ID: "scale-service", Method: http.MethodPut, Path: "/v1/apps/{namespace}/{app}/services/{service}/scale",
		Scope: auth.ScopeAppsWrite, Object: objApp,
		Tag: "applications", Summary: "Change the number of instances of a service.", Status: http.StatusAccepted, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *scaleIn) (*answer[apps.Applied], error) {
			return h.do(ctx, apps.Scale{Service: in.service(), Replicas: in.Body.Replicas, Actor: who.User})
		})
	add(h, operation{ID: "restart-service", Method: http.MethodPost, Path: "/v1/apps/{namespace}/{app}/services/{service}/restart",
		Scope: auth.ScopeAppsWrite, Object: objApp,
		Tag: "applications", Summary: "Restart every instance of a service, one at a time.", Status: http.StatusAccepted, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *restartService) (*answer[apps.Applied], error) {
			return h.restart(ctx, who, in.service(), in.Pull)
		})
}

// restart restarts a service or, without a name, an application; pull has its images looked up again first, of those
// that the user may read.
func (h *Handler) restart(ctx context.Context, who *auth.Principal, k skerry.ServiceKey, pull bool) (*answer[apps.Applied], error) {
	m := apps.Restart{Service: k, Actor: who.User}
	if pull {
		v, err := h.opt.Backend.App(ctx, k.App, 0)
		if err != nil {
			return nil, err
		}
		if m.Pull = v.Manifest; m.Pull == nil {
			return nil, skerry.Errorf(skerry.CodeUnsupported, "application %s belongs to the root, which looks up its images",
				k.App).WithHint("repeat this at the root")
		}
		ctx = tier.WithOrg(tier.WithRegistryAuth(ctx, h.registryAuth(ctx, who)), v.Org)
	}
	return h.do(ctx, m)
}

func (h *Handler) addApply() {
	type applyIn struct {
		ContentType string            `header:"Content-Type" maxLength:"200" hidden:"true"`
		Register    bool              `query:"register" doc:"Store the manifest without deploying it."`
		DryRun      bool              `query:"dryRun" doc:"Make all checks of an apply, resolve images, and tell what it would do, without changing anything."`
		Expect      skerry.Generation `query:"expectGeneration" doc:"Fail unless the application is at this generation."`
		RawBody     []byte            `contentType:"application/yaml"`
	}
	op := operation{ID: "apply-app", Method: http.MethodPost, Path: "/v1/apps", Scope: auth.ScopeAppsWrite, Object: objNamed,
		Tag: "applications", Summary: "Create or update an application from its manifest.", Body: spec.MaxManifest + 1, Audit: true}
	add(h, op, func(ctx context.Context, who *auth.Principal, in *applyIn) (*answer[apps.Applied], error) {
		app, _, ctx, err := h.manifest(ctx, who, in.ContentType, in.RawBody)
		if err != nil {
			return nil, err
		}
		return h.do(ctx, apps.Apply{App: *app, Actor: who.User, Register: in.Register, Expect: in.Expect, DryRun: in.DryRun})
	})
	h.takesManifest(op)
	type planIn struct {
		ContentType string `header:"Content-Type" maxLength:"200" hidden:"true"`
		RawBody     []byte `contentType:"application/yaml"`
	}
	plan := operation{ID: "plan-app", Method: http.MethodPost, Path: "/v1/plan", Scope: auth.ScopeAppsWrite, Object: objNamed,
		Tag:     "applications",
		Summary: "Show where the instances of a manifest would be placed, without changing anything.", Body: spec.MaxManifest + 1}
	add(h, plan, func(ctx context.Context, who *auth.Principal, in *planIn) (*answer[view.Plan], error) {
		app, _, ctx, err := h.manifest(ctx, who, in.ContentType, in.RawBody)
		if err != nil {
			return nil, err
		}
		p, err := h.opt.Backend.Plan(ctx, *app)
		return &answer[view.Plan]{p}, err
	})
	h.takesManifest(plan)
}

// manifest reads a manifest and checks that the user may apply it. In the context that it gives, images are resolved
// that the user may read, for the application's organisation.
func (h *Handler) manifest(ctx context.Context, who *auth.Principal, contentType string, body []byte) (*spec.Application, skerry.AppKey,
	context.Context, error) {
	app, err := DecodeManifest(contentType, body)
	if err != nil {
		return nil, skerry.AppKey{}, ctx, err
	}
	ns := app.Metadata.Namespace
	if ns == "" {
		ns = spec.DefaultNamespace
	}
	key := skerry.AppKey{Namespace: ns, Name: app.Metadata.Name}
	callOf(ctx).object = key.String()
	org, missing, err := h.orgOf(ctx, skerry.AppKey{Namespace: ns})
	if err != nil {
		return nil, key, ctx, err
	}
	ctx = tier.WithOrg(tier.WithRegistryAuth(ctx, h.registryAuth(ctx, who)), org)
	return app, key, ctx, h.allow(who, auth.ScopeAppsWrite, auth.ScopeAppsRead, org, h.cluster(), missing)
}

// takesManifest says in the API's document that an operation's body is a manifest.
func (h *Handler) takesManifest(o operation) {
	body := h.api.OpenAPI().Paths[o.Path].Post.RequestBody
	for _, t := range []string{"application/json", "application/yaml"} {
		body.Content[t] = &huma.MediaType{Schema: manifestText{}.Schema(nil)}
	}
}
