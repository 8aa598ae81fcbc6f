package wire

// PeersKey is the key of the Peers in a worker's desired set.
const PeersKey = "peers"

// Peers are the workers to which a worker measures round trips, for its coordinate. A worker without any is the only one
// that can be reached; it stays at the origin.
type Peers struct {
	KeyID uint16   `json:"keyID" cbor:"1,keyasint,omitempty"`
	Key   []byte   `json:"-" cbor:"2,keyasint,omitempty"`    // of all workers of the site; datagrams carry its HMAC
	List  []string `json:"list" cbor:"3,keyasint,omitempty"` // WorkerFacts.Probe of each
}
