// Package relay forwards sealed datagrams between workers that cannot reach each other, and tells each worker its address
// as others see it, so that most of them soon can. The cluster orchestrator runs a Server. It knows which workers there are
// and a key of each, nothing of what they send: that is sealed from end to end. It never holds more than a bounded amount
// of memory, never answers who has no key, and forwards no faster than it is allowed to.
package relay

import "errors"

// Stats are counters since the Server began.
type Stats struct {
	Registered int              `json:"registered"` // workers, now
	Streams    int              `json:"streams"`    // TLS connections, now
	Counters   map[string]int64 `json:"counters"`   // those that begin with "drop-" are of what was dropped
}

var errStream = errors.New("malformed frame")
