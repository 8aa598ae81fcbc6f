package artifact

import "sync"

// turns lets one at a time do something with a key. The zero value is usable.
type turns struct {
	mu    sync.Mutex
	taken map[string]*turn
}

// turn is of one key, while anybody has it or waits for it.
type turn struct {
	held  chan struct{} // has one while somebody has it
	users int           // turns.mu guards it
}

// take waits for the turn of a key, and gives what ends it.
func (ts *turns) take(key string) (end func()) {
	ts.mu.Lock()
	one := ts.taken[key]
	if one == nil {
		if ts.taken == nil {
			ts.taken = map[string]*turn{}
		}
		one = &turn{held: make(chan struct{}, 1)}
		ts.taken[key] = one
	}
	one.users++
	ts.mu.Unlock()
	one.held <- struct{}{}
	return func() {
		<-one.held
		ts.mu.Lock()
		defer ts.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(ts.taken, key)
		}
	}
}

// await returns when all turns have ended that are taken or waited for now.
func (ts *turns) await() {
	ts.mu.Lock()
	keys := make([]string, 0, len(ts.taken))
	for key := range ts.taken {
		keys = append(keys, key)
	}
	ts.mu.Unlock()
	for _, key := range keys {
		ts.take(key)()
	}
}
