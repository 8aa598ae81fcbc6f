package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// Version says what a server is.
type Version struct {
	Version string    `json:"version"`
	API     string    `json:"api"`
	Tier    wire.Tier `json:"role" doc:"root or cluster."`
	Name    string    `json:"name"`
	Started time.Time `json:"started"`
	CAPin   string    `json:"caPin" doc:"SHA-256 of the site CA's certificate."`
	OIDC    bool      `json:"oidc,omitempty" doc:"The dashboard offers a login at an identity provider."`
}

// TargetGroup is an entry of Prometheus' HTTP service discovery.
type TargetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

func (h *Handler) addSystem() {
	add(h, operation{ID: "version", Method: http.MethodGet, Path: "/v1/version", Scope: auth.ScopePublic, Object: objNone, Tag: "system",
		Summary: "Return the server's version, role and identity."},
		func(ctx context.Context, _ *auth.Principal, _ *none) (*answer[Version], error) {
			b := h.opt.Backend
			return &answer[Version]{Version{Version: h.opt.Version, API: apiVersion, Tier: b.Tier(), Name: b.Name(), Started: b.Started(),
				CAPin: b.Authority().CAPin(), OIDC: h.opt.OIDC.Browsers()}}, nil
		})
	type auditIn struct {
		User      string `query:"user" maxLength:"63"`
		Operation string `query:"operation" maxLength:"63"`
		Limit     int    `query:"limit" minimum:"1" maximum:"10000" default:"200"`
	}
	add(h, operation{ID: "list-audit", Method: http.MethodGet, Path: "/v1/audit", Scope: auth.ScopeAuditRead, Object: objSite, Tag: "system",
		Summary: "List audit records, oldest first."},
		func(ctx context.Context, _ *auth.Principal, in *auditIn) (*listAnswer[auth.AuditRecord], error) {
			list, err := h.opt.People.AuditRecords(ctx, in.Limit, func(r *auth.AuditRecord) bool {
				return (in.User == "" || r.User == in.User) && (in.Operation == "" || r.Operation == in.Operation)
			})
			return listOf(list), err
		})
	type verifyIn struct {
		Since string `query:"since" minLength:"1" maxLength:"100" doc:"SEQ:HASH, the head from an earlier response: that record must still be there."`
	}
	add(h, operation{ID: "verify-audit", Method: http.MethodGet, Path: "/v1/audit/verify", Scope: auth.ScopeAuditRead, Object: objSite,
		Tag: "system", Summary: "Verify that no retained audit record was changed or removed."},
		func(ctx context.Context, _ *auth.Principal, in *verifyIn) (*answer[auth.AuditReport], error) {
			var since *auth.AuditMark
			if in.Since != "" {
				m, err := auth.ParseAuditMark(in.Since)
				if err != nil {
					return nil, err
				}
				since = &m
			}
			r, err := h.opt.People.VerifyAudit(ctx, since)
			return &answer[auth.AuditReport]{r}, err
		})
	add(h, operation{ID: "list-images", Method: http.MethodGet, Path: "/v1/images", Scope: auth.ScopeImagesRead, Object: objEach,
		Tag: "images", Summary: "List the images of the built-in registry."},
		func(ctx context.Context, who *auth.Principal, in *PageIn) (*pageAnswer[view.ImageView], error) {
			out := []view.ImageView{}
			byName := func(v *view.ImageView) string { return v.Name + "@" + v.Digest }
			l, ok := h.opt.Backend.Registry().(ImageLister)
			if !ok {
				return pageOf("/v1/images", *in, out, byName)
			}
			allowed := h.registryAuth(ctx, who)
			hidden := hiddenUses(ctx, h, who)
			list, err := l.ListImages(ctx)
			if err != nil {
				return nil, err
			}
			for _, v := range list {
				if allowed(imageref.BuiltIn+"/"+v.Name, artifact.ActionPull) != nil {
					continue
				}
				if allowed(imageref.BuiltIn+"/"+v.Name, artifact.ActionDelete) != nil {
					v.ImageUse = view.ImageUse{}
				}
				v.UsedBy = slices.DeleteFunc(slices.Clone(v.UsedBy), hidden) // names of one image share the list
				v.KeptFor = slices.DeleteFunc(slices.Clone(v.KeptFor), hidden)
				out = append(out, v)
			}
			return pageOf("/v1/images", *in, out, byName)
		})
	add(h, operation{ID: "metrics-targets", Method: http.MethodGet, Path: "/v1/metrics/targets", Scope: auth.ScopeMetricsRead,
		Object: objEach, Tag: "metrics",
		Summary: "List the instances with metrics for Prometheus' HTTP service discovery. They are scraped through this server."},
		func(ctx context.Context, who *auth.Principal, _ *none) (*answer[[]TargetGroup], error) {
			list, err := h.opt.Backend.Scrapes(ctx)
			if err != nil {
				return nil, err
			}
			see := h.seer(ctx, who, auth.ScopeMetricsRead)
			out := []TargetGroup{}
			host, _ := ctx.Value(hostKey{}).(string)
			for _, s := range list {
				i := &s.Instance
				if !see.instance(i) {
					continue
				}
				out = append(out, TargetGroup{Targets: []string{host}, Labels: map[string]string{
					"__metrics_path__": "/v1/instances/" + string(i.ID) + "/metrics", "instance": string(i.ID), "namespace": i.Service.App.Namespace,
					"app": i.Service.App.Name, "service": i.Service.Service, "cluster": string(i.Cluster)}})
			}
			return &answer[[]TargetGroup]{out}, nil
		})
	h.addPlain()
}

type hostKey struct{}

// addPlain adds what is not JSON.
func (h *Handler) addPlain() {
	get := func(id, path, typ, tag, summary string, fn http.HandlerFunc) {
		o := operation{ID: id, Method: http.MethodGet, Path: path, Scope: auth.ScopePublic, Object: objNone, Tag: tag, Summary: summary,
			Type: typ}
		if id == "readyz" {
			o.Also = map[string]string{"503": "Not ready, and why."}
		}
		h.raw(o, "GET "+path, fn)
	}
	text := func(typ string, data func() []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", typ)
			w.Header().Set("Cache-Control", "public, max-age=300")
			w.Write(data())
		}
	}
	get("openapi", "/openapi.json", "application/openapi+json", "system", "Return this OpenAPI document as JSON.",
		text("application/openapi+json", func() []byte { return h.spec() }))
	get("openapi-yaml", "/openapi.yaml", "application/openapi+yaml", "system", "Return this OpenAPI document as YAML.",
		text("application/openapi+yaml", func() []byte { return h.specYAML() }))
	schema := spec.ApplicationSchema()
	get("manifest-schema", "/schema/application.json", "application/schema+json", "system", "Return the JSON Schema of manifests.",
		text("application/schema+json", func() []byte { return schema }))
	get("healthz", "/healthz", "text/plain", "system", "Check that the process is alive.",
		func(w http.ResponseWriter, r *http.Request) { plain(w, nil) })
	get("readyz", "/readyz", "text/plain", "system", "Check whether the server is ready; the response gives the reason if it is not.",
		func(w http.ResponseWriter, r *http.Request) { plain(w, h.opt.Backend.Ready()) })
	metrics := operation{ID: "metrics", Method: http.MethodGet, Path: "/metrics", Scope: auth.ScopeMetricsRead, Object: objSite,
		Tag: "metrics", Summary: "Return the server's metrics in Prometheus' format.", Type: "text/plain"}
	if h.opt.OpenMetrics {
		metrics.Scope, metrics.Object = auth.ScopePublic, objNone
	}
	h.raw(metrics, "GET /metrics", http.HandlerFunc(h.serveMetrics))
	h.raw(operation{ID: "registry", Method: http.MethodGet, Path: "/v2/", Scope: auth.ScopePublic, Object: objNone, Tag: "images",
		Type: "application/json", Also: map[string]string{"4XX": "An error in the form of the OCI distribution protocol."},
		Summary: "Serve the built-in registry (OCI distribution protocol) with all its methods below this path. Requires " +
			"images:read and images:push in the organisation that owns the namespace at the start of the repository's name."},
		"/v2/", http.HandlerFunc(h.serveRegistry))
}

func plain(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		w.Write([]byte(err.Error() + "\n"))
		return
	}
	w.Write([]byte("ok\n"))
}

// serveRegistry finds out who asks and leaves the rest to the registry.
func (h *Handler) serveRegistry(w http.ResponseWriter, r *http.Request) {
	call := callOf(r.Context())
	var who *auth.Principal
	var err error
	user, password, basic := r.BasicAuth()
	switch {
	case basic:
		call.guess, call.object = true, cut(user, 256)
		who, err = h.opt.People.AuthenticateBasic(r.Context(), user, password, address(r))
	case r.Header.Get("Authorization") != "":
		who, err = h.authenticate(r)
	}
	if err != nil {
		e := known(err)
		call.code = e.Code
		if e.Code == skerry.CodeUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="skerry"`)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(e.Code.HTTPStatus())
		code := map[bool]string{true: "TOOMANYREQUESTS", false: "UNAUTHORIZED"}[e.Code == skerry.CodeRateLimited]
		json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": e.Message}}})
		return
	}
	call.who = who
	call.object = strings.TrimPrefix(r.URL.Path, "/v2/")
	call.audit = who != nil && r.Method != http.MethodGet && r.Method != http.MethodHead &&
		(strings.Contains(r.URL.Path, "/manifests/") || r.Method == http.MethodDelete && !strings.Contains(r.URL.Path, "/blobs/uploads/"))
	ctx := r.Context()
	if who != nil {
		ctl := http.NewResponseController(w)
		ctl.SetReadDeadline(time.Time{}) // blobs are large and sites are far
		ctl.SetWriteDeadline(time.Time{})
		ctx = tier.WithHidden(tier.WithRegistryAuth(ctx, h.registryAuth(ctx, who)), hiddenUses(ctx, h, who))
	}
	h.opt.Backend.Registry().ServeHTTP(w, r.WithContext(ctx))
}

// registryAuth decides about repositories: the first part of a name is a namespace, whose organisation counts; what has no
// such namespace belongs to the site. Everybody who may read images may pull the site's.
func (h *Handler) registryAuth(ctx context.Context, who *auth.Principal) tier.RegistryAuth {
	known := map[string][]string{}
	return func(repository, action string) error {
		rest, local := strings.CutPrefix(repository, imageref.BuiltIn+"/")
		space, _, nested := strings.Cut(rest, "/")
		var orgs []string
		if local && nested {
			var ok bool
			if orgs, ok = known[space]; !ok {
				var err error
				if orgs, err = h.orgsOf(ctx, space); err != nil {
					return err // it is not known whose it is
				}
				known[space] = orgs
			}
		}
		scope := auth.ScopeImagesPush
		if action == artifact.ActionPull {
			scope = auth.ScopeImagesRead
		}
		if len(orgs) == 0 && (who.May(scope, "", h.cluster()) || action == artifact.ActionPull && who.Somewhere(scope)) {
			return nil
		}
		if len(orgs) > 0 && !slices.ContainsFunc(orgs, func(org string) bool { return !who.May(scope, org, h.cluster()) }) {
			return nil
		}
		return forbidden(who, scope)
	}
}

// hiddenUses reports which users of an image somebody may not know of: services of others that run the same image, perhaps from a
// repository of their own, and workers.
func hiddenUses(ctx context.Context, h *Handler, who *auth.Principal) func(user string) bool {
	known := map[string]bool{}
	return func(user string) bool {
		namespace, rest, _ := strings.Cut(user, "/")
		service := strings.Contains(rest, "/") // else worker/NAME
		if !service {
			return !who.May(auth.ScopeImagesPush, "", h.cluster())
		}
		hide, seen := known[namespace]
		if !seen {
			orgs, err := h.orgsOf(ctx, namespace)
			if len(orgs) == 0 {
				orgs = []string{""}
			}
			hide = err != nil || slices.ContainsFunc(orgs, func(org string) bool { return !who.May(auth.ScopeAppsRead, org, h.cluster()) })
			known[namespace] = hide
		}
		return hide
	}
}

// orgsOf lists the organisations that images of a namespace belong to: its own, and at a site those that the root knows
// under the same name.
func (h *Handler) orgsOf(ctx context.Context, namespace string) ([]string, error) {
	var orgs []string
	org, _, err := h.orgOf(ctx, skerry.AppKey{Namespace: namespace})
	if err != nil {
		return nil, err
	}
	if b, ok := h.opt.Backend.(interface {
		OrgsBehind(ctx context.Context, namespace string) ([]string, error)
	}); ok {
		if orgs, err = b.OrgsBehind(ctx, namespace); err != nil {
			return nil, err
		}
	}
	if org != "" && !slices.Contains(orgs, org) {
		orgs = append(orgs, org)
	}
	return orgs, nil
}
