// Package wireguard is the kernel's own encrypted path of the overlay, where the kernel has one: it owns the device
// <prefix>.w of a worker, its key, port and peers, and finds out whether packets really reach a peer by it. It moves no
// packet and decides nothing about routes: overlay/bpf leads packets into the device and takes them out of it. Only the
// worker, and the places that put parts together, import it.
//
// # The device
//
// It has no address and no route. What is in it is IPv6 whose addresses are made by the programs of overlay/bpf: 96 bits that
// follow from the public key of a worker, then the network id. WireGuard takes from a peer only what comes from the peer's own
// 96 bits, so that who sent a packet, and in which network, is told by an authenticated header. The device, its sessions and
// the tables of the programs are the kernel's: traffic goes on while there is no agent.
//
// # When it is used
//
//	       answers ≥ need                      4 questions in a row unanswered
//	down ───────────────────────────> up ─────────────────────────────────────> down, need doubled
//	 ^ asks every 0.5 s at first,      │ asks every 20 s; 5 s with traffic;
//	 │ every 10 s later                │ at once when what is sent brings nothing back
//
// A way without traffic for three minutes rests: it is down, and nothing is asked, until the datapath has found the
// peer anew because somebody sends to it, or traffic comes. A question is an ICMP echo through the device, which the
// peer's programs answer without its agent. A peer is asked once it is known where it may be: the datapath tells where
// it reaches the peer directly, and WireGuard is tried there at the peer's own port for it; or the peer has begun by
// itself. While it is down packets go by the datapath.
package wireguard
