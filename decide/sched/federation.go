package sched

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Federation is the root's view of the sites: aggregates only. It is not safe for use by several goroutines.
type Federation struct {
	index  map[string]int
	list   []site
	normal []float64 // of exceeds
	ways   func(a, b string) (ms float64, ok bool)
	classTable
}

// site is one site with what a query needs worked out beforehand.
type site struct {
	name      string
	hash      uint32
	connected bool
	reported  bool
	classes   []classView
	workers   int
	lowest    int                 // priority of what runs there; a service above it may be given room
	sum       spec.ResourceVector // free in all, less what was handed out since the report
	pending   spec.ResourceVector // handed out since the report
	areas     []string
	at        [3]float32 // middle on the unit sphere; zero: unknown
	radiusKm  float64
	net       *spec.Coordinate
	netMs     float64
	// credit is by how much its score counts, doubt why that is less than all, and quarantine why it gets nothing new.
	trust                 float64
	suspicion, quarantine string
	cordon                string // why an operator keeps new instances from it
	labels                map[string]string
}

// classView is one capability class of a site.
type classView struct {
	id      int32
	workers float64
	mean    [spec.NumResources]float64
	stddev  [spec.NumResources]float64
	most    [spec.NumResources]float64 // no worker can have more
	sum     [spec.NumResources]float64
}

// NewFederation makes an empty federation.
func NewFederation() *Federation {
	f := &Federation{index: map[string]int{}, normal: make([]float64, 2*normalSpan*normalSteps+2),
		classTable: classTable{classID: map[string]int32{}}}
	for i := range f.normal {
		z := float64(i)/normalSteps - normalSpan
		f.normal[i] = 0.5 * math.Erfc(z/math.Sqrt2)
	}
	return f
}

// The table of the normal distribution reaches from -4 to 4 deviations in steps of 1/128; between them it is linear, with
// an error below 1e-5.
const (
	normalSpan  = 4
	normalSteps = 128
)

// exceeds gives the probability that a normally distributed amount exceeds z deviations above its mean.
func (f *Federation) exceeds(z float64) float64 {
	switch {
	case z >= normalSpan:
		return 0
	case !(z > -normalSpan):
		return 1
	}
	x := (z + normalSpan) * normalSteps
	i := int(x)
	return f.normal[i] + (x-float64(i))*(f.normal[i+1]-f.normal[i])
}

// Len counts the sites.
func (f *Federation) Len() int { return len(f.list) }

func (f *Federation) of(name string) *site {
	i, ok := f.index[name]
	if !ok {
		i = len(f.list)
		f.list = append(f.list, site{name: name, hash: hashOf(name), trust: 1})
		f.index[name] = i
	}
	return &f.list[i]
}

// Take counts what was handed to a site since its last report; the next report knows of it.
func (f *Federation) Take(name string, need spec.Resources) {
	s := f.of(name)
	for i, v := range need.Vector() {
		s.pending[i] += v
		s.sum[i] -= v
	}
}

// SetReport takes a site's newest aggregate. Numbers that are not finite count as nothing.
func (f *Federation) SetReport(name string, report *wire.ClusterReport) {
	s := f.of(name)
	before := s.classes
	*s = site{name: name, hash: s.hash, connected: s.connected, trust: s.trust, suspicion: s.suspicion, quarantine: s.quarantine,
		cordon: s.cordon, labels: s.labels, reported: true, areas: report.Areas,
		classes: make([]classView, 0, len(report.Classes)), lowest: math.MaxInt}
	if report.Lowest != nil {
		s.lowest = *report.Lowest
	}
	var sum [spec.NumResources]float64
	for i := range report.Classes {
		k := &report.Classes[i]
		v := classView{id: f.class(k.Class), workers: float64(max(k.Workers, 0))}
		for j, m := range k.Available {
			if !finite(m.Sum) || !finite(m.Mean) || !finite(m.StdDev) {
				m = wire.Moments{}
			}
			v.mean[j], v.stddev[j], v.sum[j] = m.Mean, max(m.StdDev, 0), m.Sum
			// Samuelson's inequality: in a population of n no value lies further above the mean than the deviation times the
			// square root of n - 1. Coarse aggregates are not exact, so only their sum rules out.
			v.most[j] = math.Min(m.Sum, m.Mean+v.stddev[j]*math.Sqrt(math.Max(v.workers-1, 0)))
			if k.Coarse {
				v.most[j] = m.Sum
			}
			v.most[j] *= 1 + 1e-9
			sum[j] += m.Sum
		}
		s.workers += int(v.workers)
		s.classes = append(s.classes, v)
	}
	for _, v := range before {
		f.drop(v.id)
	}
	for j, v := range sum {
		s.sum[j] = int64(math.Min(math.Max(v, 0), math.MaxInt64/4))
	}
	if report.Centroid != nil && report.Centroid.Valid() && report.RadiusKm >= 0 && finite(report.RadiusKm) {
		s.at, s.radiusKm = onSphere(*report.Centroid), report.RadiusKm
	}
	if report.Network != nil && report.Network.Valid() && report.NetworkMs >= 0 && finite(report.NetworkMs) {
		c := *report.Network
		s.net, s.netMs = &c, report.NetworkMs
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// fedQuery is a request prepared for all sites.
type fedQuery struct {
	*Request
	Need    spec.Resources // with the least that a runtime takes beside it
	f       *Federation
	suits   []bool // by class
	need    []amountOf
	holds   map[string]bool // sites with instances of the same application
	at      [3]float32      // of placement.location
	atKm    float64
	wantsAt bool
	links   []siteLink // to services at sites,
	without []partner  // and to those without a place
}

func (f *Federation) query(r *Request) *fedQuery {
	q := &fedQuery{Request: r, Need: r.Spec.LeastCost(), f: f, suits: make([]bool, len(f.classes)), holds: map[string]bool{}}
	need, arch := neededDevices(r.Spec), r.Spec.Architectures()
	for id, k := range f.classes {
		q.suits[id] = r.Spec.RuntimeOn(k.Arch, k.Runtimes, nil) != "" && (len(arch) == 0 || slices.Contains(arch, k.Arch)) &&
			!slices.ContainsFunc(need, func(d string) bool { return !slices.Contains(k.Devices, d) }) && (k.Egress || !r.holdsEgress()) &&
			spec.LackedFeature(r.Spec, k.Features) == ""
	}
	for i, v := range q.Need.Vector() {
		if v > 0 {
			q.need = append(q.need, amountOf{i, v})
		}
	}
	for _, peer := range r.Peers {
		q.holds[peer.Worker] = true
	}
	if p := &r.Spec.Placement; p.Location != nil {
		q.at, q.atKm, q.wantsAt = onSphere(*p.Location), p.MaxDistance, true
	}
	q.prepareLinks()
	return q
}

// verdict says what rules a site out; the text is written for those alone that are shown.
type verdict int

const (
	possible verdict = iota
	tried
	notConnected
	inQuarantine
	cordoned
	otherCluster
	otherLabels
	noReport
	noArea
	tooFar
	unknownPlace
	noClass
	farOfLink
	noWayOfLink
	noPlaceOfLink
	tooLittle
)

// verdictNames is the table of what verdicts are about.
var verdictNames = map[verdict]string{tried: "rejected", notConnected: "connected", inQuarantine: "quarantine",
	cordoned: "cordon", otherCluster: "cluster", otherLabels: "labels",
	noReport: "report", noArea: "area", tooFar: "distance", unknownPlace: "location", noClass: "runtime",
	farOfLink: "link", noWayOfLink: "link", noPlaceOfLink: "link", tooLittle: "capacity"}

// check applies what the aggregate proves impossible.
func (q *fedQuery) check(s *site) verdict {
	p := &q.Spec.Placement
	switch {
	case len(q.Avoid) > 0 && slices.Contains(q.Avoid, s.name):
		return tried
	case !p.AllowsCluster(s.name):
		return otherCluster
	case !spec.HasLabels(s.labels, p.ClusterLabels):
		return otherLabels
	case !s.connected:
		return notConnected
	case s.quarantine != "":
		return inQuarantine
	case s.cordon != "":
		return cordoned
	case !s.reported:
		return noReport
	case p.Area != "" && !slices.Contains(s.areas, p.Area):
		return noArea
	}
	if q.wantsAt && q.atKm > 0 {
		if v := s.within(q.at, q.atKm); v != possible {
			return v
		}
	}
	for _, u := range p.Users {
		if u.Location != nil && u.MaxDistance > 0 {
			if v := s.within(onSphere(*u.Location), u.MaxDistance); v != possible {
				return v
			}
		}
	}
	out := noClass
	for i := range s.classes {
		k := &s.classes[i]
		if !q.suits[k.id] || k.workers == 0 {
			continue
		}
		out = tooLittle
		if q.missing(k) < 0 || p.Priority > s.lowest {
			return q.linked(s)
		}
	}
	return out
}

// missing gives a resource of which no worker of the class can have enough, or -1.
func (q *fedQuery) missing(k *classView) int {
	for _, a := range q.need {
		if float64(a.amount) > k.most[a.resource] {
			return a.resource
		}
	}
	return -1
}

// rounding makes up for places held in float32, in kilometres: a site is ruled out only by what is proved.
const rounding = 0.01

// within reports whether some worker of a site may be so near to a point.
func (s *site) within(p [3]float32, km float64) verdict {
	if s.at == ([3]float32{}) {
		return unknownPlace
	}
	if kmOf(distance2(s.at, p))-s.radiusKm > km+rounding {
		return tooFar
	}
	return possible
}

// fits estimates how many workers of a site have room: in each class that suits, their number times the probability,
// taking each resource as normally distributed and independent of the others, that all suffice.
func (q *fedQuery) fits(s *site) float64 {
	// What was handed out since the report is taken to be so many of what is asked for now, spread evenly: each worker has
	// got some, and a part of them one more.
	units := 0.0
	for _, a := range q.need {
		units = max(units, float64(s.pending[a.resource])/float64(a.amount))
	}
	each, more := 0.0, 0.0
	if units > 0 && s.workers > 0 {
		each = math.Floor(units / float64(s.workers))
		more = units/float64(s.workers) - each
	}
	total := 0.0
	for i := range s.classes {
		k := &s.classes[i]
		if !q.suits[k.id] || k.workers == 0 {
			continue
		}
		p := q.roomFor(k, each+1)
		if more > 0 {
			p = (1-more)*p + more*q.roomFor(k, each+2)
		}
		total += k.workers * p
	}
	return total
}

// roomFor gives the probability that a worker of a class has room for so many instances.
func (q *fedQuery) roomFor(k *classView, count float64) float64 {
	p := 1.0
	for _, a := range q.need {
		short := count*float64(a.amount) - k.mean[a.resource]
		switch dev := k.stddev[a.resource]; {
		case dev > 1e-9:
			p *= q.f.exceeds(short / dev)
		case short > 0:
			p *= 0.01 // the aggregate may be old; not proof
		}
	}
	return p
}

// Weights of what makes one site better than another. Keeping an application together comes first, then a site that can
// hold all of it, then how surely a worker fits, then how near it is.
const (
	weighTogether = 4
	weighWhole    = 2
	weighNetwork  = 1
	weighPlace    = 0.5
)

func (q *fedQuery) score(s *site) float64 {
	n := q.fits(s)
	score := n / (1 + n)
	if n >= 0.5 {
		if q.holds[s.name] {
			score += weighTogether
		}
		if whole := q.Whole.Vector(); whole != (spec.ResourceVector{}) && fitsIn(&whole, &s.sum) {
			score += weighWhole
		}
	}
	if q.wantsAt && s.at != ([3]float32{}) {
		score += weighPlace / (1 + max(0, kmOf(distance2(s.at, q.at))-s.radiusKm)/100)
	}
	return score + weighNetwork*q.nearness(s)
}

func fitsIn(need, have *spec.ResourceVector) bool {
	for i := range need {
		if need[i] > 0 && need[i] > have[i] {
			return false
		}
	}
	return true
}

// maxSites bounds the sites that a decision lists, maxRuledOut those of them that were ruled out.
const (
	maxSites    = 16
	maxRuledOut = 16
)

// Rank orders the sites that may hold an instance, best first and at most keep of them (Oakestra, section 3.2: the
// priority list of the root scheduler). A site is ruled out only by what its aggregate proves impossible. The decision
// tells of each site shown what it scored or what ruled it out, and counts the rest.
func (f *Federation) Rank(now time.Time, req *Request, seed uint64, keep int) ([]string, wire.Decision) {
	decision := wire.Decision{At: now, Instance: req.Instance, Tier: "root", Policy: "aggregate", Seed: seed, Considered: len(f.list)}
	if len(f.list) == 0 {
		decision.Why = []wire.Reason{{What: "clusters", Text: "no cluster has joined", Hint: "join one with `skerry token create --role cluster`"}}
		return nil, decision
	}
	q := f.query(req)
	var best []ranked
	var out []int
	var counts [tooLittle + 1]int
	var miss nearMiss
	for i := range f.list {
		s := &f.list[i]
		if v := q.check(s); v != possible {
			counts[v]++
			out = f.insertByName(out, i)
			if v >= farOfLink && v <= noPlaceOfLink {
				miss.see(q, s)
			}
			continue
		}
		best = insertRanked(best, ranked{i, q.leaves(s), q.score(s) * s.trust, mix(seed, s.hash)}, f, keep)
	}
	names := make([]string, 0, len(best))
	for n, b := range best {
		names = append(names, f.list[b.site].name)
		if n < maxSites {
			k := wire.Candidate{Name: f.list[b.site].name, Score: b.score, Chosen: n == 0}
			if s := &f.list[b.site]; s.trust < 1 && s.suspicion != "" {
				k.Suspicion = suspicionText(s.trust, s.suspicion)
			}
			decision.Top = append(decision.Top, k)
		}
	}
	if len(names) > 0 {
		decision.Chosen = names[0]
	}
	for _, i := range out {
		reason := q.reason(&f.list[i])
		reason.Count = 1
		own := reason
		decision.Top = append(decision.Top, wire.Candidate{Name: f.list[i].name, Out: &own})
		reason.Text = f.list[i].name + ": " + reason.Text
		decision.Why = append(decision.Why, reason)
	}
	miss.first(&decision)
	total := 0
	for v, n := range counts {
		if total += n; n > 0 && len(out) == maxRuledOut {
			decision.Why = append(decision.Why, wire.Reason{What: verdictNames[verdict(v)], Count: n,
				Text: fmt.Sprintf("%d clusters in all are ruled out by %s", n, verdictNames[verdict(v)])})
		}
	}
	if total == len(out) && len(out) == maxRuledOut {
		decision.Why = decision.Why[:maxRuledOut] // all of them are told of
	}
	decision.Bound()
	return names, decision
}

type ranked struct {
	site   int
	leaves int // services to which it leaves a place; these come before any score
	score  float64
	tie    uint64
}

// insertRanked keeps the best few, best first.
func insertRanked(list []ranked, r ranked, f *Federation, keep int) []ranked {
	order := func(a, b ranked) int {
		if a.leaves != b.leaves {
			return cmp.Compare(b.leaves, a.leaves)
		}
		if a.score != b.score {
			return cmp.Compare(b.score, a.score)
		}
		return cmp.Or(cmp.Compare(a.tie, b.tie), strings.Compare(f.list[a.site].name, f.list[b.site].name))
	}
	if len(list) == keep && order(r, list[keep-1]) > 0 {
		return list
	}
	i, _ := slices.BinarySearchFunc(list, r, order)
	list = slices.Insert(list, i, r)
	return list[:min(len(list), keep)]
}

func (f *Federation) insertByName(list []int, n int) []int {
	if len(list) == maxRuledOut && f.list[n].name > f.list[list[maxRuledOut-1]].name {
		return list
	}
	i, _ := slices.BinarySearchFunc(list, n, func(a, b int) int { return strings.Compare(f.list[a].name, f.list[b].name) })
	list = slices.Insert(list, i, n)
	return list[:min(len(list), maxRuledOut)]
}

// reason writes what rules a site out.
func (q *fedQuery) reason(s *site) wire.Reason {
	p := &q.Spec.Placement
	switch q.check(s) {
	case tried:
		return wire.Reason{What: "rejected", Text: "it had no place for the instance just now"}
	case notConnected:
		return wire.Reason{What: "connected", Text: "it is not connected"}
	case inQuarantine:
		return wire.Reason{What: "quarantine", Text: "it is in quarantine: " + s.quarantine, Hint: "`skerry uncordon cluster/" + s.name + "` ends that"}
	case cordoned:
		return wire.Reason{What: "cordon", Text: "it is cordoned: " + s.cordon, Hint: "`skerry uncordon cluster/" + s.name + "` ends that"}
	case otherCluster:
		if p.Cluster == "" {
			return wire.Reason{What: "cluster", Text: "only clusters " + strings.Join(p.Clusters, ", ") + " are asked for"}
		}
		return wire.Reason{What: "cluster", Text: "only cluster " + p.Cluster + " is asked for"}
	case otherLabels:
		return wire.Reason{What: "labels", Text: "its labels are not " + spec.LabelText(p.ClusterLabels),
			Hint: "`skerry label cluster " + s.name + " " + strings.ReplaceAll(spec.LabelText(p.ClusterLabels), ",", " ") + "` sets them"}
	case noReport:
		return wire.Reason{What: "report", Text: "it has not reported its resources yet"}
	case noArea:
		return wire.Reason{What: "area", Text: fmt.Sprintf("it has no worker in area %q", p.Area)}
	case unknownPlace:
		return wire.Reason{What: "location", Text: "where its workers are is not known", Hint: "its workers need --location LAT,LON"}
	case tooFar:
		return q.farReason(s)
	case farOfLink, noWayOfLink, noPlaceOfLink:
		r, _ := q.linkReason(s)
		return r
	case noClass:
		if s.workers == 0 {
			return wire.Reason{What: "workers", Text: "it has no workers in touch"}
		}
		return q.classReason(s)
	}
	for i := range s.classes {
		if k := &s.classes[i]; q.suits[k.id] && k.workers > 0 {
			j := q.missing(k)
			name := spec.ResourceNames[j]
			needs := fmt.Sprintf("needs %s of %s", amount(j, q.Request.Need.Vector()[j]), name)
			if own := q.Need.Vector()[j] - q.Request.Need.Vector()[j]; own > 0 {
				needs += fmt.Sprintf(", and %s for runtime %s", amount(j, own), q.Spec.Runtimes()[0])
			}
			has := fmt.Sprintf("no worker can have more than %s free", about(j, int64(k.most[j])))
			if k.workers > 1 && k.most[j] >= k.sum[j] {
				has = fmt.Sprintf("its %.0f workers have %s free in all", k.workers, about(j, int64(k.sum[j])))
			}
			return wire.Reason{What: name, Text: needs + ", " + has,
				Hint: fmt.Sprintf("ask for less %s, or add a larger worker", name)}
		}
	}
	return wire.Reason{What: "capacity"}
}

func (q *fedQuery) farReason(s *site) wire.Reason {
	p := &q.Spec.Placement
	if q.wantsAt && q.atKm > 0 && s.within(q.at, q.atKm) == tooFar {
		km := kmOf(distance2(s.at, q.at)) - s.radiusKm
		return wire.Reason{What: "distance", Text: fmt.Sprintf("its nearest worker is at least %.0f km away", km),
			Hint: fmt.Sprintf("raise placement.maxDistance to %.0f or add a worker nearer", math.Ceil(km))}
	}
	for i, u := range p.Users {
		if u.Location != nil && u.MaxDistance > 0 && s.within(onSphere(*u.Location), u.MaxDistance) == tooFar {
			return wire.Reason{What: "distance", Text: fmt.Sprintf("its nearest worker is at least %.0f km from user %d",
				kmOf(distance2(s.at, onSphere(*u.Location)))-s.radiusKm, i)}
		}
	}
	return wire.Reason{What: "distance"}
}

// classReason tells what no class of a site has.
func (q *fedQuery) classReason(s *site) wire.Reason {
	some := func(ok func(k *wire.Class) bool) bool {
		return slices.ContainsFunc(s.classes, func(v classView) bool { return v.workers > 0 && ok(&q.f.classes[v.id]) })
	}
	if arch := q.Spec.Architectures(); len(arch) > 0 && !some(func(k *wire.Class) bool { return slices.Contains(arch, k.Arch) }) {
		return wire.Reason{What: "arch", Text: "none of its workers is " + strings.Join(arch, " or ")}
	}
	if !some(func(k *wire.Class) bool { return q.Spec.RuntimeOn(k.Arch, k.Runtimes, nil) != "" }) {
		var has []string
		for _, v := range s.classes {
			if v.workers > 0 {
				has = append(has, q.f.classes[v.id].Runtimes...)
			}
		}
		if miss := q.Spec.ClassMiss(has); miss != "" {
			return wire.Reason{What: "runtimeClass", Text: "on its workers, " + miss, Hint: classHint}
		}
		return wire.Reason{What: "runtime", Text: "none of its workers has a working runtime " + runtimes(q.Spec)}
	}
	if q.holdsEgress() && !some(func(k *wire.Class) bool { return k.Egress }) {
		return wire.Reason{What: "egress", Text: "none of its workers can hold the service to its egress policy",
			Hint: "run workers there without --no-network and with this version, or leave egress out"}
	}
	if !some(func(k *wire.Class) bool { return spec.LackedFeature(q.Spec, k.Features) == "" }) {
		if some(func(k *wire.Class) bool { return spec.LackedFeature(q.Spec, k.Features) == spec.FeatureNFS }) {
			return wire.Reason{What: "features", Text: "none of its workers mounts NFS servers for instances", Hint: nfsHint}
		}
		return wire.Reason{What: "features", Text: "no agent of its workers knows all of these: " + strings.Join(spec.FeaturesOf(q.Spec), ", "),
			Hint: featuresHint}
	}
	return wire.Reason{What: "devices", Text: "none of its workers has runtime, architecture and devices " +
		strings.Join(neededDevices(q.Spec), ", ") + " together"}
}
