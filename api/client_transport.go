package api

import (
	"net/http"

	"skerry.dev/skerry"
)

// Transport carries requests of other protocols to the server with the user's login: what the built-in registry below
// /v2/ needs, as artifact.Source.Transport with the server as BaseURL. The login goes to the server and nowhere else,
// wherever an answer may lead.
func (c *Client) Transport() http.RoundTripper { return signing{c} }

type signing struct{ c *Client }

// RoundTrip implements http.RoundTripper. A request whose body cannot be read twice is not tried again when a login has
// just ended.
func (t signing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != t.c.base.Host || r.URL.Scheme != t.c.base.Scheme {
		return nil, skerry.Errorf(skerry.CodeInvalid, "%s is not the server %s", r.URL.Host, t.c.base.Host)
	}
	refused := ""
	for try := 0; ; try++ {
		q := r.Clone(r.Context())
		if try > 0 && r.GetBody != nil {
			body, err := r.GetBody()
			if err != nil {
				return nil, err
			}
			q.Body = body
		}
		token, err := t.c.sign(r.Context(), q, refused)
		if err != nil {
			if r.Body != nil {
				r.Body.Close()
			}
			return nil, err
		}
		if t.c.opt.Agent != "" {
			q.Header.Set("User-Agent", t.c.opt.Agent)
		}
		res, err := t.c.http.Transport.RoundTrip(q)
		if err != nil || res.StatusCode != http.StatusUnauthorized || try > 0 || t.c.opt.Bearer != "" ||
			r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
			return res, err
		}
		res.Body.Close()
		refused = token
	}
}
