// Package oakestra serves as much of the REST API of Oakestra's System Manager as Oakestra's clients need: oak-cli, in Python and in Go.
//
//	oak-cli ─► Handler: Oakestra's request ─► requests to the REST interface, in this process ─► Oakestra's answer
//
// Everything is done by operations of package api, in the name and from the address of whoever sent the request: who may do it,
// what is audited, limits and admission are decided there. The package keeps nothing. Only what puts roles together imports it.
package oakestra

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Options set up a Handler. API is needed.
type Options struct {
	API http.Handler // the REST interface
	// Admin logs in as AdminName with the password AdminName, which is all that oak-cli in Python sends; nil: nobody does.
	Admin *Login
	// BodyWait is how long the body of a request may take to arrive; default 30 s, as in package api.
	BodyWait time.Duration
}

// Login is a user with the password.
type Login struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

// AdminName is the user that Oakestra begins with, and that user's password.
const AdminName = "Admin"

// Handler serves Oakestra's API. Its listener must bound headers and idle connections; bodies are bounded here.
type Handler struct {
	opt   Options
	mux   *http.ServeMux
	turns turns
}

// New makes a Handler.
func New(opt Options) *Handler {
	opt.BodyWait = cmp.Or(opt.BodyWait, 30*time.Second)
	handler := &Handler{opt: opt, mux: http.NewServeMux(), turns: turns{m: map[skerry.AppKey]*turn{}}}
	for route, answer := range map[string]func(*call) (any, error){
		"POST /api/auth/login":                       (*call).login,
		"POST /api/auth/refresh":                     (*call).refresh,
		"GET /api/applications":                      (*call).listApplications,
		"POST /api/application":                      (*call).createApplications,
		"GET /api/application/{id}":                  (*call).getApplication,
		"PUT /api/application/{id}":                  (*call).changeNothing,
		"DELETE /api/application/{id}":               (*call).deleteApplication,
		"GET /api/services":                          (*call).listServices,
		"GET /api/services/{id}":                     (*call).listServicesOf,
		"POST /api/service":                          (*call).addServices,
		"GET /api/service/{id}":                      (*call).getService,
		"PUT /api/service/{id}":                      (*call).changeNothing,
		"DELETE /api/service/{id}":                   (*call).deleteService,
		"POST /api/service/{id}/instance":            (*call).startInstance,
		"DELETE /api/service/{id}/instance/{number}": (*call).stopInstance,
		"GET /api/clusters":                          (*call).listClusters,
		"GET /api/clusters/active":                   (*call).listActiveClusters,
		"/":                                          (*call).unknown,
	} {
		serve := func(w http.ResponseWriter, r *http.Request) {
			out, err := answer(&call{handler, w, r})
			if err != nil {
				refuse(w, err)
				return
			}
			write(w, http.StatusOK, out)
		}
		handler.mux.HandleFunc(route, serve)
		if !strings.HasSuffix(route, "/") { // Oakestra's own clients send both
			handler.mux.HandleFunc(route+"/{$}", serve)
		}
	}
	return handler
}

// maxBody bounds an SLA, in bytes: it becomes manifests, which are bounded likewise.
const maxBody = spec.MaxManifest

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Cache-Control", "no-store")
	if r.ContentLength > maxBody {
		head.Set("Connection", "close") // the rest is not read
		refuse(w, tooLarge())
		return
	}
	if r.ContentLength != 0 {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.opt.BodyWait))
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	}
	h.mux.ServeHTTP(w, r)
}

func (c *call) unknown() (any, error) {
	return nil, skerry.Errorf(skerry.CodeNotFound, "there is no %.16s %.200s", c.r.Method, c.r.URL.Path).
		WithHint("of Oakestra's API only what oak-cli calls is served; Skerry's own API has the rest")
}

func (c *call) changeNothing() (any, error) {
	return nil, skerry.Errorf(skerry.CodeUnsupported, "an application or a service cannot be changed here").
		WithHint("`skerry edit app NAMESPACE/NAME` changes one")
}

// refusal is how Oakestra answers with an error: what clients show is the status, and the body as it is.
type refusal struct {
	Code    int                 `json:"code"`
	Status  string              `json:"status"`
	Message string              `json:"message"`
	Hint    string              `json:"hint,omitempty"`
	Errors  map[string][]string `json:"errors,omitempty"` // by field
}

func refuse(w http.ResponseWriter, err error) {
	problem := skerry.AsError(err)
	out := refusal{Code: problem.Code.HTTPStatus(), Message: problem.Message, Hint: problem.Hint}
	out.Status = http.StatusText(out.Code)
	for i, p := range problem.Problems {
		text := p.Message
		if p.Hint != "" {
			text += "; " + p.Hint
		}
		if out.Errors == nil {
			out.Errors = map[string][]string{}
		}
		out.Errors[p.Path] = append(out.Errors[p.Path], text)
		if i == 0 {
			out.Message += ": " + p.Path + ": " + text
		}
	}
	switch out.Code {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="skerry"`)
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	}
	write(w, out.Code, out)
}

func write(w http.ResponseWriter, status int, out any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(out)
}
