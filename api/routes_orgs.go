package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/view"
)

// OrgPath names an organisation.
type OrgPath struct {
	Org string `path:"org" maxLength:"63"`
}

func (h *Handler) addOrgs() {
	add(h, operation{ID: "list-orgs", Method: http.MethodGet, Path: "/v1/orgs",
		Scope: auth.ScopeOrgsRead, Object: objEach, Tag: "organisations",
		Summary: "List the organisations."},
		func(ctx context.Context, who *auth.Principal, _ *none) (*listAnswer[apps.Org], error) {
			list, err := h.opt.Backend.Orgs(ctx)
			return seen(list, err, func(o *apps.Org) bool { return who.May(auth.ScopeOrgsRead, o.Name, h.cluster()) })
		})
	type createIn struct{ Body apps.Org }
	add(h, operation{ID: "create-org", Method: http.MethodPost, Path: "/v1/orgs", Scope: auth.ScopeOrgsAdmin, Object: objSite,
		Tag: "organisations", Summary: "Create an organisation.", Status: http.StatusCreated, Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *createIn) (*answer[apps.Org], error) {
			callOf(ctx).object = in.Body.Name
			if h.orgExists(ctx, in.Body.Name) == nil {
				return nil, skerry.Errorf(skerry.CodeConflict, "organisation %q exists already", in.Body.Name).WithHint("`skerry org quota %s` changes its quota", in.Body.Name)
			}
			_, err := h.opt.Backend.Do(ctx, apps.PutOrg{Org: in.Body})
			return &answer[apps.Org]{in.Body}, err
		})
	addBare(h, operation{ID: "delete-org", Method: http.MethodDelete, Path: "/v1/orgs/{org}", Scope: auth.ScopeOrgsAdmin, Object: objSite,
		Tag: "organisations", Summary: "Delete an organisation that has no namespaces.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *OrgPath) (*none, error) {
			_, err := h.opt.Backend.Do(ctx, apps.DeleteOrg{Name: in.Org})
			return nil, err
		})
	type quotaIn struct {
		OrgPath
		Body apps.Quota
	}
	add(h, operation{ID: "set-quota", Method: http.MethodPut, Path: "/v1/orgs/{org}/quota", Scope: auth.ScopeOrgsAdmin, Object: objSite,
		Tag: "organisations", Summary: "Set the quota of an organisation.", Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *quotaIn) (*answer[apps.Org], error) {
			if err := h.orgExists(ctx, in.Org); err != nil {
				return nil, err
			}
			o := apps.Org{Name: in.Org, Quota: in.Body}
			_, err := h.opt.Backend.Do(ctx, apps.PutOrg{Org: o})
			return &answer[apps.Org]{o}, err
		})
	add(h, operation{ID: "org-usage", Method: http.MethodGet, Path: "/v1/orgs/{org}/usage", Scope: auth.ScopeOrgsRead, Object: objOrg,
		Tag: "organisations", Summary: "Show an organisation's resource requests and its use of the built-in registry."},
		func(ctx context.Context, _ *auth.Principal, in *OrgPath) (*answer[apps.Usage], error) {
			if err := h.orgExists(ctx, in.Org); err != nil {
				return nil, err
			}
			u, err := h.opt.Backend.Usage(ctx, in.Org)
			return &answer[apps.Usage]{u}, err
		})

	add(h, operation{ID: "list-namespaces", Method: http.MethodGet, Path: "/v1/namespaces",
		Scope: auth.ScopeOrgsRead, Object: objEach, Tag: "organisations",
		Summary: "List the namespaces."},
		func(ctx context.Context, who *auth.Principal, _ *none) (*listAnswer[apps.Namespace], error) {
			list, err := h.opt.Backend.Namespaces(ctx)
			return seen(list, err, func(n *apps.Namespace) bool { return who.May(auth.ScopeOrgsRead, n.Org, h.cluster()) })
		})
	type spaceIn struct{ Body apps.Namespace }
	add(h, operation{ID: "create-namespace", Method: http.MethodPost, Path: "/v1/namespaces", Scope: auth.ScopeOrgsAdmin, Object: objNamed,
		Tag: "organisations", Summary: "Create a namespace for an organisation.", Status: http.StatusCreated, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *spaceIn) (*answer[apps.Namespace], error) {
			callOf(ctx).object = in.Body.Name
			if err := h.allow(who, auth.ScopeOrgsAdmin, auth.ScopeOrgsRead, in.Body.Org, h.cluster(), noOrg(in.Body.Org)); err != nil {
				return nil, err
			}
			// What is below a name that is no namespace is everybody's: nobody takes it for an organisation of his own.
			image, err := h.imageBelow(ctx, in.Body.Name)
			if err != nil {
				return nil, err
			}
			if image != "" && !who.May(auth.ScopeImagesPush, "", h.cluster()) &&
				h.spaceOf(ctx, in.Body.Name) == "" {
				return nil, skerry.Errorf(skerry.CodeConflict, "there are images below the name %s, such as %s, which belong to the whole site",
					in.Body.Name, image).
					WithHint("choose another name, or ask who may push images of the whole site")
			}
			_, err = h.opt.Backend.Do(ctx, apps.PutNamespace{Namespace: in.Body})
			return &answer[apps.Namespace]{in.Body}, err
		})
	type nameIn struct {
		Namespace string `path:"namespace" maxLength:"63"`
	}
	addBare(h, operation{ID: "delete-namespace", Method: http.MethodDelete, Path: "/v1/namespaces/{namespace}", Scope: auth.ScopeOrgsAdmin,
		Object: objNamespace, Tag: "organisations",
		Summary: "Delete a namespace that has no applications and no images.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *nameIn) (*none, error) {
			// Whoever is given the name next would read its images, and nobody would be charged for them.
			if l, ok := h.opt.Backend.Registry().(ImageLister); ok {
				if image, err := l.Clear(in.Namespace); err != nil {
					return nil, err
				} else if image != "" {
					return nil, skerry.Errorf(skerry.CodeConflict, "namespace %s still contains image %s", in.Namespace, image).
						WithHint("delete its images first: `skerry get images` lists them, `skerry delete image NAME` deletes one")
				}
			}
			_, err := h.opt.Backend.Do(ctx, apps.DeleteNamespace{Name: in.Namespace})
			return nil, err
		})
}

// imageBelow gives an image of the built-in registry whose name begins with a namespace's, or "".
func (h *Handler) imageBelow(ctx context.Context, namespace string) (string, error) {
	l, ok := h.opt.Backend.Registry().(ImageLister)
	if !ok {
		return "", nil
	}
	list, err := l.ListImages(ctx)
	if i := slices.IndexFunc(list, func(v view.ImageView) bool { return strings.HasPrefix(v.Name, namespace+"/") }); i >= 0 {
		return list[i].Name, nil
	}
	return "", err
}

// spaceOf gives the organisation of a namespace, or "" where there is no such namespace.
func (h *Handler) spaceOf(ctx context.Context, namespace string) string {
	list, _ := h.opt.Backend.Namespaces(ctx)
	for _, n := range list {
		if n.Name == namespace {
			return n.Org
		}
	}
	return ""
}

func (h *Handler) orgExists(ctx context.Context, name string) error {
	list, err := h.opt.Backend.Orgs(ctx)
	if err != nil {
		return err
	}
	for _, o := range list {
		if o.Name == name {
			return nil
		}
	}
	return noOrg(name)
}
