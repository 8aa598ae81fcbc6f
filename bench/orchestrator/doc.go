// Package orchestrator sets orchestrators side by side: how long each takes until a service is ready and until it is gone, and what its own
// processes use meanwhile. It knows none of them, Skerry neither: a small program stands for each, the adapter, and all take turns, so that
// what disturbs the machine disturbs all alike. `skerry bench orchestrator` is its command, docs/BENCH-ADAPTERS.md has the contract.
//
//	adapters ──> run: round by round, each size, each adapter in turn ──> turns ──> fold ──> report: table, JSON
//	                    deploy ─ wait ─ (rest) ─ delete                           figures of 002 beside them
//
// What an adapter cannot do here is listed with its reason, never estimated.
//
// RunLab measures Skerry alone, in labs, what section 5 of 002 measures:
//
//	steps (part, setting) ──> round by round: federation (a lab that stays) ── do ──> cells ──> fold ──> report: table, JSON, CSV, HTML
//	                                          listener on a host's cable ──> wire: records of TLS, datagrams
//
// Any package but bench may import it.
package orchestrator
