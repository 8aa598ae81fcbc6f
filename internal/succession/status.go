package succession

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"skerry.dev/skerry/decide/lease"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// Status is how a site's succession stands, as one of its candidates sees it.
type Status struct {
	Candidate string      `json:"seat"`          // this machine's
	State     lease.State `json:"state"`         // what it does
	Why       string      `json:"why,omitempty"` // it does not lead any more
	Leader    string      `json:"leader,omitempty"`
	Term      uint64      `json:"term"`
	// Revision is the newest of this machine's store, and Behind by how many the leader is ahead of it.
	Revision int64 `json:"revision"`
	Behind   int64 `json:"behind,omitempty"`
	// Voters are the workers that decide, Majority how many of them it takes.
	Voters   []string `json:"voters,omitempty"`
	Majority int      `json:"majority,omitempty"`
	// Keeps is how many of them must be in touch for the leader to write; 0 while it has no in-sync replicas.
	Keeps      int         `json:"keeps,omitempty"`
	Successors []Successor `json:"successors,omitempty"`
	// Aside are files in the data directory with what this machine had written and nobody acknowledged.
	Aside []string `json:"aside,omitempty"`
}

// Successor is one of the other candidates.
type Successor struct {
	Name string `json:"name"`
	Addr string `json:"addr,omitempty"`
	// State is heir (it has everything and may be chosen), follows, or away.
	State string `json:"state"`
	// Behind is by how many revisions it is, as it told last; Heard when that was. They are the leader's to know.
	Behind int64     `json:"behind,omitempty"`
	Heard  time.Time `json:"heard,omitzero"`
}

// Status gives the present state, or nil for a site without successors.
func (o *Leadership) Status(ctx context.Context) (*Status, error) {
	books, err := o.books(ctx)
	if err != nil {
		return nil, err
	}
	rev, err := store.Revision(ctx, o.opt.Store)
	if err != nil {
		return nil, err
	}
	var candidates []wire.LeaseCandidate
	if rec, err := o.opt.Store.Get(ctx, keyCandidates); err == nil {
		_ = json.Unmarshal(rec.Value, &candidates) // without it addresses are missing
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.core == nil {
		return nil, nil
	}
	st := &Status{Candidate: o.member.Name(), State: o.core.State(), Why: o.core.Why(), Term: o.core.Term(), Revision: rev,
		Voters: books.Voters, Majority: lease.Majority(len(books.Voters)), Aside: readNote(o.opt.Dir).Aside}
	leads := st.State == lease.Leading
	switch {
	case leads:
		st.Leader = st.Candidate
	case o.follows != nil:
		st.Leader, st.Behind = o.follows.leader, max(0, o.follows.at-rev)
	}
	inSync := o.core.InSync()
	if leads && len(inSync) > 0 {
		st.Keeps = lease.Blocking(len(books.Voters))
	}
	for _, name := range books.Order {
		if name == st.Candidate {
			continue
		}
		s := Successor{Name: name, State: "away"}
		if i := slices.IndexFunc(candidates, func(x wire.LeaseCandidate) bool { return x.Name == name }); i >= 0 {
			s.Addr = candidates[i].Addr
		}
		if leads {
			l := o.lags[name]
			switch {
			case slices.Contains(inSync, name):
				s.State = "heir"
			case o.core.Following(name):
				s.State = "follows"
			}
			if s.Heard = l.at; !l.at.IsZero() {
				s.Behind = max(0, rev-l.revision)
			}
		} else {
			s.State = "not known here"
			if name == st.Leader {
				s.State = "leads"
			}
		}
		st.Successors = append(st.Successors, s)
	}
	return st, nil
}
