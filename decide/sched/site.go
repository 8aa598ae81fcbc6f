package sched

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Worker is what the scheduler is told of one worker.
type Worker struct {
	Name     string
	Arch     string
	Runtimes []string // that passed their self-test
	Costs    spec.RuntimeCosts
	Devices  []string
	// Accelerators are the classes of devices that it hands in for gpus and tpus.
	Accelerators spec.Accelerators
	Attachable   []string // names of devices that instances may have, each one of them at a time unless DeviceDetails says more
	// DeviceDetails tells more of some of them, by name, and DevicesTaken how many instances have each.
	DeviceDetails map[string]wire.Device
	DevicesTaken  map[string]int
	DevicesWere   map[string]string // nodes of those that are taken and not told of any more
	Labels        map[string]string
	Taints        []string // KEY or KEY=VALUE
	Area          string
	Location      *spec.Location
	Coordinate    *spec.Coordinate
	Capacity      spec.Resources
	Available     spec.Resources  // capacity less what is reserved
	HostPorts     map[string]bool // taken, as "tcp/8080", or "tcp/8080@127.0.0.1" of one address
	Refusing      string          // why it takes nothing new; empty: it does
	Lost          bool            // not in touch
	Reported      time.Time       // when its numbers came; zero: now
	Load          spec.Contention
	Power         *wire.Power
	Trust         float64 // by how much its score counts, above 0 and at most 1; 0: all of it
	Suspicion     string  // why that is less than all
	// Limited says that its agent does Abilities beyond a process and nothing else; Skerry's own does all.
	Limited   bool
	Abilities []string
	Egress    bool // it holds instances to a policy of egress
	Levels    bool // and to security levels
	// Signatures: it starts signed images alone where its site asks for that.
	Signatures bool
	// Features are those of manifests that its agent honours.
	Features []string
}

// Site holds a site's workers in columns, in blocks of 64 near each other, with a summary for each block and each 64
// blocks: the index in which a query skips what cannot fit. It is not safe for use by several goroutines.
type Site struct {
	// slots finds the first slot by the hash of its name, and next the one after it with the same hash, or -1: a map of names
	// would take a third as much as all the rest.
	slots map[uint32]int32
	next  []int32
	count int
	free  []int32 // slots of removed workers

	// One entry per slot.
	names   []string
	hash    []uint32
	kindOf  []int32
	avail   amounts
	perUnit [2][]float32 // 1/capacity for CPU and memory; 0 where there is none
	at      [][3]float32 // point on the unit sphere; zero: unknown
	net     [][4]float32 // network coordinate and height, in milliseconds; height -1: unknown
	seen    []uint32     // Unix seconds of the last report; 0: always fresh
	more    []*extra     // what few workers have

	// One entry per block: bits of slots in use, and of those that take new work.
	live, open []uint64
	blocks     []summary
	supers     []summary
	stale      []uint64    // blocks whose summary is out of date
	levels     [][8]uint64 // a byte for each slot: see level

	kinds     []*kind
	kindID    map[string]int32
	freeKinds []int32 // ids of kinds that nobody is of any more

	unsorted int // workers that were put anywhere since the last sort
}

// kind is what many workers have in common.
type kind struct {
	id     int32
	key    string
	class  wire.Class
	costs  spec.RuntimeCosts
	taints []string
	area   string
	users  int

	limited   bool
	abilities []string
	levels    bool

	signatures bool
}

// extra is what few workers have.
type extra struct {
	labels    map[string]string
	ports     map[string]bool
	devices   []device
	taken     map[string]int    // of these, by instances
	were      map[string]string // nodes of those that are taken and gone
	classes   spec.Accelerators
	load      [spec.NumShares]float32 // sum of the intensities of what runs there
	suffers   [spec.NumShares]float32 // sum of their sensitivities
	power     *wire.Power
	refusing  string
	lost      bool
	trust     float64 // 0: all
	suspicion string
}

// superBlocks is how many blocks one upper summary covers.
const superBlocks = 64

// noHeight marks an unknown coordinate.
const noHeight = -1

// NewSite makes an empty site.
func NewSite() *Site { return &Site{slots: map[uint32]int32{}, kindID: map[string]int32{}} }

// Len counts the workers.
func (s *Site) Len() int { return s.count }

func (s *Site) find(name string) int {
	n, ok := s.slots[hashOf(name)]
	for ; ok && n >= 0; n = s.next[n] {
		if s.names[n] == name {
			return int(n)
		}
	}
	return -1
}

// link makes a slot findable by its name.
func (s *Site) link(n int) {
	s.next[n] = -1
	if first, ok := s.slots[s.hash[n]]; ok {
		s.next[n] = first
	}
	s.slots[s.hash[n]] = int32(n)
	s.count++
}

// unlink undoes link.
func (s *Site) unlink(n int) {
	s.count--
	switch first := s.slots[s.hash[n]]; {
	case first == int32(n) && s.next[n] < 0:
		delete(s.slots, s.hash[n])
	case first == int32(n):
		s.slots[s.hash[n]] = s.next[n]
	default:
		for s.next[first] != int32(n) {
			first = s.next[first]
		}
		s.next[first] = s.next[n]
	}
}

// Set adds a worker or replaces what is known of it. Numbers that cannot be (not finite, off the earth) count as unknown.
func (s *Site) Set(worker *Worker) {
	kind := s.kind(worker) // before the old one is given up, which is often the same
	n := s.find(worker.Name)
	if n < 0 {
		n = s.add(worker.Name)
	} else {
		s.dropKind(s.kindOf[n])
	}
	s.kindOf[n] = kind
	s.avail.set(n, worker.Available.Vector())
	capacity := worker.Capacity.Vector()
	for i := range s.perUnit {
		s.perUnit[i][n] = 0
		if capacity[i] > 0 {
			s.perUnit[i][n] = 1 / float32(capacity[i])
		}
	}
	s.at[n] = [3]float32{}
	if worker.Location != nil && worker.Location.Valid() {
		s.at[n] = onSphere(*worker.Location)
	}
	s.setCoordinate(n, worker.Coordinate)
	s.seen[n] = secondsOf(worker.Reported)
	s.more[n] = extraOf(worker)
	bit := uint64(1) << (n % 64)
	s.open[n/64] &^= bit
	if worker.Refusing == "" && !worker.Lost {
		s.open[n/64] |= bit
	}
	s.touch(n)
}

// secondsOf gives a time as a column holds it; 0 stands for one that is not told.
func secondsOf(t time.Time) uint32 {
	if t.IsZero() {
		return 0
	}
	return uint32(min(max(t.Unix(), 1), math.MaxUint32))
}

func extraOf(w *Worker) *extra {
	if len(w.Labels) == 0 && len(w.HostPorts) == 0 && w.Load == (spec.Contention{}) && w.Power == nil &&
		len(w.Attachable)+len(w.DevicesTaken) == 0 && w.Accelerators == (spec.Accelerators{}) && w.Refusing == "" && !w.Lost && w.Trust == 0 {
		return nil
	}
	return &extra{labels: w.Labels, ports: w.HostPorts, devices: devicesOf(w), taken: w.DevicesTaken, were: w.DevicesWere,
		classes: w.Accelerators, load: narrow(w.Load.Intensity), suffers: narrow(w.Load.Sensitivity), power: w.Power,
		refusing: w.Refusing, lost: w.Lost, trust: w.Trust, suspicion: w.Suspicion}
}

func narrow(s spec.Shares) (out [spec.NumShares]float32) {
	for i, v := range s.Vector() {
		out[i] = float32(v)
	}
	return out
}

// SetAvailable changes what is left on a worker, which is what changes most.
func (s *Site) SetAvailable(name string, left spec.Resources) {
	if n := s.find(name); n >= 0 {
		s.setLeft(n, left.Vector())
	}
}

// SetReport changes what a worker reports often: its network coordinate (nil: unknown) and when it did.
func (s *Site) SetReport(name string, c *spec.Coordinate, at time.Time) {
	if n := s.find(name); n >= 0 {
		s.setCoordinate(n, c)
		s.seen[n] = secondsOf(at)
		s.touch(n)
	}
}

// SetLoad changes what runs on a worker does to its neighbours, and suffers from them, in all.
func (s *Site) SetLoad(name string, load spec.Contention) {
	n := s.find(name)
	if n < 0 || s.more[n] == nil && load == (spec.Contention{}) {
		return
	}
	own := extra{}
	if s.more[n] != nil {
		own = *s.more[n]
	}
	own.load, own.suffers = narrow(load.Intensity), narrow(load.Sensitivity)
	s.more[n] = &own
}

func (s *Site) setCoordinate(n int, c *spec.Coordinate) {
	s.net[n] = [4]float32{3: noHeight}
	if c != nil && c.Valid() {
		s.net[n] = [4]float32{float32(c.Vec[0]), float32(c.Vec[1]), float32(c.Vec[2]), float32(c.Height)}
	}
}

// Remove forgets a worker.
func (s *Site) Remove(name string) {
	n := s.find(name)
	if n < 0 {
		return
	}
	s.unlink(n)
	s.free = append(s.free, int32(n))
	s.dropKind(s.kindOf[n])
	s.names[n], s.more[n] = "", nil
	bit := uint64(1) << (n % 64)
	s.live[n/64] &^= bit
	s.open[n/64] &^= bit
	s.touch(n)
}

func (s *Site) add(name string) int {
	n := len(s.names)
	if last := len(s.free) - 1; last >= 0 {
		n, s.free = int(s.free[last]), s.free[:last]
	} else {
		if n%64 == 0 {
			s.live, s.open, s.blocks, s.levels = append(s.live, 0), append(s.open, 0), append(s.blocks, summary{}), append(s.levels, [8]uint64{})
			if len(s.blocks)%superBlocks == 1 {
				s.supers, s.stale = append(s.supers, summary{}), append(s.stale, 0)
			}
		}
		s.names, s.hash, s.next, s.kindOf = append(s.names, ""), append(s.hash, 0), append(s.next, -1), append(s.kindOf, 0)
		s.avail.grow()
		s.at, s.net = append(s.at, [3]float32{}), append(s.net, [4]float32{})
		s.perUnit[0], s.perUnit[1] = append(s.perUnit[0], 0), append(s.perUnit[1], 0)
		s.seen, s.more = append(s.seen, 0), append(s.more, nil)
	}
	s.names[n], s.hash[n] = name, hashOf(name)
	s.link(n)
	s.live[n/64] |= 1 << (n % 64)
	s.unsorted++
	return n
}

// hashOf is FNV-1a.
func hashOf(name string) uint32 {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return h
}

// kind finds or makes the kind of a worker.
func (s *Site) kind(worker *Worker) int32 {
	runtimes, devices, taints := sorted(worker.Runtimes), sorted(worker.Devices), sorted(worker.Taints)
	key := strings.Join([]string{worker.Arch, strings.Join(runtimes, "\x01"), strings.Join(devices, "\x01"), strings.Join(taints, "\x01"),
		worker.Area}, "\x00")
	var abilities []string
	if worker.Limited {
		abilities = sorted(worker.Abilities)
		key += "\x00" + strings.Join(abilities, "\x01")
	}
	if len(worker.Costs) > 0 {
		key += "\x00" + worker.Costs.Key()
	}
	if worker.Egress {
		key += "\x00egress"
	}
	if worker.Levels {
		key += "\x00levels"
	}
	if worker.Signatures {
		key += "\x00signatures"
	}
	features := sorted(worker.Features)
	if len(features) > 0 {
		key += "\x00" + strings.Join(features, "\x01")
	}
	id, ok := s.kindID[key]
	if !ok {
		k := &kind{key: key, costs: worker.Costs, class: wire.Class{Arch: worker.Arch, Runtimes: runtimes, Devices: devices,
			Egress: worker.Egress, Features: features},
			taints: taints, area: worker.Area, limited: worker.Limited, abilities: abilities, levels: worker.Levels,
			signatures: worker.Signatures}
		if last := len(s.freeKinds) - 1; last >= 0 {
			id, s.freeKinds = s.freeKinds[last], s.freeKinds[:last]
			s.kinds[id] = k
		} else {
			id = int32(len(s.kinds))
			s.kinds = append(s.kinds, k)
		}
		k.id = id
		s.kindID[key] = id
	}
	s.kinds[id].users++
	return id
}

// dropKind gives a kind up. Its number may come to mean another kind; the summaries know then, because whoever was of it
// or comes to be of it was touched.
func (s *Site) dropKind(id int32) {
	k := s.kinds[id]
	if k.users--; k.users == 0 {
		delete(s.kindID, k.key)
		s.freeKinds = append(s.freeKinds, id)
	}
}

func sorted(list []string) []string {
	if slices.IsSorted(list) {
		return list
	}
	return slices.Sorted(slices.Values(list))
}

func (s *Site) touch(n int) {
	b := n / 64
	s.stale[b/superBlocks] |= 1 << (b % superBlocks)
}

// refresh brings the summaries up to date, and sorts the workers anew when many came since the last time.
func (s *Site) refresh() {
	if s.unsorted > max(1024, s.count/4) {
		s.sort()
	}
	for top, mask := range s.stale {
		if mask == 0 {
			continue
		}
		s.stale[top] = 0
		for ; mask != 0; mask &= mask - 1 {
			s.summarise(top*superBlocks + bits.TrailingZeros64(mask))
		}
		sum := &s.supers[top]
		*sum = emptySummary
		for b := top * superBlocks; b < min((top+1)*superBlocks, len(s.blocks)); b++ {
			sum.join(&s.blocks[b])
		}
	}
}

// likeBlocks is how many blocks next to each other are sorted by the size of machines.
const likeBlocks = 8

// sort puts workers near each other into the same blocks: by place on the earth, else by place in the network; and among
// those of a few blocks, machines of the same kind and size, because of those that are alike a block can tell more.
func (s *Site) sort() {
	order := make([]int32, 0, s.count)
	key := make([]uint64, len(s.names))
	s.each(-1, func(n int) {
		order = append(order, int32(n))
		if s.at[n] != ([3]float32{}) {
			key[n] = morton(s.at[n], 1)
		} else {
			key[n] = 1<<63 | morton([3]float32(s.net[n][:3]), 1000)
		}
	})
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(key[a], key[b]), strings.Compare(s.names[a], s.names[b]))
	})
	for i := 0; i < len(order); i += likeBlocks * 64 {
		slices.SortFunc(order[i:min(i+likeBlocks*64, len(order))], func(a, b int32) int {
			return cmp.Or(cmp.Compare(s.kindOf[a], s.kindOf[b]), cmp.Compare(s.perUnit[0][a], s.perUnit[0][b]),
				cmp.Compare(s.perUnit[1][a], s.perUnit[1][b]), cmp.Compare(key[a], key[b]))
		})
	}
	old := *s
	size := len(order)
	*s = Site{slots: make(map[uint32]int32, size), next: make([]int32, size), kinds: old.kinds, kindID: old.kindID, freeKinds: old.freeKinds,
		names: make([]string, size), hash: make([]uint32, size), kindOf: make([]int32, size), avail: makeAmounts(size),
		at: make([][3]float32, size), net: make([][4]float32, size), seen: make([]uint32, size), more: make([]*extra, size),
		perUnit: [2][]float32{make([]float32, size), make([]float32, size)}}
	count := (size + 63) / 64
	s.live, s.open, s.blocks, s.levels = make([]uint64, count), make([]uint64, count), make([]summary, count), make([][8]uint64, count)
	tops := (count + superBlocks - 1) / superBlocks
	s.supers, s.stale = make([]summary, tops), make([]uint64, tops)
	for n, o := range order {
		s.names[n], s.hash[n], s.kindOf[n], s.at[n], s.net[n] = old.names[o], old.hash[o], old.kindOf[o], old.at[o], old.net[o]
		s.avail.set(n, old.avail.of(int(o)))
		s.seen[n], s.more[n] = old.seen[o], old.more[o]
		s.perUnit[0][n], s.perUnit[1][n] = old.perUnit[0][o], old.perUnit[1][o]
		s.link(n)
		s.live[n/64] |= 1 << (n % 64)
		s.open[n/64] |= old.open[o/64] >> (o % 64) & 1 << (n % 64)
		s.touch(n)
	}
}

// morton interleaves the bits of a point whose parts lie within [-span, span].
func morton(p [3]float32, span float32) uint64 {
	var out uint64
	for i, v := range p {
		x := uint64(math.Min(math.Max(float64((v+span)/(2*span)), 0), 1) * (1<<20 - 1))
		for bit := range 20 {
			out |= x >> bit & 1 << (3*bit + i)
		}
	}
	return out
}

func onSphere(l spec.Location) [3]float32 {
	const rad = math.Pi / 180
	lat, lon := l.Lat*rad, l.Lon*rad
	return [3]float32{float32(math.Cos(lat) * math.Cos(lon)), float32(math.Cos(lat) * math.Sin(lon)), float32(math.Sin(lat))}
}

// freshness discounts a worker whose numbers are old: not up to fullTrust, then by half for each further minute (the age
// of information, which the paper's section 3.2 leaves open).
func (s *Site) freshness(slot int, now int64) float64 {
	return s.age(slot, now) * s.trust(slot)
}

// credit is by how much the score of a worker counts whose word is doubted. It is at most 1, as age is, so that bounds of
// scores hold.
func (s *Site) trust(slot int) float64 {
	if x := s.more[slot]; x != nil && x.trust > 0 {
		return min(x.trust, 1)
	}
	return 1
}

func (s *Site) age(slot int, now int64) float64 {
	if s.seen[slot] == 0 || now-int64(s.seen[slot]) <= fullTrust {
		return 1
	}
	return math.Exp2(-float64(now-int64(s.seen[slot])-fullTrust) / 60)
}

// fullTrust is how old numbers may be, in seconds, before they count for less: a worker on which nothing changes reports
// every 60 s.
const fullTrust = 90

// Clone gives a copy that can be changed apart, for a plan.
func (s *Site) Clone() *Site {
	c := *s
	c.slots, c.kindID = maps.Clone(s.slots), maps.Clone(s.kindID)
	c.free, c.names, c.hash, c.next, c.kindOf = slices.Clone(s.free), slices.Clone(s.names), slices.Clone(s.hash), slices.Clone(s.next),
		slices.Clone(s.kindOf)
	c.avail = s.avail.clone()
	c.at, c.net, c.seen, c.more = slices.Clone(s.at), slices.Clone(s.net), slices.Clone(s.seen), slices.Clone(s.more)
	c.perUnit = [2][]float32{slices.Clone(s.perUnit[0]), slices.Clone(s.perUnit[1])}
	c.live, c.open, c.blocks, c.supers, c.stale = slices.Clone(s.live), slices.Clone(s.open), slices.Clone(s.blocks), slices.Clone(s.supers),
		slices.Clone(s.stale)
	c.levels, c.freeKinds = slices.Clone(s.levels), slices.Clone(s.freeKinds)
	c.kinds = nil
	for _, k := range s.kinds {
		own := *k
		c.kinds = append(c.kinds, &own)
	}
	return &c
}

// Take reserves what a request needs on a worker, ports included, as a placement would.
func (s *Site) Take(name string, req *Request) {
	n := s.find(name)
	if n < 0 {
		return
	}
	left := s.avail.of(n)
	for i, v := range s.needOn(n, req).Vector() {
		left[i] -= v
	}
	s.setLeft(n, left)
	var keys []string
	for _, p := range req.Spec.Ports {
		if p.HostPort > 0 {
			keys = append(keys, PortKey(p))
		}
	}
	devices := s.devicesFor(n, req.Spec)
	if len(keys)+len(devices) > 0 {
		own := extra{}
		if s.more[n] != nil {
			own = *s.more[n]
		}
		own.ports = maps.Clone(own.ports)
		if own.ports == nil {
			own.ports = map[string]bool{}
		}
		for _, k := range keys {
			own.ports[k] = true
		}
		own.takeDevices(devices, 1)
		s.more[n] = &own
	}
}

// Available gives what is left on a worker.
func (s *Site) Available(name string) (left spec.Resources, ok bool) {
	if n := s.find(name); n >= 0 {
		return spec.FromVector(s.avail.of(n)), true
	}
	return left, false
}

// Give undoes Take.
func (s *Site) Give(name string, req *Request) {
	n := s.find(name)
	if n < 0 {
		return
	}
	need := s.needOn(n, req)
	if req.Runtime != "" { // the worker may have come to have a cheaper one, or lost it
		need = req.Need.Add(req.Spec.Overhead(req.Runtime))
	}
	left := s.avail.of(n)
	for i, v := range need.Vector() {
		left[i] += v
	}
	s.setLeft(n, left)
	if x := s.more[n]; x != nil && len(x.ports)+len(x.taken) > 0 {
		own := *x
		own.ports = maps.Clone(x.ports)
		for _, p := range req.Spec.Ports {
			delete(own.ports, PortKey(p))
		}
		own.takeDevices(req.Devices, -1)
		s.more[n] = &own
	}
}
