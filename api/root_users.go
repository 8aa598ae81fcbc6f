package api

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/wire"
)

// Users of the root reach a site by way of the root, over the site's own connection. They have no login here and no role: the root has
// checked what they may there, and the site asks only whether it grants that to them. It trusts the root for who they are, and for no more.
//
//	user ─► root: scope, audit ─► AskSite ─ site's connection ─► RootUsers: in the table? granted? ─► audit ─► the same operation as for
//	                                                                                                  users of the site

// rootUserPrefix stands before the names of users of the root, in the site's audit and limits. No name of a user here has such a character.
const rootUserPrefix = "root/"

// maxRootUser bounds the name of a user of the root, in bytes.
const maxRootUser = 128

// RootUsers answers users of the root. It must be reached from the root's connection alone.
func RootUsers(handler *Handler) http.Handler {
	return http.StripPrefix(wire.RootUsersPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{root: true, who: rootUser(r.Header.Get(wire.RootUserHeader)), secure: true}
		if id := r.Header.Get(wire.RootRequestHeader); len(id) <= 2*len(newRequestID()) && plainText(id) {
			c.detail = "request " + id + " at the root"
		}
		serve(handler, w, r, c)
	}))
}

// rootUser is who a user of the root is here. A name that makes no sense, or none, is not taken over.
func rootUser(name string) *auth.Principal { return &auth.Principal{User: RootUser(name)} }

// RootUser is what a user of the root is called in the audit of a site.
func RootUser(name string) string {
	if name == "" || len(name) > maxRootUser || !plainText(name) {
		name = "?"
	}
	return rootUserPrefix + name
}

// plainText reports whether a text can stand in a line of a log or a table.
func plainText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// reaches reports whether a request of a user of the root is for an operation that a site may grant. Nothing else of the interface is there
// for them, a login and a registry no more than what a later version adds.
func reaches(h *Handler, r *http.Request) bool {
	_, pattern := h.mux.Handler(r)
	return h.granted[pattern] && path.Clean(r.URL.Path) == r.URL.Path // else it would be a redirect
}

// checkGrant reports what a site has not granted.
func checkGrant(h *Handler, ctx context.Context, o *operation) error {
	given, err := h.opt.Backend.Grants(ctx)
	if err != nil {
		return err
	}
	if o.Grant != "" && slices.ContainsFunc(given, func(g wire.Granted) bool { return g.Grant == o.Grant }) {
		return nil
	}
	return skerry.Errorf(skerry.CodeNotGranted, "it does not grant %q to the users of its root", o.Grant).
		WithHint("its operator grants that at the cluster: skerry cluster grant %s", o.Grant)
}

// addGrants adds what a site grants to the users of its root.
func addGrants(handler *Handler) {
	add(handler, operation{ID: "list-grants", Method: http.MethodGet, Path: "/v1/grants", Scope: auth.ScopeWorkersRead, Object: objSite,
		Tag: "grants", At: wire.TierCluster, Summary: "List what the users of the root may do at this site."},
		func(ctx context.Context, _ *auth.Principal, _ *none) (*listAnswer[wire.Granted], error) {
			list, err := handler.opt.Backend.Grants(ctx)
			return listOf(list), err
		})
	type grantIn struct {
		Grant string `path:"grant" maxLength:"63"`
	}
	addBare(handler, operation{ID: "give-grant", Method: http.MethodPut, Path: "/v1/grants/{grant}", Scope: auth.ScopeUsersAdmin,
		Object: objSite, Tag: "grants", At: wire.TierCluster, Summary: "Let the users of the root do something at this site.",
		Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *grantIn) (*none, error) {
			callOf(ctx).object = in.Grant
			return nil, handler.opt.Backend.SetGrant(ctx, wire.Grant(in.Grant), true, who.User)
		})
	addBare(handler, operation{ID: "revoke-grant", Method: http.MethodDelete, Path: "/v1/grants/{grant}", Scope: auth.ScopeUsersAdmin,
		Object: objSite, Tag: "grants", At: wire.TierCluster, Summary: "No longer let the users of the root do something at this site.",
		Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *grantIn) (*none, error) {
			callOf(ctx).object = in.Grant
			return nil, handler.opt.Backend.SetGrant(ctx, wire.Grant(in.Grant), false, who.User)
		})
}
