// Package core is a cluster orchestrator as a state machine: it owns one site, which worker runs an instance, host
// ports, endpoints, and what the root learns in aggregate.
//
//	frames of workers and of the root, what people want ─► Step ─┐               ┌─► writes, which the server persists first
//	                                      what is due ─► Tick ─┴► settle ─► Effects ─► messages, then events
//	                                                                             └─► actions: Measure, AskWitness, Score ...
//	 reports, intake, queue, judge, drainer ...     parts, each with what it names
//	 lifecycle ─ finder                             what becomes of a placement; where it could go
//	 sender ─ books ─ herald ─ ledger               layers, of which each sees those below it
//
// It is pure: it starts and opens nothing, and takes the time as an argument. Parts that need little of the others are packages beside it,
// such as cluster/detect. Package cluster has the goroutines, the store and the links; views has what it asks.
package core
