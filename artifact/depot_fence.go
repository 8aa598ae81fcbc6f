package artifact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Leader is a life of a registry's role. Of one incarnation of its store the highest term leads.
type Leader struct {
	Incarnation string `json:"incarnation"`
	Term        uint64 `json:"term"`
}

// depotLeader is the object that says who leads. Earlier versions do not know it.
const depotLeader = "leader.json"

// DeposedError refuses to change a name: another process has taken over the registry.
type DeposedError struct{ By Leader }

func (e *DeposedError) Error() string {
	return fmt.Sprintf("another process has taken over the images, in term %d: ask that one", e.By.Term)
}

// LeadDepot notes in a store's depot that this process leads now. From then on no name is changed by one that led before, but for a change
// that hangs between its look at the note and its write. A restored store has a new incarnation and leads whatever the note says. Without a
// depot it does nothing.
func LeadDepot(ctx context.Context, store *Store, leader Leader) error {
	kept := store.depot
	if kept == nil || kept.ledger != nil { // the role's store sees to that
		return nil
	}
	store.mu.Lock()
	kept.leader = leader // whoever cannot note that changes nothing either
	store.mu.Unlock()
	now, err := kept.leaderNow(ctx)
	if err != nil {
		return kept.fail(err)
	}
	if now.Incarnation == leader.Incarnation && now.Term > leader.Term {
		return kept.fail(&DeposedError{now})
	}
	if now == leader {
		return nil
	}
	raw := mustJSON(leader)
	if err := kept.Put(ctx, depotLeader, strings.NewReader(string(raw)), int64(len(raw))); err != nil {
		return kept.fail(err)
	}
	file := filepath.Join(store.dir, "depot-led")
	if last, err := os.ReadFile(file); now != (Leader{}) && (err != nil || string(last) != string(mustJSON(now))) {
		if err := kept.reload(ctx); err != nil {
			return err
		}
	}
	return diskError(os.WriteFile(file, raw, 0o600))
}

// reload has the depot asked again what it has: another process led until now, and may have changed names since this one asked. Until it is
// known, nothing is pushed or deleted.
func (d *depot) reload(ctx context.Context) error {
	d.s.mu.Lock()
	d.loaded, d.why = false, errNotLoaded
	d.s.mu.Unlock()
	d.s.namings.await() // whoever did not see that is done then
	return LoadDepot(ctx, d.s)
}

// leaderNow reads the note; the zero value: there is none.
func (d *depot) leaderNow(ctx context.Context) (now Leader, err error) {
	raw, err := d.read(ctx, depotLeader, maxDepotName)
	if errors.Is(err, fs.ErrNotExist) {
		return Leader{}, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &now)
	}
	if err != nil {
		return Leader{}, fmt.Errorf("object %s: %w", depotLeader, err)
	}
	return now, nil
}

// leads returns an error if another process has taken over since this one noted that it leads.
func (d *depot) leads(ctx context.Context) error {
	d.s.mu.Lock()
	noted := d.leader
	d.s.mu.Unlock()
	if noted == (Leader{}) {
		return nil // nobody said so: a process without a note before its first life, or a test
	}
	now, err := d.leaderNow(ctx)
	if err == nil && now != noted {
		err = &DeposedError{now}
	}
	return d.fail(err)
}
