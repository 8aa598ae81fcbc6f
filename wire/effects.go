package wire

import (
	"skerry.dev/skerry"
)

// Write is one record to persist; a nil Value deletes it.
type Write struct {
	Key   string
	Value []byte
}

// Outgoing is a message for a peer: a child by name, or the parent under the empty name.
type Outgoing struct {
	To  string
	Msg any
}

// Effects is what a core wants done after a step, in this order: persist all writes in one commit, then send, then
// announce, then carry out the actions and give the result to whoever asked.
type Effects struct {
	Writes  []Write
	Sends   []Outgoing
	Events  []Event
	Actions []any // role-specific values, such as "start this container"
	Result  any
	Err     error
	// Changed names the applications and instances that watchers should look at again.
	Changed []Change
}

// Change tells watchers what to read again.
type Change struct {
	App      skerry.AppKey
	Instance skerry.InstanceID // empty: the application itself
	Org      string            // whose it is; empty: it is not said
	Deleted  bool
}

// Merge appends what g wants; results and errors stay with the caller.
func (e *Effects) Merge(g Effects) {
	e.Writes = append(e.Writes, g.Writes...)
	e.Sends = append(e.Sends, g.Sends...)
	e.Events = append(e.Events, g.Events...)
	e.Actions = append(e.Actions, g.Actions...)
	e.Changed = append(e.Changed, g.Changed...)
}

// Put adds a record to persist.
func (e *Effects) Put(key string, value []byte) { e.Writes = append(e.Writes, Write{key, value}) }

// Delete adds a record to delete.
func (e *Effects) Delete(key string) { e.Writes = append(e.Writes, Write{Key: key}) }
