// Package core is a worker as a state machine: what runs on one machine, the order of containers, restarts and probes, and what its cluster
// is told of them.
//
//	frames of the cluster, wishes of people ─► Step ─┐               ┌─► writes, which the server persists first
//	            answers: Prepared, Started, Exited ─┤               ├─► messages to the cluster, then events
//	                           what is due ─► Tick ─┴► settle ─► Effects
//	                                                                 └─► actions: Prepare, StartContainer, Cleanup ...
//	    Fetching ─► Starting ─► Running ─► Exited     of each instance; each action is answered by a message
//	       ▲            ▲          │
//	       └────────────┴─ BackOff ◄┘
//
// It is pure: it starts and opens nothing, and takes the time as an argument. Package worker carries out the actions with drivers, images
// and network; View, and the functions beside it, have what it asks.
package core
