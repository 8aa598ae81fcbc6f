// Package uplink decides what the root learns of a site, and when: sums, counts and texts, and never a worker by its name. It remembers
// since when the root is away. The cluster's core, which alone imports it, gives it what there is and sends what it returns. It is pure: no
// clock, no disk, no socket.
//
//	workers ─► Fold ──────► sums for each class of workers, coarse where these are few ─┐
//	reasons ─► InCounts ──► how many workers were ruled out, and why                    ├─► root
//	texts ───► Redact ────► without names and addresses of workers ─────────────────────┘
//	changed ─► Uplink ────► a report at once, but none 100 ms after another; else at the latest after 10 s
package uplink
