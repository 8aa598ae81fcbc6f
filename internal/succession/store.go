package succession

import (
	"context"
	"errors"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/lease"
	"skerry.dev/skerry/store"
)

// notLeading says why this process does not write. It is store.ErrDeposed, too.
func notLeading(why string) error {
	if why == "" {
		why = "it stands by"
	}
	e := skerry.Errorf(skerry.CodeUnavailable, "this machine does not lead the site now: %s", why).
		WithHint("what runs goes on; when most of the site's workers are in touch with one of its seats again, that one leads (`skerry cluster status`)")
	e.Cause = store.ErrDeposed
	return e
}

// notKnown says that a change was written here and nobody acknowledged it: a successor that leads may not have it.
func notKnown(why string) error {
	e := skerry.Errorf(skerry.CodeUnavailable, "whether the change is kept is not known yet: %s", why).
		WithHint("look at it again when somebody leads the site (`skerry cluster status`)")
	e.Cause = store.ErrDeposed
	return e
}

// Store gives the store for everybody else: what is written is acknowledged when every in-sync replica has it, and refused while this
// process does not lead.
func (o *Leadership) Store() store.Store { return &leadershipStore{o.opt.Store, o} }

type leadershipStore struct {
	store.Store
	o *Leadership
}

// Compact implements store.Compacter.
func (s *leadershipStore) Compact(ctx context.Context, revision int64) error {
	if c, ok := s.Store.(store.Compacter); ok {
		return c.Compact(ctx, revision)
	}
	return errors.New("this store forgets by itself")
}

// Commit implements store.Store.
func (s *leadershipStore) Commit(ctx context.Context, ops []store.Op) (int64, error) {
	o := s.o
	o.mu.Lock()
	core := o.core
	if core != nil && !core.Writes(time.Now()) {
		why := core.Why()
		o.mu.Unlock()
		return 0, notLeading(why)
	}
	o.mu.Unlock()
	rev, err := s.Store.Commit(ctx, ops)
	if err != nil {
		return rev, err
	}
	if core == nil {
		// The first successor may have come meanwhile; it is no in-sync replica before it has this.
		o.mu.Lock()
		if core = o.core; core != nil {
			core.Committed(rev)
		}
		o.mu.Unlock()
		return rev, nil
	}
	timer := time.NewTimer(commitTime)
	defer timer.Stop()
	o.mu.Lock()
	core.Committed(rev)
	o.mu.Unlock()
	for {
		o.mu.Lock()
		leads, released, changed, why := core.State() == lease.Leading, core.Released() >= rev, o.changed, core.Why()
		o.mu.Unlock()
		switch {
		case !leads:
			return 0, notKnown(why)
		case released:
			return rev, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return 0, notKnown("no successor has it, and too few workers are in touch to go on without one")
		}
	}
}
