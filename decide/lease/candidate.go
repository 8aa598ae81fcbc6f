package lease

import (
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry/wire"
)

// State is what a candidate does.
type State string

// States of a candidate.
const (
	Standing State = "standing by" // it follows, or waits for votes
	Founding State = "founding"    // it was elected, and waits until enough voters know
	Leading  State = "leading"     // it is the cluster
)

// Options of a candidate. All but Order are needed.
type Options struct {
	Me wire.LeaseCandidate
	// TTL is how long a promise lasts; leases go out three times as often.
	TTL time.Duration
	// Patience is how long a successor may take to acknowledge before it is no in-sync replica any more.
	Patience time.Duration
}

// Books is what the site's store says, as far as it concerns this package.
type Books struct {
	LeaseTerm uint64   // the term in which the newest of it was written
	Revision  int64    // the newest of it
	Voters    []string // the workers that may vote, by name
	// Order lists the candidates as successors are to be preferred.
	Order []string
}

// Candidate is a machine that may be the cluster, as a state machine. Its messages go to voters, by name.
type Candidate struct {
	opt    Options
	state  State
	books  Books
	offers map[string]*wire.Vote // of the voters that are in touch, without their leases
	freeAt map[string]time.Time  // when their promises no longer bind them
	asked  uint64                // the term that votes are asked for; 0: none
	askAt  time.Time
	mine   map[string]bool // votes in that term; true: of a voter that has always been ours
	enough time.Time       // since when there are enough offers; zero: there are not
	heard  time.Time       // of who leads
	above  uint64          // the highest term that was heard of
	strays map[string]int  // how often the word of a worker ended a term
	holder *holder
	out    []wire.Outgoing
	why    string // it stopped leading
}

// New makes a candidate that stands by.
func New(opt Options) *Candidate {
	return &Candidate{opt: opt, state: Standing, offers: map[string]*wire.Vote{}, freeAt: map[string]time.Time{}, mine: map[string]bool{},
		strays: map[string]int{}}
}

// SetBooks tells a candidate that stands by what its copy of the store says.
func (s *Candidate) SetBooks(b Books) { s.books = b }

// State gives what the candidate does, and Why the reason for which it does not lead any more.
func (s *Candidate) State() State { return s.state }

// Why says why the candidate stopped leading; empty: it has not led.
func (s *Candidate) Why() string { return s.why }

// Term is that in which the candidate leads or founds, or the last that it knows of.
func (s *Candidate) Term() uint64 {
	if s.holder != nil {
		return s.holder.term
	}
	return s.books.LeaseTerm
}

// Above is the highest term that the candidate was told of.
func (s *Candidate) Above() uint64 { return max(s.above, s.Term()) }

// Take gives the messages that are to be sent.
func (s *Candidate) Take() []wire.Outgoing {
	out := s.out
	s.out = nil
	return out
}

func (s *Candidate) send(to string, m wire.Message) {
	s.out = append(s.out, wire.Outgoing{To: to, Msg: m})
}

// Alone begins to lead without an election, in a term that the store has already and that no lease was ever of. It is for a
// candidate that has led last and has no in-sync replicas.
func (s *Candidate) Alone(now time.Time) {
	h := newHolder(now, s.books.LeaseTerm, s.books.Voters, s.books.Revision)
	h.founded, h.changed = true, false
	s.holder, s.state, s.why = h, Leading, ""
}

// Bound reports whether somebody may be elected in this candidate's place. The store must say so before messages are sent.
func (s *Candidate) Bound() bool { return s.state != Leading || !s.holder.free() }

// Came tells a worker that has connected of the term; it may have missed it.
func (s *Candidate) Came(now time.Time, worker string) {
	if s.holder != nil {
		s.send(worker, s.holder.lease(now, s.opt.Me, s.opt.TTL))
	}
}

// Heard takes a sign of life of another candidate that leads.
func (s *Candidate) Heard(now time.Time, term uint64) {
	s.above = max(s.above, term)
	if term >= s.books.LeaseTerm {
		s.heard = now
	}
}

// Offered takes what a voter says that has lost its cluster, or its answer to an Ask.
func (s *Candidate) Offered(now time.Time, voter string, v *wire.Vote) {
	if !s.sane(v.Term) || !s.sane(v.LeaseTerm) {
		return
	}
	s.above = max(s.above, v.Term, v.LeaseTerm)
	was := s.offers[voter]
	s.offers[voter] = v
	s.freeAt[voter] = now.Add(time.Duration(v.Wait) * time.Millisecond)
	switch s.state {
	case Leading:
		return
	case Founding:
		s.Came(now, voter)
		return
	}
	if s.asked != 0 && v.Term == s.asked && v.Holder == s.opt.Me.Name {
		s.mine[voter] = was != nil && s.faithful(was)
	}
	s.Tick(now)
}

// Gone takes that a voter that offered itself is no longer in touch.
func (s *Candidate) Gone(voter string) {
	delete(s.offers, voter)
	delete(s.freeAt, voter)
	delete(s.mine, voter)
}

// faithful reports whether a voter has promised itself to nobody else since this candidate's own term.
func (s *Candidate) faithful(v *wire.Vote) bool {
	return v.LeaseHolder == s.opt.Me.Name && v.Holder == s.opt.Me.Name && !v.Strayed
}

// strayTime is how long a term lasts at least before one worker's word ends it, in TTLs, and twice as long each time that this worker
// does so again: a worker that lies is to be no great nuisance.
const strayTime = 5

// sane refuses terms that nobody can have come to, with which a worker that lies would use up the numbers.
func (s *Candidate) sane(term uint64) bool { return term <= s.Above()+1<<10 }

// willing reports whether a voter would vote for this candidate.
func (s *Candidate) willing(now time.Time, voter string, v *wire.Vote) bool {
	if !slices.Contains(s.books.Voters, voter) || v.LeaseTerm == 0 {
		return false
	}
	me := s.opt.Me.Name
	if v.LeaseHolder != me && (!named(v.InSync, me) || v.LeaseTerm > s.books.LeaseTerm) {
		return false // a copy older than the term that the voter knows is not one to go on from
	}
	return v.Holder == me || !now.Before(s.freeAt[voter])
}

// wins reports whether votes suffice: a majority, or, from voters that were always ours, so many that no majority is without
// one of them.
func (s *Candidate) wins(votes map[string]bool) bool {
	n, faithful := 0, 0
	for w, f := range votes {
		if !slices.Contains(s.books.Voters, w) {
			continue // it never was one, or is none any more
		}
		if n++; f {
			faithful++
		}
	}
	all := len(s.books.Voters)
	return all > 0 && (n >= Majority(all) || faithful >= Blocking(all))
}

// delay keeps successors from asking at the same time: the first in order asks at once.
func (s *Candidate) delay() time.Duration {
	i := slices.Index(s.books.Order, s.opt.Me.Name)
	if i < 0 {
		i = len(s.books.Order)
	}
	return time.Duration(i) * s.opt.TTL / 20
}

// campaign asks for votes when there are enough offers, and begins to found when there are enough votes.
func (s *Candidate) campaign(now time.Time) {
	if s.asked != 0 {
		if s.wins(s.mine) {
			s.found(now)
			return
		}
		if now.Sub(s.askAt) < s.opt.TTL/2 {
			return
		}
		s.asked = 0 // who answered in vain will be asked in a higher term
		clear(s.mine)
		s.enough = now.Add(s.delay())
		return
	}
	if !s.heard.IsZero() && now.Sub(s.heard) < s.opt.TTL/2 {
		return // the holder lives
	}
	votes := map[string]bool{}
	for w, v := range s.offers {
		if s.willing(now, w, v) {
			votes[w] = s.faithful(v)
		}
	}
	if !s.wins(votes) {
		s.enough = time.Time{}
		return
	}
	if s.enough.IsZero() {
		s.enough = now
	}
	if now.Before(s.enough.Add(s.delay())) {
		return
	}
	s.asked, s.askAt = s.Above()+1, now
	clear(s.mine)
	for _, w := range slices.Sorted(maps.Keys(votes)) {
		s.send(w, &wire.Ask{Term: s.asked, Candidate: s.opt.Me.Name})
	}
}

func (s *Candidate) found(now time.Time) {
	s.holder = newHolder(now, s.asked, s.books.Voters, s.books.Revision)
	s.state, s.why, s.askAt = Founding, "", now
	s.lend(now)
}

// lend sends leases to whoever is to have them.
func (s *Candidate) lend(now time.Time) {
	h := s.holder
	h.changed, h.due = false, now.Add(s.opt.TTL/3)
	if !h.lends() {
		h.due = time.Time{}
	}
	var to []string
	for _, c := range h.councils {
		to = append(to, c...)
	}
	slices.Sort(to)
	for _, w := range slices.Compact(to) {
		l := h.lease(now, s.opt.Me, s.opt.TTL)
		if h.seen[w].seq == l.Seq {
			l.InSync, l.At = nil, "" // the worker has written them down
		}
		s.send(w, l)
	}
}

// Promised takes a voter's answer to a lease.
func (s *Candidate) Promised(now time.Time, voter string, p *wire.Promise) {
	h := s.holder
	if h == nil || p.Term < h.term || !s.sane(p.Term) {
		return
	}
	s.above = max(s.above, p.Term)
	if p.Term > h.term || p.Holder != s.opt.Me.Name {
		// Either another leads by now, and promises run out here, or an election came to nothing and left this worker behind. A
		// new one, now and then, brings it back.
		if now.Sub(h.born) >= strayTime*s.opt.TTL<<min(s.strays[voter], 10) {
			s.strays[voter]++
			s.depose("a worker has promised itself for a later term; the others are asked again")
		}
		return
	}
	h.promise(voter, p, now, s.opt.TTL)
	s.Tick(now)
}

// Begin ends the founding, which State tells by Ready: the candidate has written the term into its store, at a revision.
func (s *Candidate) Begin(revision int64) {
	if s.state == Founding && s.holder.founded {
		s.state = Leading
		s.Committed(revision)
	}
}

// Ready reports whether the founding is done but for the candidate's own writing.
func (s *Candidate) Ready() bool { return s.state == Founding && s.holder.founded }

// Resign stops leading.
func (s *Candidate) Resign(why string) { s.depose(why) }

func (s *Candidate) depose(why string) {
	if s.holder == nil {
		return
	}
	s.holder, s.state, s.asked, s.enough, s.why = nil, Standing, 0, time.Time{}, why
	clear(s.mine)
}

// Tick does what is due.
func (s *Candidate) Tick(now time.Time) {
	switch s.state {
	case Standing:
		s.campaign(now)
	case Founding:
		if !s.holder.founded && now.Sub(s.askAt) >= s.opt.TTL {
			s.depose("too few workers heard of its election")
		}
	case Leading:
		h := s.holder
		rank := map[string]int{}
		for i, n := range s.books.Order {
			rank[n] = i + 1
		}
		h.review(now, s.opt.Patience, rank)
		if !h.holds(now) {
			s.depose("too few workers are in touch: a majority of the site's could follow another machine, so this one writes nothing")
			return
		}
		if h.changed || h.lends() && !now.Before(h.due) {
			s.lend(now)
		}
	}
}

// Asleep reports whether Tick does nothing, however late it becomes, until something else is called. If not, it is to be called each
// TTL/60.
func (s *Candidate) Asleep() bool {
	switch s.state {
	case Leading:
		return s.holder.free() && len(s.holder.followers) == 0 && !s.holder.changed
	case Standing:
		return len(s.offers) == 0 && s.enough.IsZero() // nor were votes asked for: that comes after enough
	}
	return false
}

// Writes reports whether what is written now may come to be acknowledged.
func (s *Candidate) Writes(now time.Time) bool { return s.state == Leading && s.holder.holds(now) }

// Committed takes that everything up to a revision is on this candidate's disk.
func (s *Candidate) Committed(revision int64) {
	if s.holder != nil {
		s.holder.local = max(s.holder.local, revision)
		s.holder.release()
	}
}

// Released is up to which revision writes may be acknowledged.
func (s *Candidate) Released() int64 {
	if s.state != Leading {
		return 0
	}
	return s.holder.released
}

// Follows takes a successor to which the store goes from now on. It reports false when there are enough.
func (s *Candidate) Follows(now time.Time, candidate wire.LeaseCandidate) bool {
	if s.state != Leading {
		return false
	}
	h := s.holder
	if h.followers[candidate.Name] == nil && len(h.followers) >= MaxInSync {
		return false
	}
	h.followers[candidate.Name] = &follower{candidate: candidate, acked: -1, heard: now}
	return true
}

// Acked takes that a successor has everything up to a revision on its disk.
func (s *Candidate) Acked(now time.Time, candidate string, revision int64) {
	if s.state != Leading {
		return
	}
	f := s.holder.followers[candidate]
	if f == nil {
		return
	}
	f.acked, f.heard = max(f.acked, revision), now
	if f.acked >= s.holder.local {
		f.since = time.Time{}
	}
	s.holder.release()
	s.Tick(now)
}

// Left takes that a successor is gone.
func (s *Candidate) Left(now time.Time, candidate string) {
	if s.state == Leading {
		delete(s.holder.followers, candidate)
		s.Tick(now)
	}
}

// Council tells whether the site's voters may be written down anew, and how: with one more or one less towards want while somebody
// may be elected, else at once. The candidate must be told of the write by Counts before another.
func (s *Candidate) Council(want []string) ([]string, bool) {
	if s.state != Leading || !s.holder.founded {
		return nil, false
	}
	h := s.holder
	have := h.councils[len(h.councils)-1]
	want = most(have, want)
	h.closing = len(want) == 0
	if slices.Equal(have, want) || len(h.councils) > 1 {
		return nil, false
	}
	if h.free() {
		return want, true
	}
	for _, w := range want {
		if !slices.Contains(have, w) {
			next := append(slices.Clone(have), w)
			slices.Sort(next)
			return next, true
		}
	}
	for i, w := range have {
		if !slices.Contains(want, w) && len(have) > 1 {
			return slices.Delete(slices.Clone(have), i, i+1), true
		}
	}
	return nil, false
}

// Counts takes that the site's voters are others from now on. It comes before the write reaches a successor, with the revision
// that it will have at most.
func (s *Candidate) Counts(voters []string, revision int64) {
	if s.state == Leading {
		s.books.Voters = voters
		s.holder.council(voters, revision)
	}
}

// InSync names the successors that may be chosen in this candidate's place, Following tells of one whether the store goes to it.
func (s *Candidate) InSync() (out []string) {
	if s.state == Leading {
		for _, h := range s.holder.now().inSync {
			out = append(out, h.Name)
		}
	}
	return out
}

// Following reports whether the store goes to a successor.
func (s *Candidate) Following(name string) bool {
	return s.state == Leading && s.holder.followers[name] != nil
}

// Counted takes the revision that the last change of voters has.
func (s *Candidate) Counted(revision int64) {
	if s.state == Leading {
		s.holder.settlesAt = revision
		s.holder.release()
	}
}

// SetOrder tells in which order successors are preferred.
func (s *Candidate) SetOrder(order []string) { s.books.Order = order }

// most gives the voters that a site has of those that it could have: who is one already stays.
func most(have, want []string) []string {
	out, more := []string{}, []string{}
	for _, w := range want {
		if slices.Contains(have, w) {
			out = append(out, w)
		} else {
			more = append(more, w)
		}
	}
	slices.Sort(more)
	out = append(out, more[:max(0, min(len(more), MaxVoters-len(out)))]...)
	slices.Sort(out)
	return out
}
