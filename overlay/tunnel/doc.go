// Package tunnel is the encrypted path of the overlay: what runs in `skerry datapath`, a process that outlives the agent,
// and the agent's end of talking to it. An Engine takes frames from a tap device, seals what is in them for the peer that
// their Ethernet header names, and sends it by UDP, or by way of a relay; what comes back the same way goes to the tap. It
// knows keys, addresses and prefixes of peers because Set told it; it decides nothing about services or routes. Only the
// worker, and the places that put parts together, import it.
//
// # Datagrams
//
// A datagram of data is one packet of an instance:
//
//	type 1 | receiver index 4 | counter 6 | sealed: flags 1, network id 4, IP packet | tag 16
//
// All before the seal is authenticated with it. A large segment (TSO, UDP GSO) of the tap is cut into packets that each
// stand for themselves, with their own header and sequence number, sealed one by one, and leaves with one system call (UDP
// GSO). The receiver gets many at once (UDP GRO), opens them where they lie, joins those that follow each other, and writes
// them to the tap as one large segment. A datagram that was lost costs one packet; nothing waits for it.
//
// # Keys
//
// A handshake is Noise IK (25519, ChaChaPoly, BLAKE2s); static keys are pinned by Set. Each handshake gives a session: two
// indices, two keys, a cipher (AES-GCM where both ends have instructions for it, else ChaCha20-Poly1305), a replay window.
// The end with the lower key begins a new session in time, the other one if that is late. The initiator sends with it at
// once, the responder when it has heard from it. Old sessions receive for a while longer, so that a change loses nothing.
//
// # Paths
//
// A peer is reached directly or by way of a relay. A handshake goes out by all ways at once, and the first to arrive wins.
// Then both ends ping each other at every address that each knows of the other, which opens NATs between them; the first
// direct answer moves the traffic. An authenticated datagram from a new address moves it too.
package tunnel
