// Package store keeps revisioned, watchable records. It owns durability and ordering and knows nothing of what a record
// means. Servers import it; cores never do.
package store

import (
	"context"
	"errors"
)

// Errors that every implementation returns, wrapped.
var (
	ErrNotFound  = errors.New("record not found")
	ErrConflict  = errors.New("record was changed by somebody else")
	ErrCompacted = errors.New("the revision asked for is no longer kept")
	ErrFull      = errors.New("no space left for the store")
	ErrClosed    = errors.New("store is closed")
)

// Record is one key with its value. Revision is the store revision of its last change.
type Record struct {
	Key      string
	Value    []byte
	Revision int64
}

// Op is one write of a commit. Expect, if not nil, is the record's revision that the writer has seen; 0 means that
// the record must not exist.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
	Expect *int64
}

// Event is one change seen by a watcher. A deleted record has Deleted set and no value.
type Event struct {
	Record
	Deleted bool
}

// Store is a revisioned key-value map. Keys are slash-separated paths without a leading slash. A commit is atomic and
// durable when it returns; all its writes carry the same revision, and revisions only grow.
type Store interface {
	// Get gives one record or ErrNotFound.
	Get(ctx context.Context, key string) (Record, error)
	// List gives the records whose key begins with prefix in key order, and the store's revision at that moment.
	List(ctx context.Context, prefix string) ([]Record, int64, error)
	// Commit applies all ops or none. It gives the new revision, or ErrConflict, or ErrFull.
	Commit(ctx context.Context, ops []Op) (int64, error)
	// Watch calls fn for every change after revision from, in order, until ctx ends or the watch falls behind what is
	// kept (ErrCompacted: list again).
	Watch(ctx context.Context, prefix string, from int64, fn func([]Event) error) error
	// Close waits for running commits. It is idempotent.
	Close() error
}
