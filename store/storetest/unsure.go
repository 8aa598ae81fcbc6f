package storetest

import (
	"context"

	"skerry.dev/skerry/store"
)

// Unsure is a store that, while it is On, keeps what it is given and says that it does not know, as one does whose leader is not sure to
// lead.
type Unsure struct {
	store.Store
	On bool
}

// Commit implements store.Store.
func (u *Unsure) Commit(ctx context.Context, ops []store.Op) (int64, error) {
	rev, err := u.Store.Commit(ctx, ops)
	if err == nil && u.On {
		return 0, store.ErrDeposed
	}
	return rev, err
}
