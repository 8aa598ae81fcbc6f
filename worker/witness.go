//go:build linux

package worker

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"time"

	"skerry.dev/skerry"
)

// longestWitness bounds how long a witness tries.
const longestWitness = time.Minute

// serveReach answers whether this worker reaches another one: GET /reach?target=HOST:PORT&wait=DURATION gives true or false.
func (s *Server) serveReach(w http.ResponseWriter, r *http.Request) error {
	target, err := netip.ParseAddrPort(r.FormValue("target"))
	if err != nil || !target.Addr().IsValid() || target.Addr().IsUnspecified() || target.Addr().IsMulticast() {
		return skerry.Errorf(skerry.CodeInvalid, "%q is not the address of a worker", r.FormValue("target"))
	}
	wait, err := time.ParseDuration(r.FormValue("wait"))
	if err != nil || wait <= 0 || wait > longestWitness {
		return skerry.Errorf(skerry.CodeInvalid, "%q is not a time from 0 to %s", r.FormValue("wait"), longestWitness)
	}
	s.mu.Lock()
	m := s.rtt
	s.mu.Unlock()
	if m == nil {
		return skerry.Errorf(skerry.CodeUnsupported, "this worker measures no round trips")
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(m.reach(r.Context(), target, wait))
}
