package ingress

import (
	"net/netip"
	"slices"
	"sync"
)

// shares shares a number of things out among those who take them. Whoever has more than a few takes another only while half of all are
// free: neither one client nor one organisation keeps the others out, and in quiet times each may have half.
type shares struct {
	most int // of all

	mu      sync.Mutex
	taken   int
	by      map[holder]int
	refused int64
}

// holder is a client or an organisation. The empty one has no share of its own: many stand behind it.
type holder string

// few are what each may have until there are no more.
func (all *shares) few() int { return max(1, all.most/40) }

// take takes one for several holders at once; what it gives gives that back, once.
func (all *shares) take(of ...holder) (give func(), ok bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	of = slices.DeleteFunc(of, func(h holder) bool { return h == "" })
	if all.taken >= all.most || all.taken >= all.most/2 && slices.ContainsFunc(of, func(h holder) bool { return all.by[h] >= all.few() }) {
		all.refused++
		return nil, false
	}
	if all.by == nil {
		all.by = map[holder]int{}
	}
	count := func(by int) {
		all.taken += by
		for _, h := range of {
			if all.by[h] += by; all.by[h] == 0 {
				delete(all.by, h)
			}
		}
	}
	count(1)
	return sync.OnceFunc(func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		count(-1)
	}), true
}

// counts gives how many are taken, and how many were refused.
func (all *shares) counts() (taken int, refused int64) {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.taken, all.refused
}

// lead takes the share of a request, or of a TCP connection, that is to be led to a service.
func (in *Ingress) lead(rt *route, client string, trusted []netip.Prefix) (give func(), ok bool) {
	return in.led.take(clientOf(client, trusted), holder("owner "+rt.Owner))
}

// clientOf is who connects: an address of IPv4, or a network of IPv6 from which one machine may choose any. A trusted proxy connects for
// many.
func clientOf(addr string, trusted []netip.Prefix) holder {
	p, err := netip.ParseAddrPort(addr)
	if err != nil {
		return ""
	}
	ip := p.Addr().Unmap().WithZone("")
	if slices.ContainsFunc(trusted, func(t netip.Prefix) bool { return t.Contains(ip) }) {
		return ""
	}
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		return ""
	}
	return holder("client " + network.String())
}
