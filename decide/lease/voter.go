package lease

import (
	"time"

	"skerry.dev/skerry/wire"
)

// VoterState is what a voter keeps on its disk. It is written before anything that follows from it is said.
type VoterState struct {
	// Term is the highest one that the voter has promised itself for, and Holder the candidate. 0: none.
	Term   uint64 `json:"term"`
	Holder string `json:"holder"`
	// LeaseTerm is the term of the last lease that it heard, with the candidate that holds it, its address, and its in-sync replicas.
	LeaseTerm   uint64                `json:"reign,omitempty"`
	LeaseHolder string                `json:"reignHolder,omitempty"`
	At          string                `json:"at,omitempty"`
	Seq         uint64                `json:"seq,omitempty"`
	InSync      []wire.LeaseCandidate `json:"heirs,omitempty"`
	// Strayed: since then it has voted for another candidate than LeaseHolder.
	Strayed bool `json:"strayed,omitempty"`
	// TTL is for how long it promises itself, in milliseconds, as the last lease said; 0: no lease has said so yet.
	TTL uint32 `json:"ttl,omitempty"`
}

// Voter is a worker's part. Its VoterState must be on the disk before what a method gives is sent, whenever save is true.
type Voter struct {
	VoterState
	ttl   time.Duration // of the last promise
	until time.Time     // a promise binds the voter so long; zero: it does not
}

// NewVoter makes a voter of what was kept. One that has promised itself before does not know how long ago, and counts from now
// for as long as it promised, or a time of patience if it does not know that either.
func NewVoter(b VoterState, now time.Time, patience time.Duration) *Voter {
	if b.TTL > 0 {
		patience = time.Duration(b.TTL) * time.Millisecond
	}
	v := &Voter{VoterState: b, ttl: patience}
	if b.Term > 0 {
		v.until = now.Add(patience)
	}
	return v
}

// Lease hears a lease and answers it.
func (v *Voter) Lease(now time.Time, l *wire.Lease) (answer *wire.Promise, save bool) {
	if l.Term < v.Term || l.Term == v.Term && l.Holder != v.Holder || l.Term == 0 {
		return &wire.Promise{Term: v.Term, Holder: v.Holder, Stamp: l.Stamp}, false
	}
	if l.Term != v.Term {
		v.Term, v.Holder, save = l.Term, l.Holder, true
	}
	if l.Term > v.LeaseTerm || l.Seq > v.Seq {
		v.LeaseTerm, v.LeaseHolder, v.At, v.Seq, v.InSync, v.Strayed, save = l.Term, l.Holder, l.At, l.Seq, l.InSync, false, true
	}
	if l.TTL != v.TTL {
		v.TTL, save = l.TTL, true
	}
	v.ttl = time.Duration(l.TTL) * time.Millisecond
	v.until = now.Add(v.ttl)
	return &wire.Promise{Term: v.Term, Holder: v.Holder, Seq: v.Seq, Stamp: l.Stamp}, save
}

// Vote tells what the voter has written down.
func (v *Voter) Vote(now time.Time) *wire.Vote {
	return &wire.Vote{Term: v.Term, Holder: v.Holder, LeaseTerm: v.LeaseTerm, LeaseHolder: v.LeaseHolder, Seq: v.Seq, InSync: v.InSync, Strayed: v.Strayed, At: v.At,
		Wait: uint32(max(v.until.Sub(now)+time.Millisecond-1, 0) / time.Millisecond)}
}

// Ask decides about a vote; the answer's Term and Holder say for whom it is.
func (v *Voter) Ask(now time.Time, a *wire.Ask) (answer *wire.Vote, save bool) {
	again := a.Term == v.Term && a.Candidate == v.Holder
	bound := now.Before(v.until) && a.Candidate != v.Holder
	if !again && a.Term > v.Term && !bound && v.LeaseTerm > 0 && (a.Candidate == v.LeaseHolder || named(v.InSync, a.Candidate)) {
		v.Term, v.Holder, save = a.Term, a.Candidate, true
		v.Strayed = v.Strayed || a.Candidate != v.LeaseHolder
		v.until = now.Add(v.ttl)
	}
	return v.Vote(now), save
}

// Bound is until when a promise binds the voter.
func (v *Voter) Bound() time.Time { return v.until }

// Candidates lists who may lead, as far as the voter knows: who did last, and its in-sync replicas.
func (v *Voter) Candidates() []wire.LeaseCandidate {
	if v.LeaseTerm == 0 {
		return nil
	}
	out := []wire.LeaseCandidate{{Name: v.LeaseHolder, Addr: v.At}}
	for _, s := range v.InSync {
		if s.Name != v.LeaseHolder {
			out = append(out, s)
		}
	}
	return out
}
