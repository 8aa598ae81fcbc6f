// Package core is a worker as a state machine: what runs on one machine, the order of containers, restarts and probes, and what its cluster
// is told of them.
//
//	frames of the cluster, wishes of people ─► Step ─┐               ┌─► writes, which the server persists first
//	            answers: Prepared, Started, Exited ─┤               ├─► messages to the cluster, then events
//	                           what is due ─► Tick ─┴► settle ─► Effects
//	                                                                 └─► actions: Prepare, StartContainer, Cleanup ...
//	 desired, review, freeze     what is wanted here, and what of it has to wait
//	 lifecycle                   what becomes of each instance; each action is answered by a message:
//	    Fetching ─► Starting ─► Running ─► Exited
//	       ▲            ▲          │
//	       └────────────┴─ BackOff ◄┘
//	 contacts ─ volumeBook ─ strays     parts that say what must stop, wait or be taken up, and leave it to those above
//	 ledger ─ freezer                   the list of instances with what the cluster is told of each; what waits while the worker is held
//	 reporter, overlayItems, snapshotBook     parts that know no instance
//
// Each part owns its state in one file and knows only the parts that it names, which are below it. Core hands messages to them and decides
// between them.
//
// It is pure: it starts and opens nothing, and takes the time as an argument. Package worker carries out the actions with drivers, images
// and network; View, and the functions beside it, have what it asks.
package core
