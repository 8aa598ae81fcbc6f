// Package reconcile replicates keyed sets and ordered events between two peers over a link that may lose, repeat and
// reorder, and between processes that may stop at any moment.
//
// A Source holds the truth of one set for one peer, a Replica the peer's copy. Each change raises the generation of the
// source; frames name the generation they are based on and the digest after applying them. An Outbox keeps events until
// the other side's Inbox has acknowledged them.
//
// The package owns differences, acknowledgement and what to persist. It never opens, starts, logs or locks anything and
// takes the time as an argument. Values are opaque. Any package may import it; it imports the root package only.
//
// The order in one step of a caller: handle messages and make changes; persist Flush; only then send what Next or Apply
// gave.
package reconcile
