package ingress

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// recent remembers from where clients came, so that it can be measured how far they are.
type recent struct {
	mu sync.Mutex
	at map[netip.Addr]time.Time
}

const (
	// recentFor is how long a client is remembered after it came last.
	recentFor = 5 * time.Minute
	// maxRecent bounds those that are remembered; then the longest gone half is forgotten, more or less.
	maxRecent = 4096
)

func (r *recent) note(a net.Addr, now time.Time) {
	if a == nil {
		return
	}
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil {
		r.at = map[netip.Addr]time.Time{}
	}
	for keep := recentFor; len(r.at) >= maxRecent; keep /= 2 {
		for a, at := range r.at {
			if now.Sub(at) >= keep {
				delete(r.at, a)
			}
		}
	}
	r.at[p.Addr().Unmap().WithZone("")] = now
}

// ClientIn gives the client in a network that came last, in the last minutes.
func (in *Ingress) ClientIn(p netip.Prefix) (netip.Addr, bool) {
	r := &in.recent
	r.mu.Lock()
	defer r.mu.Unlock()
	var best netip.Addr
	var last time.Time
	for a, at := range r.at {
		if p.Contains(a) && at.After(last) && time.Since(at) < recentFor {
			best, last = a, at
		}
	}
	return best, best.IsValid()
}
