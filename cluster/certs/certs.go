// Package certs decides which hosts of a site's ingresses get a certificate from a public authority, when it is ordered and renewed, and by
// which challenge the site proves that the host is its own. It owns the certificates and what became of each order. It speaks to nobody:
// the cluster's core, which alone imports it, has orders carried out by its server, and gives workers what they are to serve. It is
// pure: no clock, no disk, no socket.
//
//	manifests ─► Want ─► refused, with a reason
//	               └─► due ─(limits)─► Order ─► Challenge at the workers ─► Done: a certificate
//	                                                                          └─► failed: again, later each time
package certs

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

const (
	// Prefix begins the keys of the records of hosts, and KeyAccount is that of the account at the authority.
	Prefix     = "acme/"
	KeyAccount = "acmeaccount"
	// atOnce bounds the orders under way, and orgAtOnce those of one organisation: an order whose challenge nobody answers takes minutes,
	// and others must not wait for it.
	atOnce, orgAtOnce = 4, 2
	// window is what the limits on orders count in.
	window = time.Hour
	// keepUnwanted is for how long the certificate of a host is kept that no application has any more: it may come back.
	keepUnwanted = 24 * time.Hour
	// maxRetryAfter bounds how long an authority can have the site wait.
	maxRetryAfter = 24 * time.Hour
	// maxWhy bounds what is kept of the reason for which an order failed.
	maxWhy = 400
)

// Want is a host that an application asks a certificate for.
type Want struct {
	Host  string
	Org   string
	App   skerry.AppKey
	Order uint64 // who came first
	Ports Ports
}

// Order is one that is to be carried out now.
type Order struct {
	Host  string
	Org   string
	Kinds []Kind // which challenges it may use, best first
}

// Result is what became of an order.
type Result struct {
	Host, Org       string
	CertPEM, KeyPEM []byte
	// Why it failed; empty: it did not.
	Why string
	// Unreachable: the authority did not answer, so that nothing counts against the site there.
	Unreachable bool
	RetryAfter  time.Duration // as the authority asks; 0: it does not
}

// host is the record of a host.
type host struct {
	Host      string      `json:"host"`
	Org       string      `json:"org,omitempty"`
	Directory string      `json:"directory,omitempty"` // where the certificate was ordered
	CertPEM   []byte      `json:"certificate,omitempty"`
	KeyPEM    []byte      `json:"key,omitempty"`
	NotBefore time.Time   `json:"notBefore,omitzero"`
	NotAfter  time.Time   `json:"notAfter,omitzero"`
	Failed    int         `json:"failed,omitempty"` // orders in a row
	Why       string      `json:"why,omitempty"`
	Next      time.Time   `json:"next,omitzero"`      // no order before
	Tried     []time.Time `json:"tried,omitempty"`    // orders within the last window
	Unwanted  time.Time   `json:"unwanted,omitzero"`  // since when no application has it
	Stopped   int         `json:"stopped,omitempty"`  // orders that ended with the process
	UnderWay  bool        `json:"underWay,omitempty"` // an order was begun, and its end is not known
}

// Record gives a new value of the type that the record of a host is read into.
func Record() any { return new(host) }

// Certs is the public certificates of a site.
type Certs struct {
	policy  Policy
	hosts   map[string]*host
	wants   map[string]*Want
	refused map[string]*Refusal // of wants
	running map[string]*running
	live    map[string]bool            // hosts whose certificate was valid when it was last looked
	limited map[string]time.Time       // wants that a limit has wait, until when
	left    map[skerry.AppKey][]string // hosts whose certificate does not reach the workers with an application, for want of room
	// postponed is why no order begins now, but those by DNS; empty: they may.
	postponed      string
	dirty          bool
	due            time.Time
	issued, failed uint64
}

// running is an order under way.
type running struct {
	challenge *wire.IngressChallenge // that workers are to answer; nil: none yet
	late      bool                   // those that answer are enough
	answered  bool
}

// New makes a site without certificates.
func New(p Policy) *Certs {
	return &Certs{policy: p.withDefaults(), hosts: map[string]*host{}, wants: map[string]*Want{}, refused: map[string]*Refusal{},
		running: map[string]*running{}, live: map[string]bool{}, limited: map[string]time.Time{},
		left: map[skerry.AppKey][]string{}, dirty: true}
}

// Policy gives what the operator allows.
func (c *Certs) Policy() Policy { return c.policy }

// Load takes the record of a host.
func (c *Certs) Load(value []byte) error {
	h := new(host)
	if err := json.Unmarshal(value, h); err != nil {
		return err
	}
	h.Failed, h.Stopped = max(0, h.Failed), max(0, h.Stopped)
	c.hosts[h.Host] = h
	return nil
}

// Start ends loading. Orders that a process left unfinished count as failed ones: it may have ended because of them.
func (c *Certs) Start(now time.Time) {
	for _, h := range c.hosts {
		if h.UnderWay {
			h.UnderWay = false
			h.Stopped++
			h.Next = later(now.Add(c.pause(h, h.Stopped, true)), h.Next)
		}
		if limit := now.Add(maxRetryAfter); h.Next.After(limit) { // the clock was set back
			h.Next = limit
		}
	}
	c.dirty = true
}

// SetWants takes the hosts that applications ask certificates for. It reports whether that changed anything.
func (c *Certs) SetWants(list []Want) bool {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Want) int { return cmp.Or(cmp.Compare(a.Order, b.Order), strings.Compare(a.Host, b.Host)) })
	wants, refused, count := map[string]*Want{}, map[string]*Refusal{}, map[string]int{}
	for i := range list {
		w := &list[i]
		if first := wants[w.Host]; first != nil {
			first.Ports.HTTP = first.Ports.HTTP || w.Ports.HTTP && w.Org == first.Org
			first.Ports.TLS = first.Ports.TLS || w.Ports.TLS && w.Org == first.Org
			continue
		}
		wants[w.Host] = w
		if count[w.Org]++; count[w.Org] > c.policy.HostsPerOrg {
			refused[w.Host] = TooMany(w.Org, c.policy.HostsPerOrg)
		}
	}
	for name, w := range wants {
		if refused[name] == nil {
			_, refused[name] = c.policy.Kinds(name, w.Ports)
		}
		if refused[name] == nil {
			delete(refused, name)
		}
	}
	same := maps.EqualFunc(wants, c.wants, func(a, b *Want) bool { return *a == *b }) &&
		maps.EqualFunc(refused, c.refused, func(a, b *Refusal) bool { return *a == *b })
	c.wants, c.refused = wants, refused
	c.dirty = c.dirty || !same
	return !same
}

// Want gives a host that an application asks a certificate for, or nil.
func (c *Certs) Want(host string) *Want { return c.wants[host] }

// Running reports whether an order of a host is under way.
func (c *Certs) Running(host string) bool { return c.running[host] != nil }

// Busy reports whether an order is under way.
func (c *Certs) Busy() bool { return len(c.running) > 0 }

// Wanted lists the hosts of an organisation that applications ask certificates for, without those of one application.
func (c *Certs) Wanted(org string, without skerry.AppKey) map[string]bool {
	out := map[string]bool{}
	for _, w := range c.wants {
		if w.Org == org && w.App != without {
			out[w.Host] = true
		}
	}
	return out
}

// Postpone has no order begin for a reason, such as that no worker could answer a challenge; empty: none keeps them.
func (c *Certs) Postpone(why string) {
	if c.postponed != why {
		c.postponed, c.dirty = why, true
	}
}

// Due gives the time at which Review has something to do, or the zero time.
func (c *Certs) Due() time.Time { return c.due }

// Review begins the orders that are due, as far as limits allow, and forgets what nobody wants any more. It gives the orders, the
// records that changed, and whether other certificates than before are to be served.
func (c *Certs) Review(now time.Time) (orders []Order, writes []wire.Write, changed bool) {
	if !c.dirty && (c.due.IsZero() || now.Before(c.due)) {
		return nil, nil, false
	}
	c.dirty, c.due = false, time.Time{}
	for name, record := range c.hosts {
		valid := len(record.CertPEM) > 0 && now.Before(record.NotAfter)
		changed = changed || valid != c.live[name]
		if c.live[name] = valid; valid {
			c.wake(record.NotAfter)
		}
	}
	writes = c.forget(now)
	clear(c.limited)
	for _, want := range c.queue(now) {
		record := c.hosts[want.Host]
		if until := c.limit(now, want.Org); len(c.running) >= atOnce || c.runningOf(want.Org) >= orgAtOnce || !until.IsZero() {
			if !until.IsZero() {
				c.limited[want.Host] = until
				c.wake(until)
			}
			continue
		}
		if record == nil || record.Org != want.Org { // the key of one organisation's certificate is never another's
			fresh := &host{Host: want.Host, Org: want.Org}
			if record != nil {
				fresh.Tried = record.Tried // the site made them
			}
			record = fresh
			c.hosts[want.Host] = record
			delete(c.live, want.Host)
		}
		orders = append(orders, Order{want.Host, want.Org, c.kinds(want)})
		record.Tried, record.UnderWay = append(record.Tried, now), true
		c.running[want.Host] = &running{}
		writes = append(writes, record.write())
	}
	slices.SortFunc(writes, func(a, b wire.Write) int { return strings.Compare(a.Key, b.Key) })
	return orders, writes, changed
}

// queue lists the hosts whose order is due: renewals first, those that end soonest at the head, then those of organisations that had few
// orders of late, so that hosts which never get a certificate do not use up what others need, then who came first.
func (c *Certs) queue(now time.Time) (out []*Want) {
	if c.policy.Directory == "" {
		return nil
	}
	for name, w := range c.wants {
		if c.refused[name] != nil || c.running[name] != nil {
			continue
		}
		at := time.Time{}
		if h := c.hosts[name]; h != nil && h.Org == w.Org {
			at = later(c.renewal(h), h.Next)
		}
		if now.Before(at) {
			c.wake(at)
			continue
		}
		if c.postponed == "" || c.kinds(w)[0] == DNS01 {
			out = append(out, w)
		}
	}
	ends := func(w *Want) time.Time {
		if h := c.hosts[w.Host]; h != nil && h.Org == w.Org && now.Before(h.NotAfter) {
			return h.NotAfter
		}
		return now.AddDate(100, 0, 0)
	}
	had := map[string]int{}
	for _, h := range c.hosts {
		had[h.Org] += len(h.Tried)
	}
	slices.SortFunc(out, func(a, b *Want) int {
		return cmp.Or(ends(a).Compare(ends(b)), cmp.Compare(had[a.Org], had[b.Org]), cmp.Compare(a.Order, b.Order),
			strings.Compare(a.Host, b.Host))
	})
	return out
}

// runningOf counts the orders under way of an organisation.
func (c *Certs) runningOf(org string) (n int) {
	for host := range c.running {
		if record := c.hosts[host]; record != nil && record.Org == org {
			n++
		}
	}
	return n
}

// kinds gives the challenges for the next order of a host that is not refused: what failed once by one may succeed by another.
func (c *Certs) kinds(w *Want) []Kind {
	kinds, _ := c.policy.Kinds(w.Host, w.Ports)
	turn := 0
	if h := c.hosts[w.Host]; h != nil && h.Org == w.Org {
		turn = (h.Failed + h.Stopped) % len(kinds)
	}
	return slices.Concat(kinds[turn:], kinds[:turn])
}

// renewal is when a certificate is ordered anew; the zero time: at once.
func (c *Certs) renewal(h *host) time.Time {
	if len(h.CertPEM) == 0 || h.Directory != c.policy.Directory {
		return time.Time{}
	}
	life := h.NotAfter.Sub(h.NotBefore)
	return h.NotBefore.Add(life/3*2 - spread(h.Host, life/30))
}

// limit gives until when an organisation must wait with an order; the zero time: it need not. One may use half of the site's.
func (c *Certs) limit(now time.Time, org string) (until time.Time) {
	var all, own []time.Time
	for _, h := range c.hosts {
		for _, at := range h.Tried {
			if now.Sub(at) < window {
				all = append(all, at)
				if h.Org == org {
					own = append(own, at)
				}
			}
		}
	}
	full := func(list []time.Time, most int) {
		if len(list) >= most {
			slices.SortFunc(list, time.Time.Compare)
			until = later(until, list[len(list)-most].Add(window))
		}
	}
	full(all, c.policy.OrdersPerHour)
	full(own, max(1, c.policy.OrdersPerHour/2))
	return until
}

// forget drops records that are of no use any more.
func (c *Certs) forget(now time.Time) (writes []wire.Write) {
	for name, record := range c.hosts {
		before := len(record.Tried)
		record.Tried = slices.DeleteFunc(record.Tried, func(at time.Time) bool { return now.Sub(at) >= window || at.After(now.Add(window)) })
		unwanted := record.Unwanted
		switch {
		case c.wants[name] != nil:
			record.Unwanted = time.Time{}
		case record.Unwanted.IsZero():
			record.Unwanted = now
		}
		if !record.Unwanted.IsZero() && c.running[name] == nil {
			until := record.Unwanted.Add(keepUnwanted)
			if !c.live[name] {
				until = time.Time{}
			}
			if before := len(record.Tried); before > 0 { // it counts
				until = later(until, record.Tried[before-1].Add(window))
			}
			if !now.Before(until) {
				delete(c.hosts, name)
				delete(c.live, name)
				writes = append(writes, wire.Write{Key: Prefix + name})
				continue
			}
			c.wake(until)
		}
		if before != len(record.Tried) || !unwanted.Equal(record.Unwanted) {
			writes = append(writes, record.write())
		}
	}
	return writes
}

// Done takes what became of an order. It gives the record, and whether another certificate than before is to be served.
func (c *Certs) Done(now time.Time, result Result) (writes []wire.Write, changed bool, why string) {
	delete(c.running, result.Host)
	c.dirty = true
	record := c.hosts[result.Host]
	if record == nil || record.Org != result.Org {
		return nil, true, result.Why
	}
	record.UnderWay, record.Stopped = false, 0
	if result.Why == "" {
		result.Why = record.accept(now, result.CertPEM, result.KeyPEM)
	}
	if result.Why == "" {
		c.issued++
		record.Directory, record.Failed, record.Why, record.Next = c.policy.Directory, 0, "", time.Time{}
		return []wire.Write{record.write()}, true, ""
	}
	c.failed++
	result.Why = strings.ToValidUTF8(result.Why, "\uFFFD") // the authority's words, which may be none
	if len(result.Why) > maxWhy {
		result.Why = strings.ToValidUTF8(result.Why[:maxWhy], "") + "..."
	}
	record.Failed++
	record.Why = result.Why
	record.Next = later(now.Add(c.pause(record, record.Failed, result.Unreachable)), now.Add(min(result.RetryAfter, maxRetryAfter)))
	return []wire.Write{record.write()}, true, result.Why
}

// accept takes a certificate, or says why it cannot be used.
func (h *host) accept(now time.Time, cert, key []byte) string {
	pair, err := tls.X509KeyPair(cert, key)
	switch {
	case err != nil:
		return "the certificate cannot be used: " + err.Error()
	case len(cert)+len(key) > spec.MaxCertificate:
		return fmt.Sprintf("certificate and key have %d bytes; at most %d are allowed", len(cert)+len(key), spec.MaxCertificate)
	case !slices.Contains(pair.Leaf.DNSNames, h.Host):
		return "the certificate is for other hosts: " + strings.Join(pair.Leaf.DNSNames, ", ")
	case !now.Before(pair.Leaf.NotAfter):
		return "the certificate has expired already; is the clock of this machine right?"
	case pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore) <= 0:
		return "the certificate ends before it begins"
	}
	h.CertPEM, h.KeyPEM, h.NotBefore, h.NotAfter = cert, key, pair.Leaf.NotBefore, pair.Leaf.NotAfter
	return ""
}

// pause is how long the site waits after the nth failure in a row. Authorities allow few failures of a host in an hour (five, in places);
// one that does not answer counts none.
func (c *Certs) pause(h *host, n int, unreachable bool) time.Duration {
	steps := []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour}
	if unreachable {
		steps = []time.Duration{5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute}
	}
	d := steps[min(max(n, 1), len(steps))-1]
	return d + spread(h.Host, d/4)
}

// Challenged takes what workers are to answer for the order of a host; nil: nothing any more. It reports whether an order is under way.
func (c *Certs) Challenged(name string, ch *wire.IngressChallenge) bool {
	r := c.running[name]
	if r == nil {
		return false
	}
	r.challenge, r.late, r.answered = ch, false, false
	return true
}

// Late has the order of a host go on with those workers that answer: the others had their time, and one alone must not keep a site from
// its certificates.
func (c *Certs) Late(name string) {
	if r := c.running[name]; r != nil {
		r.late = true
	}
}

// Challenges lists what workers are to answer for an application, by host.
func (c *Certs) Challenges(app skerry.AppKey) (out []wire.IngressChallenge) {
	for _, name := range slices.Sorted(maps.Keys(c.running)) {
		if r, w := c.running[name], c.wants[name]; r.challenge != nil && w != nil && w.App == app {
			out = append(out, *r.challenge)
		}
	}
	return out
}

// Answered lists the challenges that workers began to answer, each once. by reports whether some of those that could answer a token, and
// all.
func (c *Certs) Answered(by func(token string) (some, all bool)) (tokens []string) {
	for _, name := range slices.Sorted(maps.Keys(c.running)) {
		r := c.running[name]
		if r.challenge == nil || r.answered {
			continue
		}
		if some, all := by(r.challenge.Token); all || some && r.late {
			r.answered = true
			tokens = append(tokens, r.challenge.Token)
		}
	}
	return tokens
}

// Serves gives the certificate of a host for an organisation; nil: there is none now.
func (c *Certs) Serves(name, org string) *wire.IngressCertificate {
	h, w := c.hosts[name], c.wants[name]
	if h == nil || w == nil || w.Org != org || h.Org != org || !c.live[name] {
		return nil
	}
	return &wire.IngressCertificate{Name: "acme " + name, CertPEM: h.CertPEM, KeyPEM: h.KeyPEM}
}

// Audit reports contradictions.
func (c *Certs) Audit() (faults []string) {
	for name := range c.running {
		if c.hosts[name] == nil || !c.hosts[name].UnderWay {
			faults = append(faults, "an order for "+name+" is under way, and its record does not say so")
		}
	}
	for name := range c.refused {
		if c.wants[name] == nil {
			faults = append(faults, "a certificate for "+name+" is refused, and nobody wants it")
		}
	}
	return faults
}

func (c *Certs) wake(at time.Time) {
	if c.due.IsZero() || at.Before(c.due) {
		c.due = at
	}
}

func (h *host) write() wire.Write {
	value, err := json.Marshal(h)
	if err != nil {
		panic(err) // plain data
	}
	return wire.Write{Key: Prefix + h.Host, Value: value}
}

// spread gives a part of a time that differs from host to host, so that not all do the same at once.
func spread(name string, most time.Duration) time.Duration {
	f := fnv.New64a()
	_, _ = f.Write([]byte(name))
	return time.Duration(f.Sum64()%1000) * most / 1000
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
