// Package autonomy is what a site does by itself while its root is away, and when its own store is lost. Each type below has a state and an
// audit of its own, and knows none of the others:
//
//	Overrides   the root's applications that were changed here, until the root has answered
//	Dependents  the instances that end here, because the root starts them elsewhere after some time
//	Scaling     the numbers of instances of the root's services that follow their load
//	Rebuild     what a site that lost its store found at its workers
//
//	root away ─┬─ a user changes an application ──► Overrides ──root back──► frozen, reported ──answer──► the root's again
//	           ├─ its load asks for more or fewer ► Scaling ─┘
//	           └─ stopAfter is over ──────────────► Dependents: ended here
//
// The cluster's core, which alone imports it, places, sends and ends what they decide. It is pure: no clock, no disk, no socket.
package autonomy
