package network

import (
	"cmp"
	"encoding/json"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

const (
	// KeyIngress is the key of the record.
	KeyIngress = "ingress"
	// maxIngressProblems and maxIngressText bound what is kept of a worker's troubles, and maxWaiting how many services it can say that
	// something waits for.
	maxIngressProblems, maxIngressText = 500, 300
	maxWaiting                         = 1000
	maxAnswers                         = 100 // challenges of certificate authorities
)

// IngressWorker is a worker that lets clients in.
type IngressWorker struct {
	Worker    string
	Connected bool
	Addrs     []netip.Addr   // where clients come to; an unspecified one says nothing
	Networks  []netip.Prefix // that the worker is in
	// Unaware: its agent knows no aliases, and is told of no ways in to them.
	Unaware bool
	// Answers: its agent answers challenges of certificate authorities.
	Answers bool
}

// IngressSite is what Ingress must know of a site.
type IngressSite interface {
	// Asked gives the entries that an application asks for.
	Asked(app skerry.AppKey) []AppIngress
	// Admit gives the reason for which an organisation gets no entry, or "".
	Admit(org string) string
	// Open lists the workers that are in touch and let clients in, by name.
	Open() []IngressWorker
	// Ends gives the services whose instances a way in leads to.
	Ends(way *AppIngress) []skerry.ServiceKey
	// Ready reports whether a service has an instance to lead clients to, or gets one when they come.
	Ready(k skerry.ServiceKey) bool
}

// Ingress is which ways in a site offers, and to whom. Applications ask for entries (a port of the workers, a host, a path); each entry
// leads to one service, and the first that asked keeps it.
//
//	manifests --> asked --(admission, then who was first)--> granted: in the directories of workers with an ingress
//	                                                     \-> refused, with a reason
type Ingress struct {
	site    IngressSite
	record  ingressRecord
	asked   map[skerry.AppKey][]AppIngress
	refused map[skerry.AppKey]map[string]string // reasons, by entry
	states  map[string]*wire.IngressState       // what workers tell of theirs
	fresh   bool                                // nothing was looked at yet
}

type ingressRecord struct {
	// Authority signs the certificates of routes that have none of their own. It is good for nothing else.
	Authority *wire.IngressCertificate `json:"authority,omitempty"`
	AuthKey   []byte                   `json:"authorityKey,omitempty"`
	// Last and Orders say who came first: orders by application and entry.
	Last   uint64            `json:"last,omitempty"`
	Orders map[string]uint64 `json:"orders,omitempty"`
}

// IngressRecord gives a new value of the type that the record is read into.
func IngressRecord() any { return new(ingressRecord) }

// Refusal is an entry that an application does not get (any more).
type Refusal struct {
	*AppIngress
	Why string
}

// NewIngress makes a site without ways in.
func NewIngress(site IngressSite) *Ingress {
	return &Ingress{site: site, record: ingressRecord{Orders: map[string]uint64{}}, asked: map[skerry.AppKey][]AppIngress{},
		refused: map[skerry.AppKey]map[string]string{}, states: map[string]*wire.IngressState{}, fresh: true}
}

// Load takes the record.
func (g *Ingress) Load(value []byte) error {
	r := &g.record
	if err := json.Unmarshal(value, r); err != nil {
		return err
	}
	if r.Orders == nil {
		r.Orders = map[string]uint64{}
	}
	if r.Authority != nil {
		r.Authority.KeyPEM = r.AuthKey
	}
	return nil
}

// Start gives a site its authority if it has none, and gives the record, if that changed.
func (g *Ingress) Start(authority *wire.IngressCertificate) (record []byte) {
	if g.record.Authority != nil || authority == nil {
		return nil
	}
	g.record.Authority, g.record.AuthKey = authority, authority.KeyPEM
	return mustJSON(&g.record)
}

// Authority is the certificate by which clients know the ingresses of the site that have none of their own, or nil.
func (g *Ingress) Authority() *wire.IngressCertificate { return g.record.Authority }

// Fresh reports whether Settle has yet to look at all applications.
func (g *Ingress) Fresh() bool { return g.fresh }

// Apps lists the applications that ask for entries, in any order.
func (g *Ingress) Apps() iter.Seq[skerry.AppKey] { return maps.Keys(g.asked) }

// Tell takes what a worker says of its ingress; nil: nothing any more. It gives the services that something waits for there.
func (g *Ingress) Tell(worker string, st *wire.IngressState) (waiting []skerry.ServiceKey) {
	if st == nil {
		delete(g.states, worker)
		return nil
	}
	g.states[worker] = plausible(st)
	return g.states[worker].Waiting
}

// Tells reports whether a worker says anything of its ingress.
func (g *Ingress) Tells(worker string) bool { return g.states[worker] != nil }

// plausible gives what a worker tells with everything once, and troubles alone of what it serves: each worker counts for one
// in what is told of a way in, and only for itself.
func plausible(st *wire.IngressState) *wire.IngressState {
	out := new(wire.IngressState)
	serving := map[skerry.AppKey]bool{}
	for _, app := range st.Serving {
		if !serving[app] {
			serving[app] = true
			out.Serving = append(out.Serving, app)
		}
	}
	told := map[wire.IngressDoor]bool{}
	for _, p := range st.Problems {
		d := wire.IngressDoor{Service: p.Service, Entry: p.Entry}
		if told[d] || !serving[p.Service.App] || len(out.Problems) == maxIngressProblems {
			continue
		}
		told[d] = true
		if len(p.Text) > maxIngressText {
			p.Text = strings.ToValidUTF8(p.Text[:maxIngressText], "") + "..."
		}
		out.Problems = append(out.Problems, p)
	}
	for _, token := range st.Answers[:min(len(st.Answers), maxAnswers)] {
		if len(token) <= maxIngressText {
			out.Answers = append(out.Answers, token)
		}
	}
	for _, k := range st.Waiting[:min(len(st.Waiting), maxWaiting)] {
		if serving[k.App] {
			out.Waiting = append(out.Waiting, k)
		}
	}
	return out
}

func orderKey(app skerry.AppKey, entry string) string { return app.String() + " " + entry }

// Settle looks at the entries that some applications ask for, and works out who gets which, if that changed. It gives the record, if that
// changed, and the entries that are refused now and were not before, or for another reason. Directories lists the applications whose
// directories are to be published.
func (g *Ingress) Settle(look map[skerry.AppKey]bool) (record []byte, changed bool, refusals []Refusal, directories []skerry.AppKey) {
	g.fresh = false
	kept, saved := &g.record, true
	for _, app := range sortedApps(maps.Keys(look)) {
		list, was := g.site.Asked(app), g.asked[app]
		for i := range list {
			list[i].entry = list[i].Ingress.Entry()
			k := orderKey(app, list[i].entry)
			if kept.Orders[k] == 0 {
				kept.Last++
				kept.Orders[k], saved = kept.Last, false
			}
			list[i].order = kept.Orders[k]
		}
		for _, o := range was {
			if !slices.ContainsFunc(list, func(d AppIngress) bool { return d.entry == o.entry }) {
				delete(kept.Orders, orderKey(app, o.entry))
				saved = false
			}
		}
		if slices.Equal(list, was) {
			continue
		}
		changed = true
		if len(list) == 0 {
			delete(g.asked, app)
		} else {
			g.asked[app] = list
		}
	}
	if !saved {
		record = mustJSON(kept)
	}
	if !changed {
		return record, false, nil, nil
	}
	refused := g.judge()
	for _, app := range sortedApps(maps.Keys(g.asked)) {
		for _, entry := range slices.Sorted(maps.Keys(refused[app])) {
			if why := refused[app][entry]; g.refused[app][entry] != why {
				i := slices.IndexFunc(g.asked[app], func(d AppIngress) bool { return d.entry == entry })
				refusals = append(refusals, Refusal{&g.asked[app][i], why})
			}
		}
		if !maps.Equal(refused[app], g.refused[app]) {
			directories = append(directories, app)
		}
	}
	g.refused = refused
	return record, true, refusals, directories
}

func sortedApps(apps iter.Seq[skerry.AppKey]) []skerry.AppKey {
	return slices.SortedFunc(apps, func(a, b skerry.AppKey) int { return strings.Compare(a.String(), b.String()) })
}

// judge gives the reasons for which entries are refused. What belongs to other organisations is not named.
func (g *Ingress) judge() map[skerry.AppKey]map[string]string {
	var all []*AppIngress
	for _, list := range g.asked {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	slices.SortFunc(all, func(a, b *AppIngress) int { return cmp.Compare(a.order, b.order) })
	out := map[skerry.AppKey]map[string]string{}
	j := newEntryJudge()
	for _, d := range all {
		why := g.site.Admit(d.Org)
		if why == "" {
			why = j.take(d)
		}
		if why == "" {
			continue
		}
		if out[d.App] == nil {
			out[d.App] = map[string]string{}
		}
		out[d.App][d.entry] = why
	}
	return out
}

// Granted reports whether the site offers something of an application.
func (g *Ingress) Granted(app skerry.AppKey) bool { return len(g.asked[app]) > len(g.refused[app]) }

// Networks counts the applications that the site offers something of: an ingress has an address in the network of each.
func (g *Ingress) Networks() (n int) {
	for app := range g.asked {
		if g.Granted(app) {
			n++
		}
	}
	return n
}

// Offers reports whether an ingress leads to a service.
func (g *Ingress) Offers(k skerry.ServiceKey) bool {
	return slices.ContainsFunc(g.asked[k.App], func(d AppIngress) bool {
		_, no := g.refused[k.App][d.entry]
		return !no && slices.Contains(g.site.Ends(&d), k)
	})
}

// Offered lists the entries that the site offers, in any order, with a number that says who came first.
func (g *Ingress) Offered() iter.Seq2[*AppIngress, uint64] {
	return func(yield func(*AppIngress, uint64) bool) {
		for app, list := range g.asked {
			for i := range list {
				if _, no := g.refused[app][list[i].entry]; !no && !yield(&list[i], list[i].order) {
					return
				}
			}
		}
	}
}

// Leads reports whether the organisation of a way in is the first that offers names of its host, whatever the port: what the world
// reaches at ports 80 and 443 goes before what it reaches elsewhere, and then who came first. A public certificate is for all ports, and
// its proof is asked for at those two.
func (g *Ingress) Leads(way *AppIngress) bool {
	const none, elsewhere = ^uint64(0), uint64(1) << 63
	own, others := none, none
	for other, rank := range g.Offered() {
		if other.Host == "" || !overlap(other.Host, way.Host) {
			continue
		}
		if other.Listen != 0 && other.Listen != 80 && other.Listen != 443 {
			rank |= elsewhere
		}
		if other.Org == way.Org {
			own = min(own, rank)
		} else {
			others = min(others, rank)
		}
	}
	return own <= others
}

// answering lists the workers that could answer a challenge.
func (g *Ingress) answering() iter.Seq[*wire.IngressState] {
	return func(yield func(*wire.IngressState) bool) {
		for _, w := range g.site.Open() {
			if st := g.states[w.Worker]; w.Connected && w.Answers && st != nil && !yield(st) {
				return
			}
		}
	}
}

// CanAnswer reports whether a worker could answer a challenge.
func (g *Ingress) CanAnswer() bool {
	for range g.answering() {
		return true
	}
	return false
}

// Answers reports whether workers that could answer a challenge do: some of them, and all.
func (g *Ingress) Answers(token string) (some, all bool) {
	all = true
	for st := range g.answering() {
		does := slices.Contains(st.Answers, token)
		some, all = some || does, all && does
	}
	return some, some && all
}

// Directory gives the directory of an application as workers with an ingress get it, and as others do. certify gives the first one the
// certificates of hosts that a public authority vouches for.
func (g *Ingress) Directory(network *wire.AppNetwork, certify func(*wire.AppNetwork)) (withIngress, plain *wire.AppNetwork) {
	full, bare := *network, *network
	full.Services, bare.Services = slices.Clone(network.Services), slices.Clone(network.Services)
	full.Certificates = slices.Clone(network.Certificates)
	bare.Certificates, bare.Authority, full.Authority = nil, nil, nil
	bare.Challenges, full.Challenges = nil, nil
	refused := g.refused[network.App]
	for i := range full.Services {
		bare.Services[i].Ingress = nil
		full.Services[i].Ingress = slices.DeleteFunc(slices.Clone(network.Services[i].Ingress), func(in spec.Ingress) bool {
			_, no := refused[in.Entry()]
			return no
		})
	}
	certify(&full)
	for i := range full.Services {
		for _, in := range full.Services[i].Ingress {
			if in.TLS == spec.TLSSelf {
				full.Authority = g.record.Authority
			}
		}
	}
	return &full, &bare
}

// Audit reports contradictions in what is known of the ways in, against the workers that the site knows.
func (g *Ingress) Audit(known func(worker string) bool) (faults []string) {
	bad := func(text string) { faults = append(faults, text) }
	entries := map[string]bool{}
	for app, list := range g.asked {
		for i := range list {
			d := &list[i]
			k := orderKey(app, d.entry)
			entries[k] = true
			if d.App != app || d.order == 0 || d.order != g.record.Orders[k] || d.order > g.record.Last {
				bad(k + " is not in the order of those who came")
			}
		}
		if len(list) == 0 {
			bad(app.String() + " is listed, and asks for nothing")
		}
	}
	for app, list := range g.refused {
		for entry := range list {
			if !entries[orderKey(app, entry)] {
				bad(orderKey(app, entry) + " is refused, and nobody asks for it")
			}
		}
	}
	for worker := range g.states {
		if !known(worker) {
			bad(worker + " is gone, and tells of an ingress")
		}
	}
	return faults
}
