package skerry

// NetworkID tells the networks of applications apart: it is part of every key and header of the overlay. 0 is none. The
// root gives those below 1<<31, a site those above to its own applications, which never leave it.
type NetworkID uint32

// PeerID is a worker's, or a gateway's, number in the overlay of a site, given by the cluster. 0 is none.
type PeerID uint32

// OverlayKey is the public key of a worker's end of encrypted paths: X25519, 32 bytes.
type OverlayKey [32]byte
