// Package sched decides where instances go. It is pure: a decision depends on the view, the request and the seed alone,
// and carries its reasons. Site holds a site's workers in columns for the cluster; Federation holds sites in aggregate for
// the root. A policy is a chain of rules that rule workers out and a rank that orders the rest; each rule and each rank is
// a small type in a file of its own. Root and cluster cores and the bench import sched; it imports nouns and distances.
package sched

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Request is what an instance needs.
type Request struct {
	Instance skerry.InstanceID
	Service  string // name within its application, for links and spreading
	Spec     *spec.ServiceSpec
	Need     spec.Resources     // of the instance alone: what the runtime takes beside it is added for each worker
	Only     string             // the only worker that may have it; empty: any
	Devices  []string           // of its worker's, that it has already
	Runtime  string             // in which it runs already, for Give; empty: the one that it would have
	Data     string             // the worker that has its local volumes, with data in them; empty: there are none
	Avoid    []string           // workers, or clusters, tried in this round
	Egress   bool               // its site holds it to a policy of egress, whatever its manifest says
	Level    spec.SecurityLevel // of its organisation at the site; empty at the root
	Signed   bool               // its site starts no image for it that is not signed
	Kept     []string           // workers whose room is kept for instances of higher priority
	// Peers are the placed instances of the same application, this one left out.
	Peers []Peer
	// Far are services of the application with instances at other sites, and Gateway is where this site's gateway is among its workers;
	// nil: not known. The root has neither.
	Far     []wire.Far
	Gateway *spec.Coordinate
	// Users holds, for each user of the placement, where it is in the network; nil until that was measured.
	Users []wire.UserPosition
	// Contention is what the service does to its neighbours and they to it, stated or learned.
	Contention spec.Contention
	// Whole is what all instances of the application that have no place need together; the root looks at it.
	Whole spec.Resources
	// Linked are the services at other ends of limited links that have no place yet; the root looks at them.
	Linked []Linked
}

// Linked is a service without a place.
type Linked struct {
	Service string
	Spec    *spec.ServiceSpec
}

// Peer is a placed instance of the same application.
type Peer struct {
	Worker  string // at the root: the cluster
	Service string
	Labels  map[string]string
	Links   []spec.Link
}

// Rule is one condition of a policy.
type Rule interface {
	Name() string
	// For prepares the rule for a query, or gives nil where it does not concern it.
	For(q *Query) Check
	// Lasting reports whether the rule holds for as long as an instance runs; the others only guide where it starts.
	Lasting() bool
}

// Check is a rule prepared for one query.
type Check interface {
	// Impossible reports whether no worker that a summary covers can pass. It may say false when it cannot tell.
	Impossible(sum *summary) bool
	// Keep clears the bits of those workers of a block that do not pass. Bit i stands for slot 64*block+i.
	Keep(block int, mask uint64) uint64
	// Miss tells what a worker that does not pass lacks, and by how much, from 0 (by a hair) on; only the order counts. It
	// writes no text, because it is asked for every worker when nobody fits.
	Miss(slot int) (what string, by float64)
	// Reason tells why a worker does not pass, and what would help; its What is that of Miss.
	Reason(slot int) wire.Reason
}

// Ranking orders the workers that pass every rule.
type Ranking interface {
	Name() string
	For(q *Query) Rank
}

// Rank is a ranking prepared for one query.
type Rank interface {
	// Score gives 0 to 1; higher is better.
	Score(slot int) float64
	// Bound gives a number that no score of a worker under the summary exceeds.
	Bound(sum *summary) float64
}

// blockRank is what a Rank by how full workers are can do besides.
type blockRank interface {
	Rank
	// Scores writes the score of each worker of a block that is in the mask, by its bit.
	Scores(block int, mask uint64, out *[64]float64)
	// Levels gives a range of the mean share that is free before the placement, outside of which no worker under the summary
	// scores as much as worst.
	Levels(sum *summary, worst float64) (least, most float64)
}

// Policy is a chain of rules and the ranking that chooses among what they leave. Policies are values, so that a site can
// put its own together.
type Policy struct {
	Name  string
	Rules []Rule
	Rank  Ranking
	// ByName breaks ties by name instead of by the seed.
	ByName bool
}

// Query is a request against one site at one time.
type Query struct {
	*Request
	Need spec.Resources // with the least that a runtime takes beside it
	Site *Site
	Now  time.Time

	runtimes []string // by kind: the one that the service would have there; empty: none
	more     []int64  // by kind: memory that this one takes above that least; nil: none does

	reach  *reachable
	checks []Check
	names  []string // of the checks' rules
	rank   Rank
	blocks blockRank // rank, where it is one; else nil
	room   *capacity // among the checks, or nil
	unix   int64     // Now
	scores [64]float64
	only   int // slot, or -1
	peers  []peerAt
}

// peerAt is a peer with the slot of its worker, or -1 where the site does not know it.
type peerAt struct {
	*Peer
	slot int
}

func (s *Site) query(now time.Time, policy Policy, req *Request) *Query {
	q := &Query{Request: req, Site: s, Now: now, unix: now.Unix(), only: -1, reach: &reachable{s}}
	q.weigh()
	only := req.Only
	if only == "" {
		only = req.Spec.Placement.Worker
	}
	if only != "" {
		q.only = s.find(only)
		if q.only < 0 {
			q.only = len(s.kindOf) // beyond the last: nobody
		}
	}
	for i := range req.Peers {
		q.peers = append(q.peers, peerAt{&req.Peers[i], s.find(req.Peers[i].Worker)})
	}
	for _, rule := range policy.Rules {
		if c := rule.For(q); c != nil {
			q.checks = append(q.checks, c)
			q.names = append(q.names, rule.Name())
		}
	}
	q.rank = withPreferences(q, policy.Rank.For(q))
	q.blocks, _ = q.rank.(blockRank)
	for _, c := range q.checks {
		if room, ok := c.(*capacity); ok {
			q.room = room
		}
	}
	return q
}

// weigh finds the runtimes in which the service may run, and adds what they take.
func (q *Query) weigh() {
	q.Need = q.Request.Need
	q.runtimes = make([]string, len(q.Site.kinds))
	wanted := q.Spec.Runtimes()
	if len(wanted) == 0 {
		return
	}
	least := q.Spec.Overhead(wanted[0])
	q.Need = q.Need.Add(least)
	for id, k := range q.Site.kinds {
		if k.users == 0 {
			continue
		}
		q.runtimes[id] = q.Spec.RuntimeAmong(wanted, k.class.Arch, k.class.Runtimes, k.costs)
		if q.runtimes[id] == wanted[0] {
			continue
		}
		if more := int64(q.Spec.Overhead(q.runtimes[id]).Memory - least.Memory); more > 0 {
			if q.more == nil {
				q.more = make([]int64, len(q.Site.kinds))
			}
			q.more[id] = more
		}
	}
}

// needOn is what a request takes of a worker.
func (s *Site) needOn(n int, r *Request) spec.Resources {
	k := s.kinds[s.kindOf[n]]
	return r.Need.Add(r.Spec.Overhead(r.Spec.RuntimeOn(k.class.Arch, k.class.Runtimes, k.costs)))
}

// maxShown bounds the candidates that a decision keeps as examples.
const maxShown = 8

// Place chooses a worker. The decision's Chosen is empty when nobody fits; it then tells what ruled how many out.
func (s *Site) Place(now time.Time, p Policy, r *Request, seed uint64) wire.Decision {
	return s.place(now, p, r, seed, 1, true)
}

// Best gives the decision with the best candidates in Top, up to keep of them, for a plugin to choose among.
func (s *Site) Best(now time.Time, p Policy, r *Request, seed uint64, keep int) wire.Decision {
	return s.place(now, p, r, seed, keep, true)
}

// place does the work; prune is false only in tests, which compare the index with a scan.
func (s *Site) place(now time.Time, policy Policy, req *Request, seed uint64, keep int, prune bool) wire.Decision {
	s.refresh()
	decision := wire.Decision{At: now, Instance: req.Instance, Tier: "cluster", Policy: policy.Name, Seed: seed, Considered: s.Len()}
	query := s.query(now, policy, req)
	best := shortlist{site: s, size: max(keep, maxShown), seed: seed, byName: policy.ByName}
	best.list = make([]candidate, 0, best.size)
	switch {
	case query.only >= len(s.kindOf):
		decision.Why = []wire.Reason{{What: "worker", Count: 1, Text: "the site has no worker " + only(req), Hint: "`skerry get workers` lists them"}}
		return decision
	case query.only >= 0:
		query.block(query.only/64, 1<<(query.only%64), &best, prune)
	default:
		for top := range s.supers {
			if prune && query.skip(&s.supers[top], &best) {
				continue
			}
			for b := top * superBlocks; b < min((top+1)*superBlocks, len(s.blocks)); b++ {
				if !prune || !query.skip(&s.blocks[b], &best) {
					query.block(b, s.live[b], &best, prune)
				}
			}
		}
	}
	decision.Top = best.candidates()
	if len(decision.Top) == 0 {
		decision.Why, decision.Top = query.whyNot()
		decision.Bound()
		return decision
	}
	decision.Bound()
	decision.Top[0].Chosen = true
	decision.Chosen = decision.Top[0].Name
	return decision
}

func only(r *Request) string {
	if r.Only != "" {
		return r.Only
	}
	return r.Spec.Placement.Worker
}

// skip reports whether nothing under a summary can become a candidate that is kept.
func (q *Query) skip(sum *summary, best *shortlist) bool {
	if sum.open == 0 || best.full() && q.rank.Bound(sum) < best.worst() {
		return true
	}
	for _, c := range q.checks {
		if c.Impossible(sum) {
			return true
		}
	}
	return false
}

// block looks at one block of workers.
func (q *Query) block(b int, mask uint64, best *shortlist, prune bool) {
	mask = q.reach.Keep(b, mask)
	if prune {
		mask &= q.levels(b, best)
	}
	for _, c := range q.checks {
		if mask == 0 {
			return
		}
		mask = c.Keep(b, mask)
	}
	scores := &q.scores
	if q.blocks != nil && mask != 0 {
		q.blocks.Scores(b, mask, scores)
	}
	floor := best.floor()
	for ; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros64(mask)
		score := scores[i]
		if q.blocks == nil {
			score = q.rank.Score(b*64 + i)
		}
		if score < floor { // freshness only lowers it
			continue
		}
		score *= q.Site.freshness(b*64+i, q.unix)
		if score < floor {
			continue
		}
		best.add(b*64+i, score)
		floor = best.floor()
	}
}

// shortlist keeps the best candidates seen, best first: those asked for, and a few more as examples.
type shortlist struct {
	site   *Site
	size   int
	seed   uint64
	byName bool
	list   []candidate
}

type candidate struct {
	slot  int
	score float64
	tie   uint64
}

func (l *shortlist) full() bool     { return len(l.list) == l.size }
func (l *shortlist) worst() float64 { return l.list[l.size-1].score }

// floor is the least score that can still be kept.
func (l *shortlist) floor() float64 {
	if l.full() {
		return l.worst()
	}
	return math.Inf(-1)
}

func (l *shortlist) add(slot int, score float64) {
	if math.IsNaN(score) {
		score = 0
	}
	c := candidate{slot: slot, score: score}
	if !l.byName {
		c.tie = mix(l.seed, l.site.hash[slot])
	}
	if l.full() {
		if !l.better(&c, &l.list[l.size-1]) {
			return
		}
	} else {
		l.list = append(l.list, c)
	}
	i := len(l.list) - 1
	for ; i > 0 && l.better(&c, &l.list[i-1]); i-- {
		l.list[i] = l.list[i-1]
	}
	l.list[i] = c
}

// better orders candidates: by score, then by a hash of seed and name, so that the order in which workers came plays no
// part.
func (l *shortlist) better(a, b *candidate) bool {
	if a.score != b.score {
		return a.score > b.score
	}
	if a.tie != b.tie {
		return a.tie < b.tie
	}
	return l.site.names[a.slot] < l.site.names[b.slot]
}

func (l *shortlist) candidates() []wire.Candidate {
	out := make([]wire.Candidate, 0, len(l.list))
	for _, c := range l.list {
		k := wire.Candidate{Name: l.site.names[c.slot], Score: c.score}
		if x := l.site.more[c.slot]; x != nil && x.trust > 0 && x.trust < 1 {
			k.Suspicion = suspicionText(x.trust, x.suspicion)
		}
		out = append(out, k)
	}
	return out
}

func suspicionText(share float64, suspicion string) string {
	return fmt.Sprintf("its score counts %.0f %%: %s", 100*share, suspicion)
}

// mix is the finaliser of splitmix64 over seed and name.
func mix(seed uint64, h uint32) uint64 {
	x := seed ^ uint64(h)*0x9e3779b97f4a7c15
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
