//go:build linux

package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/hostnet"
	"skerry.dev/skerry/overlay/ingress"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// IngressOptions say how a worker lets clients outside in.
type IngressOptions struct {
	// Listen are the addresses of this host that clients come to; none: all.
	Listen []netip.Addr
	// Public are the addresses that are told to clients, where they differ from those.
	Public []netip.Addr
}

const (
	// ingressEvery is how often what could not be offered is tried again.
	ingressEvery = 5 * time.Second
	// ingressEnd is how long requests may take to end when the agent does.
	ingressEnd = time.Second
)

// workerIngress is a worker's ingress. For each application whose clients it lets in it has an attachment of its own in that
// application's network, with nothing running in it: connections to services are made from there, and are subject to
// all that holds for instances.
type workerIngress struct {
	opt        IngressOptions
	overlayNet *overlayNet
	net        *attachments
	in         *ingress.Ingress
	log        *slog.Logger
	changed    chan struct{} // capacity 1

	// Of run alone.
	offered  ingress.Config
	problems map[entryAt]string // of offered
	told     *wire.IngressState
	ends     map[string]string // where routes of a service lead, by name
}

// entryAt is a way in to a service.
type entryAt struct {
	service skerry.ServiceKey
	entry   string
}

func newWorkerIngress(o IngressOptions, f *overlayNet, n *attachments, log *slog.Logger) (*workerIngress, error) {
	e := &workerIngress{opt: o, overlayNet: f, net: n, log: log, changed: make(chan struct{}, 1), ends: map[string]string{}}
	var err error
	e.in, err = ingress.New(ingress.Options{Log: log, Dial: e.dial, Waits: e.nudge, DialTimeout: 3 * time.Second,
		Listen: func(ctx context.Context, a netip.AddrPort) (net.Listener, error) {
			host := a.Addr().String()
			if a.Addr().IsUnspecified() {
				host = "" // by IPv6 too, where there is any
			}
			return f.sockets.tcp(ctx, a, func() (net.Listener, error) {
				return (&net.ListenConfig{Control: hostnet.OpenToInstances}).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(a.Port()))))
			})
		}})
	return e, err
}

// openIngress makes the ingress of one life; nil where the worker has none. Nothing is offered yet.
func (s *Server) openIngress() (*workerIngress, error) {
	if s.overlayNet == nil || s.overlayNet.Ingress == nil {
		return nil, nil
	}
	e, err := newWorkerIngress(*s.overlayNet.Ingress, s.overlayNet, s.net, s.opt.Log)
	if err != nil {
		return nil, err
	}
	s.net.mu.Lock()
	s.net.ingresses = s.overlayNet.ingresses() // those of an earlier life are kept
	s.net.mu.Unlock()
	s.workerIngress.Store(e)
	return e, nil
}

func (e *workerIngress) nudge() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// addresses are those that clients come to, as far as known.
func (o *IngressOptions) addresses(host string) []netip.Addr {
	if len(o.Public) > 0 {
		return o.Public
	}
	var out []netip.Addr
	for _, a := range o.Listen {
		if !a.IsUnspecified() {
			out = append(out, a)
		}
	}
	if len(out) > 0 {
		return out
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		a = netip.IPv4Unspecified()
	}
	return []netip.Addr{a}
}

// ingressID is the id of the attachment in an application's network. No instance's id has a dot.
func ingressID(net wire.NetworkID) skerry.InstanceID {
	return skerry.InstanceID(fmt.Sprintf("ingress.%d", net))
}

// ingresses are the attachments that are needed, by id.
func (f *overlayNet) ingresses() map[skerry.InstanceID]skerry.AppKey {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ingressesLocked()
}

func (f *overlayNet) ingressesLocked() map[skerry.InstanceID]skerry.AppKey {
	out := map[skerry.InstanceID]skerry.AppKey{}
	for app, n := range f.nets {
		if slices.ContainsFunc(n.Services, func(s wire.NetworkService) bool { return len(s.Ingress) > 0 }) {
			out[ingressID(n.Net)] = app
		}
	}
	return out
}

// run keeps the ingress as it is to be, until ctx ends.
func (e *workerIngress) run(ctx context.Context) {
	defer func() {
		end, cancel := context.WithTimeout(context.Background(), ingressEnd)
		defer cancel()
		_ = e.in.Shutdown(end)
	}()
	t := time.NewTicker(ingressEvery)
	defer t.Stop()
	for {
		e.review(ctx)
		select {
		case <-ctx.Done():
			return
		case <-e.changed:
		case <-t.C:
		}
	}
}

// review brings attachments and listeners in line with what the cluster said.
func (e *workerIngress) review(ctx context.Context) {
	if err := e.net.setIngresses(ctx, e.overlayNet.ingresses()); err != nil && ctx.Err() == nil {
		e.log.Warn("join the ingress to networks of applications", "err", err)
	}
	want := e.config()
	if !reflect.DeepEqual(want.Config, e.offered) || len(e.problems) > 0 {
		err := e.in.Set(ctx, want.Config)
		e.offered, e.problems = want.Config, want.blame(err)
		if err != nil && ctx.Err() == nil {
			e.log.Debug("offer services to clients outside", "err", err)
		}
		// Before all that was offered is offered again, what an earlier agent left may still be of use.
		e.overlayNet.sockets.release(ctx, want.whole, want.useless)
	}
	for name, ends := range want.ends {
		if old, ok := e.ends[name]; ok && old != ends {
			e.in.Refresh(name)
		}
	}
	e.ends = want.ends
	maps.Copy(want.problems, e.problems)
	st := wire.IngressState{Answers: e.in.Answers()}
	for app := range want.serving {
		st.Serving = append(st.Serving, app)
	}
	slices.SortFunc(st.Serving, func(a, b skerry.AppKey) int { return strings.Compare(a.String(), b.String()) })
	for d, text := range want.problems {
		st.Problems = append(st.Problems, wire.IngressProblem{Service: d.service, Entry: d.entry, Text: text})
	}
	slices.SortFunc(st.Problems, func(a, b wire.IngressProblem) int {
		return cmp.Or(strings.Compare(a.Service.String(), b.Service.String()), strings.Compare(a.Entry, b.Entry))
	})
	if len(st.Problems) > maxIngressProblems {
		st.Problems = st.Problems[:maxIngressProblems]
	}
	for _, name := range e.in.Waiting() {
		if k, ok := skerry.ParseServiceKey(name); ok {
			st.Waiting = append(st.Waiting, k)
		}
	}
	if e.told == nil || !reflect.DeepEqual(*e.told, st) {
		e.told = &st
		for _, p := range st.Problems {
			e.log.Warn("a way in is not offered", "service", p.Service.String(), "door", p.Entry, "err", p.Text)
		}
		e.overlayNet.post(core.IngressOffered{State: st})
	}
}

// maxIngressProblems bounds what the cluster is told.
const maxIngressProblems = 500

func noCertificate(name spec.IngressTLS) string {
	return fmt.Sprintf("certificate %q did not come with the application: `skerry certificate put` brings one, and those of one "+
		"application may have 256 KiB in all", string(name))
}

// maxHold is for how long clients wait for a service that sleeps: a small machine may have to fetch an image.
const maxHold = time.Minute

func holdFor(s *wire.NetworkService) time.Duration {
	if s.Sleeps {
		return maxHold
	}
	return 0
}

// offer is what is to be offered.
type offer struct {
	ingress.Config
	serving  map[skerry.AppKey]bool
	problems map[entryAt]string
	ports    map[int][]entryAt
	routes   map[string]entryAt // by what errors of ingress call them
	ends     map[string]string
	whole    bool // all that is wanted of this worker can be offered
}

// useless reports whether nothing is offered at a socket of this worker, and no names are answered there.
func (o *offer) useless(key string) bool {
	if !strings.HasPrefix(key, "2 tcp ") || strings.HasSuffix(key, ":53") {
		return false
	}
	return !slices.ContainsFunc(o.Listeners, func(l ingress.Listener) bool {
		return tcpKey(l.Addr,
			func(k string) bool { return k == key }) == key
	})
}

// config works out what is to be offered, and keeps its ports from instances.
func (e *workerIngress) config() *offer {
	o := e.offers(e.net.hostPorts(), e.net.ingressesHave())
	if o.ports != nil {
		e.net.reserve(slices.Collect(maps.Keys(o.ports)))
	}
	return o
}

// offers works it out from the host ports that instances have, and the addresses of the ingresses. Of the overlay network's lock and that
// of the attachments neither is taken under the other.
func (e *workerIngress) offers(taken map[int]skerry.InstanceID, have map[skerry.InstanceID]wire.Attachment) *offer {
	net := e.overlayNet
	net.mu.Lock()
	defer net.mu.Unlock()
	o := &offer{serving: map[skerry.AppKey]bool{}, problems: map[entryAt]string{}, routes: map[string]entryAt{}, ends: map[string]string{}}
	if net.node == nil {
		return o
	}
	o.ports = map[int][]entryAt{}
	listeners := map[int]*ingress.Listener{}
	for _, app := range slices.SortedFunc(maps.Keys(net.nets),
		func(a, b skerry.AppKey) int { return strings.Compare(a.String(), b.String()) }) {
		n := net.nets[app]
		at, ok := have[ingressID(n.Net)]
		if !ok || !net.ofBlocksLocked(at) {
			continue
		}
		o.serving[app] = true
		for _, c := range n.Certificates {
			o.Certificates = append(o.Certificates, ingress.Certificate{Name: n.Org + "/" + c.Name, CertPEM: c.CertPEM, KeyPEM: c.KeyPEM})
		}
		if n.Authority != nil && o.Authority == nil {
			o.Authority = &ingress.Certificate{CertPEM: n.Authority.CertPEM, KeyPEM: n.Authority.KeyPEM}
		}
		for _, c := range n.Challenges {
			o.Challenges = append(o.Challenges, ingress.Challenge(c))
		}
		for i := range n.Services {
			s := &n.Services[i]
			service := n.Real(s)
			for _, way := range s.Ingress {
				d := entryAt{service, way.Entry()}
				if id, is := taken[way.Listen]; is {
					o.problems[d] = fmt.Sprintf("port %d of the worker is a host port of instance %s; use another port for one of them", way.Listen, id)
					continue
				}
				r := ingress.Route{Hold: holdFor(s), Name: service.String(), Owner: cmp.Or(n.Org, app.Namespace), Host: way.Host, Path: way.Path,
					TLS: way.TLS, Net: n.Net, Fresh: way.Policy == spec.BalanceRoundRobin, ProxyProtocol: way.ProxyProtocol}
				if way.TLS.Named() {
					if !slices.ContainsFunc(n.Certificates, func(c wire.IngressCertificate) bool { return c.Name == string(way.TLS) }) {
						o.problems[d] = noCertificate(way.TLS)
						continue
					}
					r.TLS = spec.IngressTLS(n.Org + "/" + string(way.TLS))
				}
				to, port := n.EnteredBy(s, &way)
				if addr := to.Address(way.Policy); addr.IsValid() && port > 0 && net.leadsLocked(n.Ends(to), way.Policy, s.Sleeps) {
					r.Targets = []netip.AddrPort{netip.AddrPortFrom(addr, uint16(port))}
				}
				if listeners[way.Listen] == nil {
					listeners[way.Listen] = &ingress.Listener{Protocol: way.Protocol}
				}
				listeners[way.Listen].Routes = append(listeners[way.Listen].Routes, r)
				o.ports[way.Listen] = append(o.ports[way.Listen], d)
				o.routes[fmt.Sprintf("route %s%s of %s on ", r.Host, r.Path, r.Name)] = d
				o.ends[r.Name] += net.endsLocked(n.Ends(to)) + "\n" // its ways in may lead to it alone, and to aliases
			}
		}
	}
	o.whole = len(o.serving) == len(net.ingressesLocked())
	hosts := e.opt.Listen
	if len(hosts) == 0 {
		hosts = []netip.Addr{netip.IPv4Unspecified()}
	}
	for _, port := range slices.Sorted(maps.Keys(listeners)) {
		for _, h := range hosts {
			l := *listeners[port]
			l.Addr = netip.AddrPortFrom(h, uint16(port))
			o.Listeners = append(o.Listeners, l)
		}
	}
	return o
}

// leadsLocked reports whether clients can be led to a service: it has an instance, or its routes are yet to come. Those of one that sleeps
// wait for an instance that is ready; while one only starts, its address refuses them.
func (f *overlayNet) leadsLocked(services []skerry.ServiceKey, p spec.Balance, sleeps bool) bool {
	var four []overlay.Candidate
	for _, k := range services {
		r := f.routes[k]
		if r == nil {
			return !sleeps
		}
		of, _ := f.candidatesLocked(r)
		four = append(four, of...)
	}
	if sleeps {
		four = slices.DeleteFunc(four, func(c overlay.Candidate) bool { return c.Draining })
	}
	return len(overlay.Slots(p, 0, four)) > 0
}

// endsLocked is different when the instances of services are.
func (net *overlayNet) endsLocked(services []skerry.ServiceKey) string {
	var out strings.Builder
	var four []overlay.Candidate
	for _, k := range services {
		r := net.routes[k]
		if r == nil {
			continue
		}
		for _, b := range r.Backends {
			_, dead := net.dead[b.Addr]
			fmt.Fprint(&out, b.Addr, b.Draining, dead, " ")
		}
		of, _ := net.candidatesLocked(r)
		four = append(four, of...)
	}
	// With closest it matters which one is nearest.
	for _, s := range overlay.Slots(spec.BalanceClosest, 0, four) {
		fmt.Fprint(&out, s.Addr, " ")
	}
	return out.String()
}

// blame finds out whose ways in an error of Set concerns.
func (o *offer) blame(err error) map[entryAt]string {
	out := map[entryAt]string{}
	var each func(err error)
	each = func(err error) {
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range many.Unwrap() {
				each(e)
			}
			return
		}
		text := err.Error()
		for prefix, d := range o.routes {
			if rest, ok := strings.CutPrefix(text, prefix); ok {
				_, out[d], _ = strings.Cut(rest, ": ")
			}
		}
		for port, entries := range o.ports {
			if strings.HasPrefix(text, "listen on ") && strings.Contains(text, fmt.Sprintf(":%d: ", port)) {
				for _, d := range entries {
					out[d] = text
				}
			}
		}
	}
	if err != nil {
		each(err)
	}
	return out
}

// dial connects to a service address from within an application's network.
func (e *workerIngress) dial(ctx context.Context, network wire.NetworkID, to netip.AddrPort) (net.Conn, error) {
	at, ok := e.net.ingressesHave()[ingressID(network)]
	if !ok {
		return nil, errors.New("the ingress is not in the network of the application")
	}
	return dialIn(ctx, at.NetNS, to)
}

// serveClients answers with the addresses of clients of the ingress that are in a network.
func (q requests) serveClients(w http.ResponseWriter, r *http.Request) error {
	out := []netip.Addr{}
	if e := q.workerIngress.Load(); e != nil {
		for _, text := range r.URL.Query()["net"] {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return skerry.Errorf(skerry.CodeInvalid, "network %q: %s", text, err)
			}
			if a, ok := e.in.ClientIn(p); ok {
				out = append(out, a)
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(out)
}
