package cluster

import (
	"net/http"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/tier"
)

// An instance that is moved with its memory (migration: checkpoint) is a successor that starts from the first copy's state:
//
//	successor placed ─► prepared, tells a key ─► the first copy may leave (Leave) ─► its state is asked for: written, sealed for that key,
//	sent by way of the cluster ─► restored, ready ─► it is the instance; the first copy, which ended with the writing, goes
//	      any failure ─► the successor ends, Leave is taken back ─► the first copy goes on from what was written
//
// carryTime is how much longer than another such a successor may take.
const carryTime = 10 * time.Minute

// serveCheckpoint passes a worker's question for a state on. What comes back only the worker can read that has the key.
func (s *Server) serveCheckpoint(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.URL.Path, checkpointPath)
	worker, err := tier.View(r.Context(), s.Role, func(c *Core) (string, error) { return c.checkpoint(skerry.InstanceID(id)) })
	if r.Method != http.MethodGet {
		err = skerry.Errorf(skerry.CodeInvalid, "a state is asked for by GET")
	}
	s.Proxy(w, r, worker, "/instances/"+id+"/checkpoint", err)
}

const checkpointPath = "/checkpoint/"
