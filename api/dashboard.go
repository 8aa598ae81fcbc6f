package api

import (
	"net/http"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/web"
)

const dashboardPath = "/ui/"

// addDashboard serves the pages, which then speak this interface as any client does.
func (h *Handler) addDashboard() {
	h.raw(operation{ID: "dashboard", Method: http.MethodGet, Path: dashboardPath, Scope: auth.ScopePublic, Object: objNone, Tag: "dashboard",
		Type: "text/html", Summary: "Serve the dashboard's pages and files below this path."}, "GET "+dashboardPath, web.Handler(dashboardPath))
	h.raw(operation{ID: "home", Method: http.MethodGet, Path: "/", Scope: auth.ScopePublic, Object: objNone, Tag: "dashboard",
		Type: "text/html", Summary: "Redirect to the dashboard.", Also: map[string]string{"303": "To the dashboard."}},
		"GET /{$}", http.RedirectHandler(dashboardPath, http.StatusSeeOther))
}
