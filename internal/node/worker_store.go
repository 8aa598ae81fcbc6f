package node

import (
	"context"
	"errors"
	"fmt"

	"skerry.dev/skerry/store"
	workercore "skerry.dev/skerry/worker/core"
)

// OpenWorkerStore opens the store of a worker, for reading alone if its disk cannot be written. It gives what was lost of a damaged one.
func (c *Common) OpenWorkerStore(ctx context.Context) (st store.Store, lost string, err error) {
	return c.openWorkerStore(ctx, c.OpenFrozen)
}

// openWorkerStore opens the store of a worker. A damaged one is repaired at once, for nobody may be near: the worker keeps what runs, and
// its cluster sends again what it wants here. It gives what was lost; empty: nothing.
func (c *Common) openWorkerStore(ctx context.Context, open func(context.Context) (store.Store, error)) (st store.Store, lost string,
	err error) {
	st, err = open(ctx)
	var damaged *store.DamagedError
	if !errors.As(err, &damaged) {
		return st, "", err
	}
	lost = damaged.Error()
	// With the mark, an end of the process right after this does not end what runs.
	mark := func(ctx context.Context, st store.Store) error {
		_, err := st.Commit(ctx, []store.Op{{Key: workercore.KeyRepaired, Value: []byte("{}")}})
		return err
	}
	if done, err := store.Repair(ctx, c.StoreURL, store.Options{}, store.Repairing{Alter: Repaired, Finish: mark}); err == nil {
		lost += ": " + done.String()
	} else if aside, err2 := store.Replace(ctx, c.StoreURL, store.Options{}, mark); err2 == nil {
		lost += fmt.Sprintf("; nothing of it could be kept (%v); it is %s now", err, aside)
	} else {
		return nil, "", errors.Join(damaged, err, err2)
	}
	c.Log.Error("the store was damaged; what runs here goes on, and the cluster sends what it wants here again", "err", lost)
	st, err = store.Open(ctx, c.StoreURL, store.Options{})
	return st, lost, err
}
