package core

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/evidence"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// A site is believed until what it says cannot be, as a worker is by its site (cluster/credit.go): first it counts for less
// when something is placed, then it is given nothing new. The root knows no worker; it compares a site's numbers with each
// other, with what the site says of single instances, and what it starts with what other sites start.
type suspects struct {
	books map[string]*evidence.Book
	due   time.Time // when to look at them again
	slow  map[skerry.InstanceID]*slow
	// slowDue is when an instance should have started somewhere; zero: none is about to.
	slowDue time.Time
}

// slow is an instance that its site has not started for long, and that is tried elsewhere.
type slow struct {
	site   string
	waited time.Duration
	tried  time.Time
	bad    bool // the site's link is
}

const (
	prefixTrust = "credit/"
	trustEvery  = time.Minute
	// patience is how long a site may take to start something before it is tried elsewhere, too: longer than the site itself
	// waits for a worker before it tries another.
	patience = 12 * time.Minute
	// slower is how many times as long as elsewhere a start must have taken to speak against a site.
	slower = 5
	// badLink is the round trip on a site's connection from which its link may be what is slow.
	badLink = 300 * time.Millisecond
	// forged is by how much a token must be beyond any that was given: the store may be a backup's.
	forged = 1 << 16
)

type (
	// Appraise has the round trip on a site's own connection measured -> Appraised.
	Appraise struct{ Name string }
	// Appraised answers Appraise; RTT is 0 where no answer came.
	Appraised struct {
		Name string
		RTT  time.Duration
	}
	// TrustCluster has a site believed again, whatever was counted against it.
	TrustCluster struct{ Name string }
)

func newSuspects() suspects {
	return suspects{books: map[string]*evidence.Book{}, slow: map[skerry.InstanceID]*slow{}}
}

func (b *suspects) load(site string, value []byte) error {
	book := new(evidence.Book)
	b.books[site] = book
	return json.Unmarshal(value, book)
}

func (c *Core) book(site string) *evidence.Book {
	b := c.suspects.books[site]
	if b == nil {
		b = &evidence.Book{}
		c.suspects.books[site] = b
	}
	return b
}

// marked tells what was counted against a site, and does what follows.
func (c *Core) marked(now time.Time, site string, counted bool, text string, fx *wire.Effects) {
	if !counted {
		return
	}
	c.siteEvent(fx, now, wire.EventWarning, "Implausible", site, "cluster "+site+": "+text)
	c.judgeSite(now, site, fx)
	c.saveBook(site, fx)
}

func (c *Core) siteEvent(fx *wire.Effects, now time.Time, t wire.EventType, reason, site, text string) {
	fx.Events = append(fx.Events, wire.Event{At: now, Type: t, Reason: reason, Text: text, Cluster: skerry.ClusterName(site)})
}

func (c *Core) saveBook(site string, fx *wire.Effects) {
	if b := c.suspects.books[site]; b != nil {
		data, err := json.Marshal(b)
		if err != nil {
			panic("books always marshal: " + err.Error())
		}
		fx.Put(prefixTrust+site, data)
	}
	c.rankSite(site)
}

// rankSite tells the scheduler how far a site is believed.
func (c *Core) rankSite(site string) {
	b := c.suspects.books[site]
	c.Apps.SetShut(site, b != nil && b.Quarantine != "")
	if c.Children.Get(site) == nil {
		return
	}
	if b == nil {
		c.fed.SetTrust(site, 1, "", "")
		return
	}
	c.fed.SetTrust(site, b.Rank(), b.Text(), b.Quarantine)
}

func (c *Core) judgeSite(now time.Time, site string, fx *wire.Effects) {
	b := c.suspects.books[site]
	if !b.Judge(now) {
		return
	}
	c.saveBook(site, fx)
	if b.Quarantine == "" {
		c.siteEvent(fx, now, wire.EventNormal, "QuarantineEnded", site,
			"cluster "+site+" gets new instances again: nothing spoke against it for a while")
		c.Apps.RetryNow()
		return
	}
	c.siteEvent(fx, now, wire.EventWarning, "ClusterQuarantined", site, "cluster "+site+" gets nothing new: "+b.Quarantine)
}

// reviewTrust looks again at the sites of which something is counted.
func (c *Core) reviewTrust(now time.Time, fx *wire.Effects) {
	b := &c.suspects
	if len(b.books) == 0 || now.Before(b.due) {
		return
	}
	b.due = now.Add(trustEvery)
	for _, site := range slices.Sorted(maps.Keys(b.books)) {
		c.judgeSite(now, site, fx)
		if book := b.books[site]; book.Clean() && len(book.Entries) == 0 {
			c.forgetBook(site, fx)
		}
		c.rankSite(site) // its rank rises by itself
	}
}

func (c *Core) forgetBook(site string, fx *wire.Effects) {
	delete(c.suspects.books, site)
	fx.Delete(prefixTrust + site)
	c.rankSite(site)
}

func (c *Core) trustCluster(now time.Time, m TrustCluster, fx *wire.Effects) {
	if c.Children.Get(m.Name) == nil {
		fx.Err = skerry.Errorf(skerry.CodeNotFound, "there is no cluster %q", m.Name).WithHint("`skerry get clusters` lists them")
		return
	}
	if b := c.suspects.books[m.Name]; b != nil {
		if !b.Clean() {
			c.siteEvent(fx, now, wire.EventNormal, "QuarantineEnded", m.Name, "cluster "+m.Name+" is trusted again, by an operator")
		}
		c.forgetBook(m.Name, fx)
		c.Apps.RetryNow()
	}
}

// examine looks for what cannot be in a site's aggregate.
func (c *Core) examine(now time.Time, site string, r *wire.ClusterReport, fx *wire.Effects) {
	text := impossible(r)
	if text == "" {
		text = c.miscounted(site, r)
	}
	if text != "" || c.suspects.books[site] != nil {
		c.marked(now, site, c.book(site).Check(now, evidence.Counts, text != "", text), text, fx)
	}
}

// impossible says what of an aggregate no set of workers can give, or nothing.
func impossible(report *wire.ClusterReport) string {
	for i := range report.Classes {
		k := &report.Classes[i]
		n := float64(k.Workers)
		if k.Workers < 0 {
			return fmt.Sprintf("it reports %d workers of a class", k.Workers)
		}
		for j, m := range k.Available {
			name := spec.ResourceNames[j]
			switch {
			case !(m.Sum >= 0 && m.Mean >= 0 && m.StdDev >= 0) || math.IsInf(m.Sum, 0):
				return fmt.Sprintf("it reports %g of %s free", m.Sum, name)
			case n == 0 && m.Sum > 0:
				return "it reports free " + name + " and no workers"
			case k.Coarse:
			case math.Abs(m.Sum-m.Mean*n) > 1+m.Sum/100:
				return fmt.Sprintf("the %s that it reports free is not the mean of its workers times their number", name)
			case m.StdDev > m.Mean*math.Sqrt(max(n-1, 0))*1.01+1: // of amounts that are not negative
				return fmt.Sprintf("the %s of its workers cannot differ as it reports", name)
			}
		}
	}
	for _, q := range report.Services {
		if q.QoS.CPU < 0 || q.QoS.CPU > maxUse || q.QoS.Memory < 0 || q.Ready < 0 {
			return fmt.Sprintf("it reports %s cores, %s of memory and %d ready instances for %s", q.QoS.CPU, q.QoS.Memory, q.Ready, q.Service)
		}
	}
	return ""
}

// miscounted compares an aggregate with what the site says of single instances, which it told before on the same
// connection; what is on its way differs for a moment, and a contradiction counts only after a while.
func (c *Core) miscounted(site string, report *wire.ClusterReport) string {
	child := c.Children.Get(site)
	if child == nil || !child.Settled() {
		return ""
	}
	for _, q := range report.Services {
		if q.Ready == 0 {
			continue
		}
		held, copies := 0, false
		for _, i := range c.Apps.Instances(q.Service) {
			copies = copies || i.Spec != nil && i.Spec.Mode == spec.ModePerWorker // one stands for a copy on each worker
			if i.Holder == site || i.Next != nil && i.Next.Holder == site || i.Left != nil && i.Left.Holder == site {
				held++
			}
		}
		if copies {
			continue
		}
		if q.Ready > held && q.Ready > held+c.unknownAt(child) {
			return fmt.Sprintf("it reports %d ready instances of %s and was given %d", q.Ready, q.Service, held)
		}
	}
	return ""
}

// unknownAt counts the instances that a site tells of one by one and this store does not know: it lost them, or is a backup's.
func (c *Core) unknownAt(k *members.Child) (n int) {
	for key := range k.Observed.All() {
		if id, ok := strings.CutPrefix(key, "inst/"); ok && c.Apps.Instance(skerry.InstanceID(id)) == nil {
			n++
		}
	}
	return n
}

// offered counts what a site answered to an offer.
func (c *Core) offered(now time.Time, site string, o *wire.Observation) {
	switch b := c.suspects.books[site]; {
	case !o.Rejected:
		if b != nil {
			b.Good(now, evidence.Refusals)
		}
	case slices.ContainsFunc(o.Why, func(r wire.Reason) bool {
		return slices.Contains([]string{"cpu", "memory", "storage"}, r.What)
	}):
		// Its aggregate was not proof that nobody has room; a site that refuses much is asked later than others.
		c.book(site).Mark(now, evidence.Refusals, "it offers room and has refused what should fit")
		c.rankSite(site)
	}
}

// unknownToken looks whether a site speaks for an instance that it was never given.
func (c *Core) unknownToken(now time.Time, site string, o *wire.Observation, fx *wire.Effects) {
	i := c.Apps.Instance(o.ID)
	if i == nil {
		return
	}
	mine := func(k *apps.Copy) bool { return k != nil && k.Holder == site }
	last := c.opt.Epoch<<40 | c.seq
	text := ""
	switch {
	case o.Fence.RootEpoch>>40 == c.opt.Epoch && o.Fence.RootEpoch > last && o.Fence.RootEpoch-last > forged:
		text = "it reports " + string(o.ID) + " under a token that was never issued"
	case i.Holder != "" && i.Holder != site && o.Fence.RootEpoch == i.Fence.RootEpoch && o.Fence.RootEpoch > 0 && !mine(i.Next) &&
		!mine(i.Left):
		text = "it reports " + string(o.ID) + ", which belongs to another cluster"
	}
	if text != "" {
		c.marked(now, site, c.book(site).Mark(now, evidence.Tokens, text), text, fx)
	}
}

// replayed counts a report that was sent before. Numbers that go on from below were preceded by a broken one.
func (c *Core) replayed(now time.Time, site string, seq uint64, fx *wire.Effects) string {
	if old := c.reports[site]; seq > old.stale || seq == old.report.Seq {
		old.stale = max(old.stale, min(seq, old.report.Seq-1))
		return members.IgnoredOld
	}
	const text = "it repeats reports that it sent before"
	c.marked(now, site, c.book(site).Odd(now, evidence.Replays, text), text, fx)
	return members.IgnoredOld
}

// expectStart has what is about to start looked at, at a time or earlier: it is noticed when a site does not start what it was given.
func (b *suspects) expectStart(at time.Time) {
	if b.slowDue.IsZero() || at.Before(b.slowDue) {
		b.slowDue = at
	}
}

// neverStarted reports whether an instance is one that its site has yet to run, and since when it could have.
func (c *Core) neverStarted(i *apps.Instance) (since time.Time, ok bool) {
	k := c.Children.Get(i.Holder)
	if k == nil || !k.Connected || !i.Live() || i.Spec == nil || i.Spec.Mode != spec.ModeService || i.Target != "" || i.Cut ||
		i.Replaces != "" {
		return since, false
	}
	if i.State == skerry.Running || i.Phase == skerry.PhaseCutOff || !i.StartedAt.IsZero() ||
		skerry.HasCondition(i.Conditions, skerry.Frozen) {
		return since, false
	}
	if since = k.Since; len(i.Timeline) > 0 {
		for _, s := range i.Timeline { // since it was given
			if s.State == skerry.ClusterScheduled && s.At.After(since) {
				since = s.At
			}
		}
	}
	return since, true
}

// lateStarts asks what the links of sites look like that should have started something.
func (c *Core) lateStarts(now time.Time, fx *wire.Effects) {
	suspects := &c.suspects
	if suspects.slowDue.IsZero() || now.Before(suspects.slowDue) {
		return
	}
	suspects.slowDue = time.Time{}
	for id := range suspects.slow {
		if i := c.Apps.Instance(id); i == nil || !i.Live() {
			delete(suspects.slow, id)
		}
	}
	for _, site := range c.Children.Names() {
		asked := false
		for _, i := range c.Apps.HeldBy(site) {
			since, ok := c.neverStarted(i)
			if !ok || suspects.slow[i.ID] != nil {
				continue
			}
			at := since.Add(patience)
			if !now.Before(at) {
				if !asked {
					asked = true
					fx.Actions = append(fx.Actions, Appraise{Name: site})
				}
				at = now.Add(patience / 4)
			}
			suspects.expectStart(at)
		}
	}
}

// appraised tries at another site what one has not started for long.
func (c *Core) appraised(now time.Time, m Appraised, fx *wire.Effects) {
	c.relations.gateways.link(m.Name, m.RTT)
	for _, i := range c.Apps.HeldBy(m.Name) {
		since, ok := c.neverStarted(i)
		if waited := now.Sub(since); ok && c.suspects.slow[i.ID] == nil && waited >= patience &&
			c.Apps.TryElsewhere(now, i, "its site has not started it for "+waited.Round(time.Second).String(), fx) {
			c.suspects.slow[i.ID] = &slow{site: m.Name, waited: waited, tried: now, bad: m.RTT == 0 || m.RTT >= badLink}
		}
	}
}

// compareStart compares a start with one that another site did not manage.
func (c *Core) compareStart(now time.Time, i *apps.Instance, fx *wire.Effects) {
	s := c.suspects.slow[i.Replaces]
	if i.State != skerry.Running || i.Replaces == "" || s == nil || i.Holder == s.site {
		return
	}
	delete(c.suspects.slow, i.Replaces)
	took := max(now.Sub(s.tried), 0)
	if s.bad || slower*took > s.waited || c.Children.Get(s.site) == nil {
		return
	}
	if b := c.book(s.site); b.Entries[evidence.Starts] == nil { // what does run there speaks for it
		for _, o := range c.Apps.HeldBy(s.site) {
			if o.State == skerry.Running {
				b.Vouch(evidence.Starts)
			}
		}
	}
	text := fmt.Sprintf("it accepted %s and did not run it for %s; another cluster did after %s", i.Service, s.waited.Round(time.Second),
		took.Round(time.Millisecond))
	c.marked(now, s.site, c.book(s.site).Mark(now, evidence.Starts, text), text, fx)
}
