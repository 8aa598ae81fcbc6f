package api

import (
	"context"
	"fmt"
	"net/http"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
)

// outside are logins at an identity provider.
type outside struct {
	*Handler
}

// provider gives them, if there are any.
func (h outside) provider() (*auth.OIDC, error) {
	if h.opt.OIDC == nil {
		return nil, skerry.Errorf(skerry.CodeUnsupported, "no identity provider is configured").
			WithHint("log in with a password; the operator of this root or cluster sets a provider up with --oidc")
	}
	return h.opt.OIDC, nil
}

// bindCookie keeps what binds a login to the browser that began it. It has to come along when the provider sends the browser back, which a
// session's cookie does not.
func (h outside) bindCookie(c *call, bind string) string {
	k := &http.Cookie{Name: h.cookieName() + "-oidc", Value: bind, Path: auth.OIDCCallback, HttpOnly: true, Secure: c.secure,
		SameSite: http.SameSiteLaxMode}
	if bind == "" {
		k.MaxAge = -1
	}
	return k.String()
}

type begunAnswer struct {
	SetCookie string `header:"Set-Cookie"`
	Body      auth.OIDCBegun
}

// addOIDC adds the operations of such logins.
func addOIDC(inner *Handler) {
	h := outside{inner}
	type beginOIDCIn struct {
		Body struct {
			Redirect string `json:"redirect,omitempty" maxLength:"100" doc:"http://127.0.0.1:PORT/callback of a command; without it, the dashboard."`
		}
	}
	addBare(inner, operation{ID: "begin-oidc", Method: http.MethodPost, Path: "/v1/auth/oidc", Scope: auth.ScopePublic, Object: objNone,
		Tag: "login", Summary: "Begin a login at the identity provider."},
		func(ctx context.Context, _ *auth.Principal, in *beginOIDCIn) (*begunAnswer, error) {
			o, err := h.provider()
			if err == nil && in.Body.Redirect == "" && callOf(ctx).foreign {
				err = foreignPage()
			}
			if err != nil {
				return nil, err
			}
			b, err := o.Begin(ctx, in.Body.Redirect)
			a := &begunAnswer{Body: b}
			if in.Body.Redirect == "" {
				a.SetCookie, a.Body.Bind = h.bindCookie(callOf(ctx), b.Bind), ""
			}
			return a, err
		})
	type endOIDCIn struct {
		Body struct {
			State string `json:"state" maxLength:"256" doc:"As the provider sent it back."`
			Code  string `json:"code" maxLength:"4096" doc:"As the provider sent it."`
			Bind  string `json:"bind" maxLength:"256" doc:"Of the beginning."`
		}
	}
	add(inner, operation{ID: "end-oidc", Method: http.MethodPost, Path: "/v1/auth/oidc/end", Scope: auth.ScopePublic, Object: objNone,
		Tag: "login", Summary: "End a login at the identity provider, with what it sent to a command.", Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *endOIDCIn) (*answer[auth.Tokens], error) {
			t, err := h.end(ctx, in.Body.State, in.Body.Code, in.Body.Bind)
			return &answer[auth.Tokens]{t}, err
		})
	h.raw(operation{ID: "oidc-callback", Method: http.MethodGet, Path: auth.OIDCCallback, Scope: auth.ScopePublic, Object: objNone,
		Tag: "login", Summary: "Where the identity provider sends a browser back to.", Type: "text/html", Audit: true,
		Also: map[string]string{"303": "The login has ended; the dashboard goes on with its session."}},
		"GET "+auth.OIDCCallback, http.HandlerFunc(h.serve))
}

func (h outside) end(ctx context.Context, state, code, bind string) (auth.Tokens, error) {
	c := callOf(ctx)
	c.guess = true
	o, err := h.provider()
	if err != nil {
		return auth.Tokens{}, err
	}
	t, err := o.End(ctx, state, code, bind, addressOf(ctx))
	if u, gone := h.opt.People.User(t.User); err == nil && gone == nil { // what the groups grant may be new
		c.object, c.detail = u.Name, fmt.Sprint(u.Grants)
	}
	return t, err
}

// serve ends a login of a browser, which then goes on with a session like any other.
func (h outside) serve(w http.ResponseWriter, r *http.Request) {
	call := callOf(r.Context())
	bind := ""
	if k, err := r.Cookie(h.cookieName() + "-oidc"); err == nil {
		bind = k.Value
	}
	w.Header().Add("Set-Cookie", h.bindCookie(call, ""))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	q := r.URL.Query()
	if q.Get("error") != "" {
		said := fmt.Sprintf("%.100q: %.300q", q.Get("error"), q.Get("error_description"))
		h.fail(w, r, skerry.Errorf(skerry.CodeUnauthorized, "the identity provider says %s", said).WithHint("begin again at "+dashboardPath))
		return
	}
	t, err := h.end(r.Context(), q.Get("state"), q.Get("code"), bind)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	w.Header().Add("Set-Cookie", h.sessionCookie(call, t.Refresh))
	http.Redirect(w, r, dashboardPath, http.StatusSeeOther)
}
