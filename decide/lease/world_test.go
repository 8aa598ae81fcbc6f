package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"skerry.dev/skerry/wire"
)

// world plays candidates, voters and the network between them. Everything random comes from one seed.
type world struct {
	rng        *rand.Rand
	now        time.Time
	queue      []happening
	order      int
	candidates map[string]*candidate
	workers    map[string]*voter
	names      []string        // of candidates and workers
	cut        map[string]bool // "from>to"
	loss       float64
	acked      []entry           // writes that were acknowledged, in the order in which they were
	ackedBy    []uint64          // in which term
	terms      map[uint64]string // who led in a term
	writes     int
	faults     []string
	took       int  // candidates that began to lead by votes
	calm       bool // no workers come or go
	slept      map[State]int
}

type happening struct {
	at    time.Time
	order int
	fn    func()
}

// entry is one revision of a store.
type entry struct {
	term   uint64
	value  int
	voters []string
	bound  *bool
}

// candidate is a machine with a store.
type candidate struct {
	w     *world
	name  string
	rate  float64 // of its clock
	up    bool
	life  int
	log   []entry
	owner bool // it has led last: the store is its own
	core  *Candidate
	// of the leader, how far each follower is; of a follower, whom it follows and when it heard of it
	sent    map[string]int
	follows string
	heard   time.Time
	waits   []int // lengths of the log that wait to be acknowledged
	aside   int   // revisions that were set aside
	checked int   // acknowledged writes that were looked for
}

type voter struct {
	w     *world
	name  string
	rate  float64
	up    bool
	life  int
	state VoterState
	core  *Voter
	link  string    // the candidate that it is connected to
	heard time.Time // a sign of life of it
}

const ttl, patience = 5 * time.Second, time.Second

func newWorld(seed uint64, workers int, drift float64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(1_000_000, 0), candidates: map[string]*candidate{},
		workers: map[string]*voter{}, cut: map[string]bool{}, terms: map[uint64]string{}, slept: map[State]int{}}
	clock := func() float64 { return 1 + drift*(2*w.rng.Float64()-1) }
	var voters []string
	for i := range workers {
		name := fmt.Sprintf("w%d", i)
		voters = append(voters, name)
		w.workers[name] = &voter{w: w, name: name, rate: clock()}
	}
	for i, name := range []string{"a", "b", "c"} {
		s := &candidate{w: w, name: name, rate: clock(), owner: i == 0}
		if i == 0 {
			s.log = []entry{{term: 1, voters: voters}}
		}
		w.candidates[name] = s
	}
	w.names = slices.Concat([]string{"a", "b", "c"}, voters)
	for _, n := range w.names {
		w.start(n)
	}
	return w
}

func (w *world) at(d time.Duration, fn func()) {
	w.order++
	h := happening{w.now.Add(d), w.order, fn}
	i := sort.Search(len(w.queue), func(i int) bool {
		q := w.queue[i]
		return q.at.After(h.at) || q.at.Equal(h.at) && q.order > h.order
	})
	w.queue = slices.Insert(w.queue, i, h)
}

func (w *world) run(d time.Duration) {
	end := w.now.Add(d)
	for len(w.queue) > 0 && !w.queue[0].at.After(end) && len(w.faults) == 0 {
		h := w.queue[0]
		w.queue = w.queue[1:]
		w.now = h.at
		h.fn()
		w.check()
	}
	w.now = end
}

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, w.now.Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

// pass carries something from one node to another, if it gets there and that is up.
func (w *world) pass(from, to string, fn func()) {
	if w.cut[from+">"+to] || w.rng.Float64() < w.loss {
		return
	}
	w.at(time.Millisecond+time.Duration(w.rng.IntN(40))*time.Millisecond, func() {
		if w.up(to) {
			fn()
		}
	})
}

func (w *world) up(name string) bool {
	if s := w.candidates[name]; s != nil {
		return s.up
	}
	return w.workers[name].up
}

func scaled(t time.Time, rate float64) time.Time {
	return time.Unix(0, int64(float64(t.UnixNano())*rate))
}

func (w *world) start(name string) {
	if s := w.candidates[name]; s != nil {
		s.start()
	} else {
		w.workers[name].start()
	}
}

func (w *world) stop(name string) {
	if s := w.candidates[name]; s != nil {
		s.up, s.life = false, s.life+1
	} else {
		v := w.workers[name]
		v.up, v.life = false, v.life+1
	}
}

// every does something again and again until a node's life ends.
func (w *world) every(d time.Duration, life *int, fn func()) {
	mine := *life
	var again func()
	again = func() {
		if *life != mine {
			return
		}
		fn()
		w.at(d, again)
	}
	w.at(time.Duration(w.rng.Int64N(int64(d))), again)
}

// ---- workers

func (v *voter) now() time.Time { return scaled(v.w.now, v.rate) }

func (v *voter) start() {
	v.up, v.link = true, ""
	v.core = NewVoter(v.state, v.now(), ttl)
	v.w.every(250*time.Millisecond, &v.life, v.tick)
}

func (v *voter) save() {
	if v.core.Term < v.state.Term || v.core.LeaseTerm < v.state.LeaseTerm {
		v.w.fault("%s went back from term %d to %d", v.name, v.state.Term, v.core.Term)
	}
	v.state = v.core.VoterState
	v.state.InSync = slices.Clone(v.state.InSync)
}

// tick looks for the cluster where there is none, and offers the vote.
func (v *voter) tick() {
	if v.link != "" && v.w.now.Sub(v.heard) > time.Second {
		v.link = ""
	}
	to := []string{"a"}
	for _, s := range v.core.Candidates() {
		to = append(to, s.Name)
	}
	if v.link != "" {
		to = []string{v.link}
	}
	slices.Sort(to)
	for _, name := range slices.Compact(to) {
		s := v.w.candidates[name]
		v.w.pass(v.name, name, func() { s.greet(v) })
		if v.link == "" {
			vote := v.core.Vote(v.now())
			v.w.pass(v.name, name, func() {
				s.core.Offered(s.now(), v.name, vote)
				s.flush()
			})
		}
	}
}

func (v *voter) hear(from string, m wire.Message) {
	s := v.w.candidates[from]
	switch m := m.(type) {
	case *wire.Lease:
		p, save := v.core.Lease(v.now(), m)
		if save {
			v.save()
		}
		v.w.pass(v.name, from, func() {
			s.core.Promised(s.now(), v.name, p)
			s.flush()
		})
	case *wire.Ask:
		a, save := v.core.Ask(v.now(), m)
		if save {
			v.save()
		}
		v.w.pass(v.name, from, func() {
			s.core.Offered(s.now(), v.name, a)
			s.flush()
		})
	}
}

// ---- candidates

func (s *candidate) now() time.Time { return scaled(s.w.now, s.rate) }

func (s *candidate) books() Books {
	b := Books{Revision: int64(len(s.log)), Order: []string{"a", "b", "c"}}
	if b.Revision > 0 {
		b.LeaseTerm = s.log[b.Revision-1].term
	}
	for i := len(s.log) - 1; i >= 0 && b.Voters == nil; i-- {
		b.Voters = s.log[i].voters
	}
	return b
}

func (s *candidate) bound() bool {
	for i := len(s.log) - 1; i >= 0; i-- {
		if b := s.log[i].bound; b != nil {
			return *b
		}
	}
	return false
}

func (s *candidate) start() {
	s.up, s.follows, s.sent, s.waits, s.heard = true, "", map[string]int{}, nil, time.Time{}
	s.core = New(Options{Me: wire.LeaseCandidate{Name: s.name, Addr: s.name}, TTL: ttl, Patience: patience})
	if s.owner && !s.bound() {
		s.log = append(s.log, entry{term: s.books().LeaseTerm + 1})
		s.core.SetBooks(s.books())
		s.core.Alone(s.now())
	}
	s.core.SetBooks(s.books())
	s.w.every(50*time.Millisecond, &s.life, s.tick)
}

func (s *candidate) tick() {
	if s.core.State() == Standing {
		s.core.SetBooks(s.books())
	}
	s.sleepOrTick()
	s.flush()
	switch s.core.State() {
	case Leading:
		s.follows = ""
		for _, name := range []string{"a", "b", "c"} {
			if at, ok := s.sent[name]; ok {
				s.stream(name, at)
			}
		}
		s.elect()
		s.write()
	case Standing:
		if s.follows != "" && s.w.now.Sub(s.heard) > 2*time.Second {
			s.follows = ""
		}
		if s.follows == "" && s.w.rng.IntN(6) == 0 {
			for _, name := range []string{"a", "b", "c"} {
				if name != s.name {
					s.w.pass(s.name, name, func() { s.w.candidates[name].follow(s) })
				}
			}
		}
	}
}

// sleepOrTick calls Tick as whoever runs the core does: not while it is asleep. Then a twin that is ticked, also much later, must stay as
// it is.
func (s *candidate) sleepOrTick() {
	if !s.core.Asleep() {
		s.core.Tick(s.now())
		return
	}
	s.w.slept[s.core.State()]++
	for _, later := range []time.Duration{0, 100 * ttl} {
		twin := *s.core
		if s.core.holder != nil {
			h := *s.core.holder
			twin.holder = &h
		}
		before := fmt.Sprintf("%+v %+v", twin, twin.holder)
		holder := twin.holder
		twin.Tick(s.now().Add(later))
		if after := fmt.Sprintf("%+v %+v", twin, holder); after != before {
			s.w.faults = append(s.w.faults, fmt.Sprintf("%s was asleep and had something to do:\n%s\n%s", s.name, before, after))
		}
	}
}

// flush sends what the core says, after the store knows that there may be in-sync replicas, and takes notice of what was acknowledged.
func (s *candidate) flush() {
	if s.core.Ready() {
		s.log = append(s.log, entry{term: s.core.Term()})
		s.owner, s.waits, s.sent = true, nil, map[string]int{}
		s.core.Begin(int64(len(s.log)))
		s.w.took++
	}
	if s.core.State() == Leading {
		if was := s.bound(); was != s.core.Bound() {
			b := !was
			s.log = append(s.log, entry{term: s.core.Term(), bound: &b})
			s.core.Committed(int64(len(s.log)))
		}
		upTo := int(s.core.Released())
		for len(s.waits) > 0 && s.waits[0] <= upTo {
			s.w.acked = append(s.w.acked, s.log[s.waits[0]-1])
			s.w.ackedBy = append(s.w.ackedBy, s.core.Term())
			s.waits = s.waits[1:]
		}
	} else {
		s.waits = nil
	}
	for _, o := range s.core.Take() {
		v := s.w.workers[o.To]
		s.w.pass(s.name, o.To, func() { v.hear(s.name, o.Msg.(wire.Message)) })
	}
}

// write does what a user asks for.
func (s *candidate) write() {
	if s.w.rng.IntN(6) == 0 && s.core.Writes(s.now()) && len(s.waits) < 5 {
		s.w.writes++
		s.log = append(s.log, entry{term: s.core.Term(), value: s.w.writes})
		s.waits = append(s.waits, len(s.log))
		s.core.Committed(int64(len(s.log)))
		s.flush()
	}
}

// elect takes workers in and out.
func (s *candidate) elect() {
	if s.w.calm || s.w.rng.IntN(40) != 0 {
		return
	}
	var want []string
	for _, name := range s.w.names[3:] {
		if s.w.rng.IntN(8) != 0 {
			want = append(want, name)
		}
	}
	if next, ok := s.core.Council(want); ok {
		s.core.Counts(next, int64(len(s.log)+1))
		s.log = append(s.log, entry{term: s.core.Term(), voters: next})
		s.core.Committed(int64(len(s.log)))
		s.flush()
	}
}

// greet answers a worker that looks for the cluster, or keeps in touch.
func (s *candidate) greet(v *voter) {
	term := s.core.Term()
	if s.core.State() != Leading {
		return
	}
	s.w.pass(s.name, v.name, func() {
		if term < v.core.Term {
			return // it would be a step back
		}
		fresh := v.link != s.name
		v.link, v.heard = s.name, v.w.now
		if fresh {
			v.w.pass(v.name, s.name, func() {
				s.core.Came(s.now(), v.name)
				s.flush()
			})
		}
	})
}

// follow takes that another candidate asks for the store.
func (s *candidate) follow(f *candidate) {
	if s.core.State() != Leading || f.books().LeaseTerm > s.core.Term() {
		return
	}
	if !s.core.Follows(s.now(), wire.LeaseCandidate{Name: f.name, Addr: f.name}) {
		return
	}
	s.w.pass(s.name, f.name, func() {
		if f.core.State() != Standing || s.core.State() != Leading || f.books().LeaseTerm > s.core.Term() {
			return
		}
		common := min(len(f.log), len(s.log))
		for common > 0 && f.log[common-1].term != s.log[common-1].term {
			common--
		}
		f.aside += len(f.log) - common
		if common < len(f.log) || !f.owner { // a copy is replaced at once and whole
			f.log = slices.Clone(f.log[:common])
		}
		f.owner, f.follows, f.heard = false, s.name, f.w.now
		s.sent[f.name] = len(f.log)
	})
}

// stream sends a follower what it has not acknowledged.
func (s *candidate) stream(name string, at int) {
	f, term, part := s.w.candidates[name], s.core.Term(), slices.Clone(s.log[min(at, len(s.log)):])
	life := f.life
	s.w.pass(s.name, name, func() {
		if f.life != life || f.follows != s.name || f.core.State() != Standing || len(f.log) < at {
			return
		}
		f.heard = f.w.now
		f.core.Heard(f.now(), term)
		if len(f.log) < at+len(part) {
			f.log = append(f.log[:at:at], part...)
		}
		f.core.SetBooks(f.books())
		n := len(f.log)
		s.w.pass(name, s.name, func() {
			if s.core.State() == Leading && s.core.Term() == term {
				if _, ok := s.sent[name]; ok {
					s.sent[name] = max(s.sent[name], n)
					s.core.Acked(s.now(), name, int64(n))
					s.flush()
				}
			}
		})
	})
	if fl := s.core.holder.followers[name]; fl != nil && s.now().Sub(fl.heard) > 2*patience {
		delete(s.sent, name)
		s.core.Left(s.now(), name)
		s.flush()
	}
}

// check holds the world to what was promised. Logs of those who lead only grow, so that writes are looked for once in each term, and
// those acknowledged later once more.
func (w *world) check() {
	for _, name := range []string{"a", "b", "c"} {
		s := w.candidates[name]
		if !s.up || s.core.State() != Leading {
			s.checked = 0
			continue
		}
		term := s.core.Term()
		if was, ok := w.terms[term]; ok && was != name {
			w.fault("%s and %s both lead in term %d", was, name, term)
		}
		w.terms[term] = name
		if s.checked == len(w.acked) {
			continue
		}
		have := map[int]bool{}
		for _, e := range s.log {
			have[e.value] = true
		}
		for i := s.checked; i < len(w.acked); i++ {
			if w.ackedBy[i] <= term && !have[w.acked[i].value] {
				w.fault("write %d was acknowledged in term %d and is missing at %s, which leads in term %d", w.acked[i].value, w.ackedBy[i], name, term)
				return
			}
		}
		s.checked = len(w.acked)
	}
}
