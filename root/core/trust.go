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
//
// suspects owns what counts against each site, and the starts that sites are late with. It tells the scheduler how far a site is believed.
type suspects struct {
	apps     *apps.Controller
	children *members.Children
	fed      *federation
	tokens   *tokens
	cordons  *cordons
	books    map[string]*evidence.Book
	due      time.Time // when to look at them again
	slow     map[skerry.InstanceID]*slow
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

func newSuspects(a *apps.Controller, children *members.Children, fed *federation, t *tokens) *suspects {
	return &suspects{apps: a, children: children, fed: fed, tokens: t, cordons: newCordons(), books: map[string]*evidence.Book{},
		slow: map[skerry.InstanceID]*slow{}}
}

func (trust *suspects) load(site string, value []byte) error {
	book := new(evidence.Book)
	trust.books[site] = book
	return json.Unmarshal(value, book)
}

func (trust *suspects) book(site string) *evidence.Book {
	b := trust.books[site]
	if b == nil {
		b = &evidence.Book{}
		trust.books[site] = b
	}
	return b
}

// marked tells what was counted against a site, and does what follows.
func (trust *suspects) marked(now time.Time, site string, counted bool, text string, fx *wire.Effects) {
	if !counted {
		return
	}
	trust.siteEvent(fx, now, wire.EventWarning, "Implausible", site, "cluster "+site+": "+text)
	trust.judgeSite(now, site, fx)
	trust.saveBook(site, fx)
}

func (trust *suspects) siteEvent(fx *wire.Effects, now time.Time, t wire.EventType, reason, site, text string) {
	fx.Events = append(fx.Events, wire.Event{At: now, Type: t, Reason: reason, Text: text, Cluster: skerry.ClusterName(site)})
}

func (trust *suspects) saveBook(site string, fx *wire.Effects) {
	if b := trust.books[site]; b != nil {
		data, err := json.Marshal(b)
		if err != nil {
			panic("books always marshal: " + err.Error())
		}
		fx.Put(prefixTrust+site, data)
	}
	trust.rankSite(site)
}

// rankSite tells the scheduler how far a site is believed.
func (trust *suspects) rankSite(site string) {
	b := trust.books[site]
	why := trust.cordons.reason(site)
	trust.apps.SetShut(site, why != "" || b != nil && b.Quarantine != "")
	if trust.children.Get(site) == nil {
		return
	}
	trust.fed.SetCordon(site, why)
	if b == nil {
		trust.fed.SetTrust(site, 1, "", "")
		return
	}
	trust.fed.SetTrust(site, b.Rank(), b.Text(), b.Quarantine)
}

// shut says why a site gets nothing new, or nil.
func (trust *suspects) shut(site string) *wire.Reason {
	hint := "`skerry uncordon cluster/" + site + "` ends that"
	if why := trust.cordons.reason(site); why != "" {
		return &wire.Reason{What: "cordon", Text: "cluster " + site + " is cordoned: " + why, Hint: hint}
	}
	if b := trust.books[site]; b != nil && b.Quarantine != "" {
		return &wire.Reason{What: "quarantine", Text: "cluster " + site + " is in quarantine: " + b.Quarantine, Hint: hint}
	}
	return nil
}

func (trust *suspects) judgeSite(now time.Time, site string, fx *wire.Effects) {
	b := trust.books[site]
	if !b.Judge(now) {
		return
	}
	trust.saveBook(site, fx)
	if b.Quarantine == "" {
		trust.siteEvent(fx, now, wire.EventNormal, "QuarantineEnded", site,
			"cluster "+site+" gets new instances again: nothing spoke against it for a while")
		trust.apps.RetryNow()
		return
	}
	trust.siteEvent(fx, now, wire.EventWarning, "ClusterQuarantined", site, "cluster "+site+" gets nothing new: "+b.Quarantine)
}

// reviewTrust looks again at the sites of which something is counted.
func (trust *suspects) reviewTrust(now time.Time, fx *wire.Effects) {
	if len(trust.books) == 0 || now.Before(trust.due) {
		return
	}
	trust.due = now.Add(trustEvery)
	for _, site := range slices.Sorted(maps.Keys(trust.books)) {
		trust.judgeSite(now, site, fx)
		if book := trust.books[site]; book.Clean() && len(book.Entries) == 0 {
			trust.forgetBook(site, fx)
		}
		trust.rankSite(site) // its rank rises by itself
	}
}

func (trust *suspects) forgetBook(site string, fx *wire.Effects) {
	delete(trust.books, site)
	fx.Delete(prefixTrust + site)
	trust.rankSite(site)
}

func (trust *suspects) trustCluster(now time.Time, m TrustCluster, fx *wire.Effects) {
	if trust.children.Get(m.Name) == nil {
		fx.Err = noCluster(m.Name)
		return
	}
	if b := trust.books[m.Name]; b != nil {
		if !b.Clean() {
			trust.siteEvent(fx, now, wire.EventNormal, "QuarantineEnded", m.Name, "cluster "+m.Name+" is trusted again, by an operator")
		}
		trust.forgetBook(m.Name, fx)
		trust.apps.RetryNow()
	}
}

// examine looks for what cannot be in a site's aggregate.
func (trust *suspects) examine(now time.Time, site string, r *wire.ClusterReport, fx *wire.Effects) {
	text := impossible(r)
	if text == "" {
		text = trust.miscounted(site, r)
	}
	text = wire.Short(text) // it has names that the site gave
	if text != "" || trust.books[site] != nil {
		trust.marked(now, site, trust.book(site).Check(now, evidence.Counts, text != "", text), text, fx)
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
func (trust *suspects) miscounted(site string, report *wire.ClusterReport) string {
	child := trust.children.Get(site)
	if child == nil || !child.Settled() {
		return ""
	}
	unknown := -1 // not counted yet
	for _, service := range report.Services {
		if service.Ready == 0 {
			continue
		}
		held, copies := 0, false
		for _, i := range trust.apps.Instances(service.Service) {
			copies = copies || i.Spec != nil && i.Spec.Mode.HasCopies() // one stands for a copy on each worker
			if i.Holder == site || i.Next != nil && i.Next.Holder == site || i.Left != nil && i.Left.Holder == site {
				held++
			}
		}
		if copies || service.Ready <= held {
			continue
		}
		if unknown < 0 {
			unknown = trust.unknownAt(child)
		}
		if service.Ready > held+unknown {
			return fmt.Sprintf("it reports %d ready instances of %s and was given %d", service.Ready, service.Service, held)
		}
	}
	return ""
}

// unknownAt counts the instances that a site tells of one by one and this store does not know: it lost them, or is a backup's.
func (trust *suspects) unknownAt(k *members.Child) (n int) {
	for key := range k.Observed.All() {
		if id, ok := strings.CutPrefix(key, "inst/"); ok && trust.apps.Instance(skerry.InstanceID(id)) == nil {
			n++
		}
	}
	return n
}

// offered counts what a site answered to an offer.
func (trust *suspects) offered(now time.Time, site string, o *wire.Observation) {
	switch b := trust.books[site]; {
	case !o.Rejected:
		if b != nil {
			b.Good(now, evidence.Refusals)
		}
	case slices.ContainsFunc(o.Why, func(r wire.Reason) bool {
		return slices.Contains([]string{"cpu", "memory", "storage"}, r.What)
	}):
		// Its aggregate was not proof that nobody has room; a site that refuses much is asked later than others.
		trust.book(site).Mark(now, evidence.Refusals, "it offers room and has refused what should fit")
		trust.rankSite(site)
	}
}

// unknownToken looks whether a site speaks for an instance that it was never given.
func (trust *suspects) unknownToken(now time.Time, site string, o *wire.Observation, fx *wire.Effects) {
	i := trust.apps.Instance(o.ID)
	if i == nil {
		return
	}
	mine := func(k *apps.Copy) bool { return k != nil && k.Holder == site }
	last := trust.tokens.last()
	text := ""
	switch {
	case o.Fence.RootEpoch>>40 == trust.tokens.epoch && o.Fence.RootEpoch > last && o.Fence.RootEpoch-last > forged:
		text = "it reports " + string(o.ID) + " under a token that was never issued"
	case i.Holder != "" && i.Holder != site && o.Fence.RootEpoch == i.Fence.RootEpoch && o.Fence.RootEpoch > 0 && !mine(i.Next) &&
		!mine(i.Left):
		text = "it reports " + string(o.ID) + ", which belongs to another cluster"
	}
	if text != "" {
		trust.marked(now, site, trust.book(site).Mark(now, evidence.Tokens, text), text, fx)
	}
}

// replays counts a report that was sent before.
func (trust *suspects) replays(now time.Time, site string, fx *wire.Effects) {
	const text = "it repeats reports that it sent before"
	trust.marked(now, site, trust.book(site).Odd(now, evidence.Replays, text), text, fx)
}

// expectStart has what is about to start looked at, at a time or earlier: it is noticed when a site does not start what it was given.
func (trust *suspects) expectStart(at time.Time) {
	if trust.slowDue.IsZero() || at.Before(trust.slowDue) {
		trust.slowDue = at
	}
}

// neverStarted reports whether an instance is one that its site has yet to run, and since when it could have.
func (trust *suspects) neverStarted(i *apps.Instance) (since time.Time, ok bool) {
	k := trust.children.Get(i.Holder)
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
func (trust *suspects) lateStarts(now time.Time, fx *wire.Effects) {
	if trust.slowDue.IsZero() || now.Before(trust.slowDue) {
		return
	}
	trust.slowDue = time.Time{}
	for id := range trust.slow {
		if i := trust.apps.Instance(id); i == nil || !i.Live() {
			delete(trust.slow, id)
		}
	}
	for _, site := range trust.children.Names() {
		asked := false
		for _, i := range trust.apps.HeldBy(site) {
			since, ok := trust.neverStarted(i)
			if !ok || trust.slow[i.ID] != nil {
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
			trust.expectStart(at)
		}
	}
}

// appraised tries at another site what one has not started for long.
func (trust *suspects) appraised(now time.Time, m Appraised, fx *wire.Effects) {
	for _, i := range trust.apps.HeldBy(m.Name) {
		since, ok := trust.neverStarted(i)
		if waited := now.Sub(since); ok && trust.slow[i.ID] == nil && waited >= patience &&
			trust.apps.TryElsewhere(now, i, "its site has not started it for "+waited.Round(time.Second).String(), fx) {
			trust.slow[i.ID] = &slow{site: m.Name, waited: waited, tried: now, bad: m.RTT == 0 || m.RTT >= badLink}
		}
	}
}

// compareStart compares a start with one that another site did not manage.
func (trust *suspects) compareStart(now time.Time, i *apps.Instance, fx *wire.Effects) {
	s := trust.slow[i.Replaces]
	if i.State != skerry.Running || i.Replaces == "" || s == nil || i.Holder == s.site {
		return
	}
	delete(trust.slow, i.Replaces)
	took := max(now.Sub(s.tried), 0)
	if s.bad || slower*took > s.waited || trust.children.Get(s.site) == nil {
		return
	}
	if b := trust.book(s.site); b.Entries[evidence.Starts] == nil { // what does run there speaks for it
		for _, o := range trust.apps.HeldBy(s.site) {
			if o.State == skerry.Running {
				b.Vouch(evidence.Starts)
			}
		}
	}
	text := fmt.Sprintf("it accepted %s and did not run it for %s; another cluster did after %s", i.Service, s.waited.Round(time.Second),
		took.Round(time.Millisecond))
	trust.marked(now, s.site, trust.book(s.site).Mark(now, evidence.Starts, text), text, fx)
}
