package api

import (
	"net/http"
	"strings"

	"skerry.dev/skerry"
)

// A browser keeps its refresh token in a cookie that scripts cannot read, and its access token in the memory of the page.
// The cookie goes to the routes of login alone, and never comes along from another site's page.

const cookiePath = "/v1/auth"

// cookieName is one per server: several of one host, such as root and cluster of `skerry up`, share their cookies.
func (h *Handler) cookieName() string {
	return "skerry-" + string(h.opt.Backend.Tier()) + "-" + h.opt.Backend.Name()
}

// sessionCookie keeps a refresh token, or takes the cookie back if it is empty.
func (h *Handler) sessionCookie(c *call, refresh string) string {
	k := &http.Cookie{Name: h.cookieName(), Value: refresh, Path: cookiePath, HttpOnly: true, Secure: c.secure,
		SameSite: http.SameSiteStrictMode}
	if refresh == "" {
		k.MaxAge = -1
	}
	return k.String()
}

// foreignOrigin reports whether a browser says that a page of another origin sent a request. To a browser a service at
// another port of the same host is the same site, so that cookies come along; a proxy may change the names of hosts,
// but not this.
func foreignOrigin(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "same-origin" && site != "none"
}

func foreignPage() error {
	return skerry.Errorf(skerry.CodeForbidden, "a page of another origin may neither begin nor renew a browser's session here").
		WithHint("open the dashboard at this server's own address")
}

// refreshOf gives the refresh token of a request: of its body, or of its cookie.
func (h *Handler) refreshOf(body, cookies string) (refresh string, cookie bool, err error) {
	if body != "" {
		return body, false, nil
	}
	list, _ := http.ParseCookie(cookies)
	for _, k := range list {
		if k.Name == h.cookieName() && strings.TrimSpace(k.Value) != "" && len(k.Value) <= 256 {
			return k.Value, true, nil
		}
	}
	return "", false, skerry.Errorf(skerry.CodeInvalid, "no refresh token in the body or a cookie").WithHint("log in")
}
