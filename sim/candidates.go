package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"skerry.dev/skerry/decide/lease"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// Times of internal/succession.
const (
	leaseTTL          = 12 * time.Second
	candidatePatience = 2 * time.Second
	commitTime        = 15 * time.Second
	candidateBeat     = 500 * time.Millisecond // of what goes on between candidates
)

// candidates are the machines that may be a site's cluster: one leads, and two are given its store. The candidates and voters of package
// lease decide which of them leads, and when a commit counts.
type candidates struct {
	w        *World
	n        *Node
	rng      *rand.Rand // of its own, which leaves the others as they are
	born     int        // machines so far
	machines map[string]*copied
	leader   string
	core     *lease.Candidate // of the leader
	revision int64            // the newest in its store
	voters   map[string]*lease.Voter
	waiting  []unheard
	calm     bool // successors stay in touch
	bound    bool // when it crashed, somebody could be elected in the leader's place
}

// copied is a machine with a copy of the store.
type copied struct {
	store     map[string][]byte
	revision  int64
	leaseTerm uint64
	away      bool             // out of touch with whoever leads
	core      *lease.Candidate // while nobody leads
}

// unheard is a commit that in-sync replicas do not have yet.
type unheard struct {
	revision int64
	done     func(error)
}

// useCandidates gives a site two successors. Its workers must be there.
func (w *World) useCandidates(n *Node) {
	s := &candidates{w: w, n: n, rng: rand.New(rand.NewPCG(w.seed, 12)), machines: map[string]*copied{}, voters: map[string]*lease.Voter{}, revision: 1}
	n.candidates = s
	for _, k := range n.children {
		s.voters[short(k)] = lease.NewVoter(lease.VoterState{}, w.Now, leaseTTL)
	}
	s.leader = s.machine()
	m := s.machines[s.leader]
	m.revision, m.leaseTerm = 1, 1
	s.machine()
	s.machine()
	s.core = s.stand(s.leader)
	s.core.Alone(w.Now)
	s.beat()
}

// machine adds a machine with nothing in its store.
func (s *candidates) machine() string {
	name := fmt.Sprintf("m%d", s.born)
	s.born++
	s.machines[name] = &copied{store: map[string][]byte{}}
	return name
}

func (s *candidates) stand(name string) *lease.Candidate {
	m := s.machines[name]
	c := lease.New(lease.Options{Me: candidateOf(name), TTL: leaseTTL, Patience: candidatePatience})
	c.SetBooks(lease.Books{LeaseTerm: m.leaseTerm, Revision: m.revision, Voters: sortedNames(s.voters), Order: sortedNames(s.machines)})
	return c
}

func candidateOf(name string) wire.LeaseCandidate {
	return wire.LeaseCandidate{Name: name, Addr: name + ":7443"}
}

// reach reports whether a worker can be talked to.
func (s *candidates) reach(worker string) bool {
	k := s.w.Workers[s.n.Name+"/"+worker]
	return k.Up && !k.deaf()
}

// talk has voters answer what a candidate sends.
func (s *candidates) talk(c *lease.Candidate) {
	for out := c.Take(); len(out) > 0; out = c.Take() {
		for _, o := range out {
			v := s.voters[o.To]
			if v == nil || !s.reach(o.To) {
				continue
			}
			switch m := o.Msg.(type) {
			case *wire.Lease:
				p, _ := v.Lease(s.w.Now, m)
				c.Promised(s.w.Now, o.To, p)
			case *wire.Ask:
				a, _ := v.Ask(s.w.Now, m)
				c.Offered(s.w.Now, o.To, a)
			}
		}
	}
}

// beat is what goes on between the candidates while one leads: successors come, go and catch up, and leases are renewed.
func (s *candidates) beat() {
	for _, name := range sortedNames(s.machines) {
		m := s.machines[name]
		if name == s.leader {
			continue
		}
		if m.away = m.away && !s.calm; !s.calm && s.rng.IntN(20) == 0 {
			m.away = !m.away
		}
		switch {
		case m.away && s.core.Following(name):
			if s.rng.IntN(4) == 0 { // the connection is given up
				s.core.Left(s.w.Now, name)
			}
		case m.away:
		case s.core.Following(name) || s.core.Follows(s.w.Now, candidateOf(name)):
			if m.revision != s.revision || m.leaseTerm != s.core.Term() {
				m.store = maps.Clone(s.n.Store)
				m.revision, m.leaseTerm = s.revision, s.core.Term()
			}
			s.core.Acked(s.w.Now, name, m.revision)
		}
	}
	s.core.Tick(s.w.Now)
	life := s.n.life
	if s.look(); s.n.life != life {
		return
	}
	if s.core.State() != lease.Leading { // its process ends, and stands by
		s.w.crash(s.n, false)
		s.w.boot(s.n)
		return
	}
	s.w.at(s.w.Now.Add(candidateBeat), func() {
		if s.n.life == life && s.n.Up {
			s.beat()
		}
	})
}

// look ends commits that count by now, or never will.
func (s *candidates) look() {
	s.talk(s.core)
	for len(s.waiting) > 0 {
		u := s.waiting[0]
		switch {
		case s.core.State() != lease.Leading:
			s.waiting = s.waiting[1:]
			u.done(fmt.Errorf("not known: %s: %w", s.core.Why(), store.ErrDeposed))
		case s.core.Released() >= u.revision:
			s.waiting = s.waiting[1:]
			u.done(nil)
		default:
			return
		}
	}
}

// writes reports whether a commit may be begun.
func (s *candidates) writes() error {
	if !s.core.Writes(s.w.Now) {
		return fmt.Errorf("not leading: %s: %w", s.core.Why(), store.ErrDeposed)
	}
	return nil
}

// committed takes a commit that is on the leader's disk, and calls done when it counts, as the store of internal/succession does.
func (s *candidates) committed(ops []store.Op, done func(error)) {
	s.revision++
	rev, life, term := s.revision, s.n.life, s.core.Term()
	same := func() bool { return s.n.life == life && s.core.Term() == term }
	s.waiting = append(s.waiting, unheard{rev, done})
	s.core.Committed(rev)
	for _, name := range sortedNames(s.machines) {
		m := s.machines[name]
		if name == s.leader || m.away || !s.core.Following(name) {
			continue
		}
		s.w.at(s.w.Now.Add(time.Millisecond+time.Duration(s.rng.IntN(30))*time.Millisecond), func() {
			if !same() || m.away || m.revision != rev-1 || m.leaseTerm != term {
				return // it catches up with the next beat
			}
			put(m.store, ops)
			m.revision = rev
			s.w.at(s.w.Now.Add(time.Millisecond), func() {
				if same() {
					s.core.Acked(s.w.Now, name, rev)
					s.look()
				}
			})
		})
	}
	s.w.at(s.w.Now.Add(commitTime), func() {
		if i := slices.IndexFunc(s.waiting, func(u unheard) bool { return u.revision == rev }); same() && i >= 0 {
			s.waiting = slices.Delete(s.waiting, i, i+1)
			done(fmt.Errorf("not known: no successor has it: %w", store.ErrDeposed))
		}
	})
	s.look()
}

// die takes that the machine that led is gone for good. Another one comes in its place, with nothing in its store.
func (s *candidates) die() {
	delete(s.machines, s.leader)
	s.leader = ""
	s.machine()
}

// crashed takes that nobody leads any more.
func (s *candidates) crashed() {
	s.waiting, s.bound = nil, s.core.Bound()
	if m := s.machines[s.leader]; m != nil {
		m.store, m.revision = s.n.Store, s.revision
	}
	for _, m := range s.machines {
		m.core = nil
	}
}

// elect lets the site's workers choose who leads, and reports whether somebody does.
func (s *candidates) elect() bool {
	if m := s.machines[s.leader]; m != nil && !s.bound {
		m.leaseTerm = s.core.Term() + 1
		s.won(s.leader, s.stand(s.leader))
		s.core.Alone(s.w.Now)
		return true
	}
	for _, name := range sortedNames(s.machines) {
		m := s.machines[name]
		if m.core == nil {
			m.core = s.stand(name)
		}
		c := m.core
		for _, v := range sortedNames(s.voters) {
			if s.reach(v) {
				c.Offered(s.w.Now, v, s.voters[v].Vote(s.w.Now))
			} else {
				c.Gone(v)
			}
		}
		c.Tick(s.w.Now)
		s.talk(c)
		if !c.Ready() {
			continue
		}
		s.won(name, c)
		c.Begin(s.revision)
		return true
	}
	return false
}

// won has a machine lead; its term is a write of its own.
func (s *candidates) won(name string, c *lease.Candidate) {
	m := s.machines[name]
	s.revision = m.revision + 1
	s.leader, s.core, s.n.Store = name, c, m.store
	m.revision, m.leaseTerm = s.revision, c.Term()
}

// inSync reports whether most voters would choose one machine in the leader's place. Where some were out of touch when in-sync replicas
// came or went, they may not: then nobody can take it.
func (s *candidates) inSync() bool {
	for name, m := range s.machines {
		votes := 0
		for _, v := range s.voters {
			if slices.Contains(v.InSync, candidateOf(name)) && m.leaseTerm >= v.LeaseTerm {
				votes++
			}
		}
		if name != s.leader && votes >= lease.Majority(len(s.voters)) {
			return s.n.Up
		}
	}
	return false
}
