package tier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/journal"
	"skerry.dev/skerry/wire"
)

// Program is what a role's own program knows of its store.
type Program struct {
	Version string // empty: nothing is noted or checked
	// Records are the kinds of records of its core, by how their keys begin, each with a new value of the type that it is read into; nil:
	// one that is read with care of its own.
	Records map[string]func() any
}

// KeyWriter is the record with the version of the program that wrote a store last.
const KeyWriter = "meta/writer"

// metaRecords begins the keys of records about a store as a whole.
const metaRecords = "meta/"

// shownLost is how many of the fields that would be lost an error names.
const shownLost = 5

// LossError says that a store holds what this program does not know and would lose.
type LossError struct {
	By, Version string // that wrote the store, and of this program
	Lost        []string
}

func (e *LossError) Error() string {
	names := strings.Join(e.Lost[:min(len(e.Lost), shownLost)], ", ")
	if more := len(e.Lost) - shownLost; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("the store was written by version %s, and this program (version %s) would lose a part of it: %s", e.By, e.Version,
		names)
}

// Is makes it a kind of store.ErrNewer.
func (e *LossError) Is(target error) bool { return target == store.ErrNewer }

// CheckWriter refuses a store that another program wrote, in which there is what this one would lose: kinds of records and fields that it
// does not know. It gives the write that notes this program in its place; nil: it is noted.
func CheckWriter(ctx context.Context, st store.Store, p Program) (*wire.Write, error) {
	if p.Version == "" {
		return nil, nil
	}
	note, err := json.Marshal(p.Version)
	if err != nil {
		return nil, err
	}
	w := &wire.Write{Key: KeyWriter, Value: note}
	rec, err := st.Get(ctx, KeyWriter)
	switch {
	case errors.Is(err, store.ErrNotFound): // it is new, or older than this record
		return w, nil
	case err != nil:
		return nil, fmt.Errorf("read the store: %w", err)
	}
	var by string
	if err := json.Unmarshal(rec.Value, &by); err != nil {
		return nil, fmt.Errorf("record %s: %w", KeyWriter, err)
	}
	if by == p.Version {
		return nil, nil
	}
	lost := map[string]bool{}
	kinds := p.kinds()
	err = loop.Load(ctx, st, func(key string, value []byte) func() error {
		names := wouldLose(kinds, key, value)
		return func() error {
			for _, name := range names {
				lost[name] = true
			}
			return nil
		}
	})
	if err != nil {
		return nil, err
	}
	if len(lost) > 0 {
		e := skerry.Errorf(skerry.CodeUnavailable, "%w", &LossError{By: by, Version: p.Version, Lost: slices.Sorted(maps.Keys(lost))})
		return nil, e.WithHint("start version %s or a later one again; or move the store away and restore a backup that version %s made", by,
			p.Version)
	}
	return w, nil
}

// kinds are those of all records that a program knows.
func (p *Program) kinds() map[string]func() any {
	kinds := maps.Clone(p.Records)
	if kinds == nil {
		kinds = map[string]func() any{}
	}
	maps.Copy(kinds, auth.Records())
	for k := range journal.Records() {
		kinds[k] = nil // what has happened is never written again
	}
	return kinds
}

// wouldLose names the kind of a record, or of its kind the fields, that a program does not know which knows these kinds.
func wouldLose(kinds map[string]func() any, key string, value []byte) (lost []string) {
	kind, make, ok := KindOf(kinds, key)
	switch {
	case strings.HasPrefix(key, metaRecords) && !ok:
	case !ok:
		first, _, _ := strings.Cut(key, "/")
		return []string{"records " + first}
	case make != nil:
		fields, err := wire.Lost(value, make())
		if err != nil {
			return nil // whoever reads it says so
		}
		for _, f := range fields {
			lost = append(lost, strings.TrimSuffix(kind, "/")+": "+f)
		}
	}
	return lost
}

// KindOf gives the kind that a record's key means: the longest of those that it begins with.
func KindOf(kinds map[string]func() any, key string) (kind string, make func() any, ok bool) {
	for k, f := range kinds {
		if len(k) >= len(kind) && strings.HasPrefix(key, k) && (strings.HasSuffix(k, "/") || k == key) {
			kind, make, ok = k, f, true
		}
	}
	return kind, make, ok
}
