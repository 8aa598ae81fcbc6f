// Package nft is the overlay's data plane where the kernel does not take the programs of overlay/bpf: the same addresses, the
// same isolation and the same sealed paths with nftables, connection tracking and routes. It owns the tables sk<name> of the
// families inet, netdev and bridge, the device <prefix>.m, a table of routes, and the rules that lead what instances send
// there. It shares the device <prefix>.t with overlay/tunnel. The worker's wiring imports it.
//
//	instance ── bridge: is it its own address? ── inet: service address -> instance ── routes ─┬── bridge: same network?
//	                                                                                           ├── .t: netdev writes the frame's header
//	                                                                                           └── .m: nothing known, to the agent
//
// Everything stays in the kernel when the agent ends, and the next one goes on with it. All of it is changed only by Set, in one
// transaction.
//
// Flows are those of the kernel's connection tracking. What nothing is known of goes to the agent over <prefix>.m, is held for up
// to a second, and comes back when Set makes it known. There are no plain paths: what a peer would get plain, it gets sealed.
package nft
