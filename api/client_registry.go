package api

import (
	"net/http"
)

// Transport carries requests of other protocols to the server, with the user's login: what the built-in registry below
// /v2/ needs. A request whose body cannot be read twice is not tried again when a login has just ended.
func (c *Client) Transport() http.RoundTripper { return signing{c} }

type signing struct{ c *Client }

func (s signing) RoundTrip(r *http.Request) (*http.Response, error) {
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
		token, err := s.c.sign(r.Context(), q, refused)
		if err != nil {
			if r.Body != nil {
				r.Body.Close()
			}
			return nil, err
		}
		if s.c.opt.Agent != "" {
			q.Header.Set("User-Agent", s.c.opt.Agent)
		}
		res, err := s.c.http.Transport.RoundTrip(q)
		if err != nil || res.StatusCode != http.StatusUnauthorized || try > 0 || s.c.opt.Bearer != "" || r.Body != nil && r.GetBody == nil {
			return res, err
		}
		res.Body.Close()
		refused = token
	}
}
