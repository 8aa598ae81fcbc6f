package cluster

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/decide/questions"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/overlay/resolver"
	"skerry.dev/skerry/spec"
)

const (
	// hostTTL is how long clients remember where a host name leads: one that moves is sent to a nearer ingress after it.
	hostTTL = 5 * time.Second
	// namesEvery is how often it is looked what there is to answer.
	namesEvery = 500 * time.Millisecond
	// distancesEvery is how often it is measured how far the clients that ask are, distancesFor how long after they asked.
	distancesEvery = 3 * time.Second
	distancesFor   = time.Minute
	// maxNetworks and maxEntries bound what is measured at once.
	maxNetworks = 32
	maxEntries  = 16
	// nearer is by what part another ingress must be nearer for clients to be sent there, so that they do not swing.
	nearer = 0.8
)

// nameServer is the site's name server for host names of services. Which ingress is near a network of clients is measured:
// those of the site's workers send echo requests to a client there that has an open way in, or had one lately. So nobody
// is measured for a question alone, whose sender may be forged. Until then the network that the client shares with a
// worker counts, else clients are spread evenly.
type nameServer struct {
	s         *Server
	authority *resolver.Authority
	serial    uint32

	mu    sync.Mutex
	asked map[netip.Prefix]time.Time
	far   map[netip.Prefix]map[string]float64 // milliseconds, by worker
	best  map[netip.Prefix]string
}

func newNameServer(s *Server) *nameServer {
	n := &nameServer{s: s, serial: uint32(time.Now().Unix()), asked: map[netip.Prefix]time.Time{},
		far: map[netip.Prefix]map[string]float64{}, best: map[netip.Prefix]string{}}
	n.authority = resolver.NewAuthority(resolver.AuthorityOptions{TTL: hostTTL, Rank: n.rank, Log: s.opt.Log})
	return n
}

// rank tells how far a network of clients is from a worker.
func (n *nameServer) rank(client netip.Prefix, _ string, p *resolver.Point) float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.asked[client]; known || len(n.asked) < 32*maxNetworks {
		n.asked[client] = time.Now()
	}
	ms, ok := n.far[client][p.ID]
	if !ok {
		return math.NaN()
	}
	if n.best[client] == p.ID {
		ms *= nearer
	}
	return ms
}

// run answers questions until ctx ends.
func (n *nameServer) run(ctx context.Context) error {
	pc, listener, err := n.s.opt.Names.Open()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = n.authority.ServeUDP(pc) })
	wg.Go(func() { _ = n.authority.ServeTCP(listener) })
	wg.Go(func() { n.measure(ctx) })
	defer wg.Wait()
	defer n.authority.Close()
	t := time.NewTicker(namesEvery)
	defer t.Stop()
	var told []network.HostEntries
	for first := true; ; first = false {
		hosts, err := tier.View(ctx, n.s.Role, func(c *core.Core) ([]network.HostEntries, error) { return c.Hosts(), nil })
		if err == nil && (first || !reflect.DeepEqual(hosts, told)) {
			told = hosts
			n.serial++
			n.authority.Set(zonesOf(n.serial, &n.s.opt.Names, hosts))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

// zonesOf makes the zones of what the site offers. All hosts are in the site's own zone, under their whole name, because
// the root leads there; those that are in a zone are also in that as they are.
func zonesOf(serial uint32, names *tier.NameOptions, hosts []network.HostEntries) resolver.AuthorityConfig {
	config := resolver.AuthorityConfig{Serial: serial}
	for i, zone := range names.Zones {
		d := resolver.Domain{Name: zone, Servers: []resolver.NameServer{{Name: "ns." + zone, Addrs: names.Addrs}}}
		led := map[string]bool{} // names to which the root leads
		for _, h := range hosts {
			if i == 0 {
				name := resolver.SiteName(h.Host, zone)
				plain := strings.TrimSuffix(name, ".")
				if led[plain] = strings.Contains(h.Host, "."); led[plain] || !hasHost(hosts, plain) {
					d.Hosts = append(d.Hosts, resolver.Host{Name: name, Points: pointsOf(h)})
				}
			}
		}
		for _, h := range hosts {
			// A host may be called as another one is in the site's zone, and be another organisation's. A root leads to no name of one
			// label: whoever asks for that one means this.
			if spec.HostWithin(h.Host, zone) && !led[h.Host] {
				d.Hosts = append(d.Hosts, resolver.Host{Name: h.Host, Points: pointsOf(h)})
			}
		}
		config.Domains = append(config.Domains, d)
	}
	return config
}

func hasHost(hosts []network.HostEntries, name string) bool {
	return slices.ContainsFunc(hosts, func(h network.HostEntries) bool { return h.Host == name })
}

func pointsOf(h network.HostEntries) (points []resolver.Point) {
	for _, e := range h.Entries {
		points = append(points, resolver.Point{ID: e.Worker, Addrs: e.Addrs, Near: e.Near, Healthy: e.Healthy})
	}
	return points
}

// measure finds out how far the networks are from which was asked.
func (n *nameServer) measure(ctx context.Context) {
	if n.s.opt.Admission.NoMeasuring {
		return
	}
	t := time.NewTicker(distancesEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			n.measureOnce(ctx)
		}
	}
}

// recently lists the networks from which was asked last, and forgets the others.
func (n *nameServer) recently(now time.Time) []netip.Prefix {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p, at := range n.asked {
		if now.Sub(at) > distancesFor {
			delete(n.asked, p)
			delete(n.far, p)
			delete(n.best, p)
		}
	}
	list := slices.SortedFunc(maps.Keys(n.asked), func(a, b netip.Prefix) int {
		return cmp.Or(n.asked[b].Compare(n.asked[a]), a.Addr().Compare(b.Addr()))
	})
	return list[:min(len(list), maxNetworks, spec.MaxUsers)]
}

func (n *nameServer) measureOnce(ctx context.Context) {
	networks := n.recently(time.Now())
	if len(networks) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, questions.MeasureTime)
	defer cancel()
	workers, err := tier.View(ctx, n.s.Role, func(c *core.Core) ([]string, error) { return c.IngressWorkers(maxEntries), nil })
	if err != nil {
		return
	}
	query := url.Values{}
	for _, p := range networks {
		query.Add("net", p.String())
	}
	var mu sync.Mutex
	clients := map[netip.Prefix]netip.Addr{}
	n.each(workers, func(w string) {
		var list []netip.Addr
		if n.get(ctx, w, "/clients?"+query.Encode(), &list) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, a := range list {
			for _, p := range networks {
				if p.Contains(a) {
					clients[p] = a
				}
			}
		}
	})
	targets := slices.SortedFunc(maps.Keys(clients), func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	if len(targets) == 0 {
		return
	}
	query = url.Values{}
	for _, p := range targets {
		query.Add("target", clients[p].String())
	}
	n.each(workers, func(w string) {
		var ms []float64
		if n.get(ctx, w, "/measure?"+query.Encode(), &ms) != nil || len(ms) != len(targets) {
			return
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		for i, p := range targets {
			if n.far[p] == nil {
				n.far[p] = map[string]float64{}
			}
			if delete(n.far[p], w); ms[i] > 0 {
				n.far[p][w] = ms[i]
			}
		}
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range targets {
		n.best[p] = nearestOf(n.far[p], n.best[p])
	}
}

// nearestOf gives the nearest worker; the one that was it before stays unless another one is clearly nearer.
func nearestOf(far map[string]float64, was string) string {
	best, least := "", math.Inf(1)
	for _, w := range slices.Sorted(maps.Keys(far)) {
		ms := far[w]
		if w == was {
			ms *= nearer
		}
		if ms < least {
			best, least = w, ms
		}
	}
	return best
}

// each asks all workers at the same time.
func (n *nameServer) each(workers []string, ask func(worker string)) {
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() { ask(w) })
	}
	wg.Wait()
}

// get asks a worker.
func (n *nameServer) get(ctx context.Context, worker, path string, out any) error {
	return n.s.askWorker(ctx, worker, path, 64<<10, out)
}
