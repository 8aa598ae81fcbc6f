// Package quiet has a benchmark wait until the machine is its own, tells for whom it waited, and marks the rounds in
// which others came. It is the one judge of that for all kinds of benchmarks; it measures nothing else, and stops nobody.
//
//	Begin        wait ─► quiet ─► round 1 ─► Round: a look at rest ─► round 2 ...
//	                     ^                     │ others: the round is marked
//	                     └─────── wait ────────┘
//
// It goes by the processor time that others use over a few seconds, and not by the load average, which remembers the
// benchmark's own last round for minutes.
package quiet
