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
	ErrReadOnly  = errors.New("its file system is mounted read-only, as kernels do after errors of a disk (see dmesg); " +
		"mount it writable again, or copy the data directory to another disk and name that with --data")
	ErrClosed   = errors.New("store is closed")
	ErrTooLarge = errors.New("larger than the store takes")
	ErrInvalid  = errors.New("not a valid write")
	ErrDamaged  = errors.New("the store is damaged")
	ErrInUse    = errors.New("the store is in use by another process")
	ErrNewer    = errors.New("the store was written by a newer program")
)

// Limits of one write, the same in every implementation, so that a tier may move from one to another.
const (
	MaxKey    = 1024    // bytes of a key
	MaxValue  = 1 << 20 // bytes of a value
	MaxOps    = 4096    // writes of one commit
	MaxCommit = 8 << 20 // bytes of all keys and values of one commit
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

// Store is a revisioned key-value map. Keys are slash-separated UTF-8 paths without a leading slash or NUL. A commit is
// atomic and durable when it returns; all its writes carry the same revision, and revisions only grow. Values given and
// received are shared: nobody changes their bytes.
type Store interface {
	// Get gives one record or ErrNotFound. It sees every commit that returned before.
	Get(ctx context.Context, key string) (Record, error)
	// List gives the records whose key begins with prefix in the order of their bytes, and the store's revision at that
	// moment. The prefix is plain text: "app/a" matches "app/ab"; end it with a slash to list a folder.
	List(ctx context.Context, prefix string) ([]Record, int64, error)
	// Commit applies all ops or none. It gives the new revision, or ErrConflict, ErrFull, ErrTooLarge, or ErrInvalid (a
	// bad key, or one key twice). Deleting a record that does not exist changes nothing; a commit that changes nothing
	// gives the current revision. When ctx ends first, the local implementations have not applied it; etcd may have,
	// and for a leader (Electorate) it is done before its next Get or List or never.
	Commit(ctx context.Context, ops []Op) (int64, error)
	// Watch calls fn for every change after revision from, in order, until ctx ends (its error), fn gives an error (that
	// error), the store is closed (ErrClosed), or the watch falls behind what is kept (ErrCompacted: list again). A from
	// that this store has not reached is ErrCompacted too: it comes from another life of the store. The changes of one
	// commit are never split over two calls; one call may hold several commits. fn may use the store.
	Watch(ctx context.Context, prefix string, from int64, fn func([]Event) error) error
	// Close waits for running commits and ends every watch. It is idempotent.
	Close() error
}

// Compacter is the ability to forget history on request. Every implementation here has it.
type Compacter interface {
	// Compact forgets the changes up to and including revision; records stay. Watches that begin before it get
	// ErrCompacted.
	Compact(ctx context.Context, revision int64) error
}
