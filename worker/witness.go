//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// longestWitness bounds how long a witness tries.
const longestWitness = time.Minute

// serveReach answers whether this worker reaches another one: GET /reach?target=HOST:PORT&peer=NUMBER&wait=DURATION
// gives true or false. It is asked for a round trip at target, and for a sign of life by the overlay, which gets
// through where its address does not; either may be missing.
func (q requests) serveReach(w http.ResponseWriter, r *http.Request) error {
	var target netip.AddrPort
	if text := r.FormValue("target"); text != "" {
		var err error
		if target, err = netip.ParseAddrPort(text); err != nil || !target.Addr().IsValid() || target.Addr().IsUnspecified() ||
			target.Addr().IsMulticast() {
			return skerry.Errorf(skerry.CodeInvalid, "%q is not the address of a worker", text)
		}
	}
	var peer uint64
	if text := r.FormValue("peer"); text != "" {
		var err error
		if peer, err = strconv.ParseUint(text, 10, 32); err != nil {
			return skerry.Errorf(skerry.CodeInvalid, "%q is not the number of a worker", text)
		}
	}
	wait, err := time.ParseDuration(r.FormValue("wait"))
	if err != nil || wait <= 0 || wait > longestWitness {
		return skerry.Errorf(skerry.CodeInvalid, "%q is not a time from 0 to %s", r.FormValue("wait"), longestWitness)
	}
	q.mu.Lock()
	m := q.rtt
	q.mu.Unlock()
	tries := []func(ctx context.Context) bool{}
	if m != nil && target.IsValid() {
		tries = append(tries, func(ctx context.Context) bool { return m.Reach(ctx, target, wait) })
	}
	if q.overlayNet != nil && q.overlayNet.Tunnel != nil && peer != 0 {
		tries = append(tries, func(ctx context.Context) bool { return q.overlayNet.hears(ctx, wire.PeerID(peer), wait) })
	}
	if len(tries) == 0 {
		return skerry.Errorf(skerry.CodeUnsupported, "this worker has no way to ask: it measures no round trips to addresses, and is no peer of it in the overlay")
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(oneOf(r.Context(), tries))
}

// oneOf reports whether one of several tries succeeds, and ends the others then.
func oneOf(ctx context.Context, tries []func(ctx context.Context) bool) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan bool, len(tries))
	for _, try := range tries {
		go func() { answers <- try(ctx) }()
	}
	reached := false
	for range tries {
		if <-answers {
			reached = true
			cancel()
		}
	}
	return reached
}

// hearTries is how often a sign of life is looked for within the time given.
const hearTries = 16

// hears reports whether a peer gives a sign of life by the overlay within a time.
func (f *overlayNet) hears(ctx context.Context, peer wire.PeerID, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	began := time.Now()
	t := time.NewTicker(max(wait/hearTries, time.Millisecond))
	defer t.Stop()
	for {
		since := time.Since(began) // however long the answer takes
		ago, ok, err := f.Tunnel.Ping(ctx, peer)
		if err != nil {
			return false
		}
		if ok && ago < since {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
	}
}
