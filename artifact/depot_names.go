package artifact

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
)

// nameTime bounds how long a change of a name may take. It goes on when whoever asked for it has gone: cut off, nobody would know whether
// it was made.
const nameTime = time.Minute

func nameContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), nameTime)
}

// changing has a name changed by one at a time, until the function that it gives is called.
func changing(s *Store, key string) func() { return s.namings.take(key) }

// errNameSize says that a name is too large to be written.
var errNameSize = fmt.Errorf("%w: the name of an image", ErrTooLarge)

// putName writes a name. The caller changes it alone.
func (d *depot) putName(ctx context.Context, ref imageref.Ref, n name) error {
	if err := d.leads(ctx); err != nil {
		return err
	}
	out := depotName{name: n}
	out.Life = ""
	repo := imageref.Ref{Registry: ref.Registry, Repository: ref.Repository}
	for desc := range d.s.under(repo, slices.Values([]digest.Digest{n.Digest})) {
		if elsewhere(desc) {
			out.Sent = append(out.Sent, desc.Digest)
		}
	}
	raw := mustJSON(out)
	if len(raw) > d.mostName { // nothing would be loaded any more, of nobody
		return fmt.Errorf("%w: with %d layers that lie elsewhere it has %d bytes, and may have %d", errNameSize, len(out.Sent), len(raw),
			d.mostName)
	}
	return d.fail(d.Put(ctx, d.nameObject(key(ref)), strings.NewReader(string(raw)), int64(len(raw))))
}

// deleteName takes a name away. The caller changes it alone.
func (d *depot) deleteName(ctx context.Context, key string) error {
	if err := d.leads(ctx); err != nil {
		return err
	}
	return d.fail(d.Delete(ctx, d.nameObject(key)))
}

// doubt notes that a change of a name failed, which may lead to an image now.
func (d *depot) doubt(key string, sum digest.Digest) {
	unpin := func() {}
	if sum != "" {
		unpin = d.s.pin(sum)
	}
	d.s.mu.Lock()
	if d.doubts[key] == nil {
		d.doubts[key] = map[digest.Digest]func(){}
	}
	old := d.doubts[key][sum]
	d.doubts[key][sum] = unpin
	d.s.mu.Unlock()
	if old != nil {
		old()
	}
}

// sure notes that a name is what this store says.
func (d *depot) sure(key string) {
	d.s.mu.Lock()
	doubts := d.doubts[key]
	delete(d.doubts, key)
	d.s.mu.Unlock()
	for _, unpin := range doubts {
		unpin()
	}
}

// publish gives a name to what a client pushed; in the depot first.
func publish(ctx context.Context, store *Store, ref imageref.Ref, to name) (err error) {
	kept := store.depot
	if !kept.own(ref) {
		defer changing(store, key(ref))()
		return store.putName(ref, to)
	}
	ctx, cancel := nameContext(ctx)
	defer cancel()
	defer changing(store, key(ref))()
	if err := kept.away(ref); err != nil {
		return err
	}
	store.mu.Lock()
	old, there := store.names[key(ref)]
	doubts, full := kept.doubts[key(ref)], !there && len(store.names) >= kept.mostNames
	store.mu.Unlock()
	if full {
		return kept.full("names")
	}
	entered := kept.ledger == nil || old.Life == kept.ledger.Life // one from before may have been too large
	if doubts == nil && entered && old.Pushed && old.Digest == to.Digest {
		return store.putName(ref, to)
	}
	to.Added = store.o.Now().UTC()
	if kept.ledger != nil {
		to.Life = kept.ledger.Life
	}
	if err = kept.putName(ctx, ref, to); errors.Is(err, errNameSize) {
		return err // nothing was changed
	} else if err == nil {
		err = store.putName(ref, to)
	}
	if err != nil {
		kept.doubt(key(ref), to.Digest)
		return err
	}
	kept.sure(key(ref))
	return nil
}

// unpublish takes a name away, from the depot first; if may still says so once nobody else changes it.
func unpublish(ctx context.Context, store *Store, ref imageref.Ref, may func() bool) error {
	kept := store.depot
	if !kept.own(ref) {
		defer changing(store, key(ref))()
		if !may() {
			return nil
		}
		return store.removeName(ref)
	}
	if err := kept.away(ref); err != nil {
		return err
	}
	ctx, cancel := nameContext(ctx)
	defer cancel()
	defer changing(store, key(ref))()
	if err := kept.away(ref); err != nil || !may() {
		return err
	}
	err := kept.deleteName(ctx, key(ref))
	if err == nil {
		err = store.removeName(ref)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		kept.doubt(key(ref), "")
		return err
	}
	kept.sure(key(ref))
	return err
}

func (d *depot) unname(ctx context.Context, key string, was name) error {
	defer changing(d.s, key)()
	s := d.s
	s.mu.Lock()
	_, again := s.names[key] // it was pushed meanwhile
	s.mu.Unlock()
	if again {
		return nil
	}
	err := d.deleteName(ctx, key)
	if err == nil {
		d.sure(key)
		return nil
	}
	d.back(key, was)
	d.doubt(key, "")
	return err
}

// back has a name again that was to be collected, unless it was pushed meanwhile.
func (d *depot) back(key string, was name) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if _, again := d.s.names[key]; !again {
		d.s.names[key] = was
		d.s.changes++
	}
}

// SettleDepot has a store's depot say what the store does of names whose change failed there, as far as it may have been made. Without a
// depot it does nothing.
func SettleDepot(ctx context.Context, s *Store) error {
	d := s.depot
	if d == nil {
		return nil
	}
	d.s.mu.Lock()
	keys := slices.Collect(maps.Keys(d.doubts))
	d.s.mu.Unlock()
	var errs []error
	for _, k := range keys {
		errs = append(errs, d.settleName(ctx, k))
	}
	return errors.Join(errs...)
}

func (d *depot) settleName(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, nameTime)
	defer cancel()
	defer changing(d.s, key)()
	d.s.mu.Lock()
	n, here := d.s.names[key]
	here = here && d.s.Cache.own(key, n)
	doubts := d.doubts[key]
	d.s.mu.Unlock()
	if doubts == nil {
		return nil // somebody changed it meanwhile
	}
	ref, err := imageref.Parse(key)
	if err == nil && here {
		err = d.putName(ctx, ref, n)
	} else if err == nil {
		err = d.deleteName(ctx, key)
	}
	if err == nil {
		d.sure(key)
	}
	return err
}
