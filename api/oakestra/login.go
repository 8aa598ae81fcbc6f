package oakestra

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
)

// tokens are what a login gives.
type tokens struct {
	Token   string `json:"token"`
	Refresh string `json:"refresh_token,omitempty"`
}

// login begins a session, as the REST interface does: with its limits against guessing, and in its audit.
func (c *call) login() (any, error) {
	var in struct {
		User         string `json:"username"`
		Password     string `json:"password"`
		Organization string `json:"organization_name"`
	}
	data, err := c.body()
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "username and password are needed, as texts")
	}
	if in.Organization != "" {
		return nil, skerry.Errorf(skerry.CodeInvalid, "organization_name: users belong to no organisation").
			WithHint("leave it out: grants say what a user may do in which organisation")
	}
	as := Login{in.User, in.Password}
	if admin := c.h.opt.Admin; admin != nil && as == (Login{AdminName, AdminName}) && !fromPage(c.r) {
		as = *admin
	}
	t, err := send[auth.Tokens](c, http.MethodPost, "/v1/auth/login", as)
	return tokens{t.Access, t.Refresh}, err
}

// fromPage reports whether a browser may have sent a request: the password that everybody knows is for programs on this machine, and not
// for pages that have a browser here send it. One under a name of its own, that leads to this machine, does not name the page's origin.
func fromPage(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	here := err == nil && (addr.IsLoopback() || addr.IsUnspecified()) || host == "localhost"
	return !here || r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
}

// refresh exchanges a refresh token, which comes in place of an access token. Unlike Oakestra's each works once, and the next comes along.
func (c *call) refresh() (any, error) {
	kind, token, _ := strings.Cut(c.r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") || token == "" || len(token) > 256 {
		return nil, skerry.Errorf(skerry.CodeUnauthorized, "a refresh token is needed").WithHint("send it as Authorization: Bearer")
	}
	t, err := send[auth.Tokens](c, http.MethodPost, "/v1/auth/refresh", map[string]string{"refresh": token})
	return tokens{t.Access, t.Refresh}, err
}
