package skerry

// Join asks to be enrolled. It travels on a connection whose other end has proven the site CA pinned by the token.
type Join struct {
	Token   string `cbor:"1,keyasint,omitempty"`
	Tier    Tier   `cbor:"2,keyasint,omitempty"`
	Name    string `cbor:"3,keyasint,omitempty"` // empty: the token's bound name
	CSR     []byte `cbor:"4,keyasint,omitempty"` // DER, signed by the device's key; its names are ignored
	Machine string `cbor:"5,keyasint,omitempty"` // names the device for people
	Boot    string `cbor:"6,keyasint,omitempty"`
	Version string `cbor:"7,keyasint,omitempty"`
	// SiteCA asks the root to certify the key of a cluster's own CA: a certificate request (DER), signed by that key, whose
	// one URI is skerry-key:<hash of the device's key>. Names in it are ignored.
	SiteCA []byte `cbor:"8,keyasint,omitempty"`
}

// FrameType implements Message.
func (*Join) FrameType() FrameType { return FrameJoin }

// Renew asks for the next certificate. The connection must be authenticated by the enrolled key, whose certificate
// may have expired. Counter is the one handed out last; Attempt is a random id that is kept until an answer arrives,
// so that a lost answer is not mistaken for a clone.
type Renew struct {
	Counter uint64 `cbor:"1,keyasint,omitempty"`
	Attempt string `cbor:"2,keyasint,omitempty"`
	Machine string `cbor:"3,keyasint,omitempty"`
	Boot    string `cbor:"4,keyasint,omitempty"`
	SiteCA  []byte `cbor:"5,keyasint,omitempty"`
}

// FrameType implements Message.
func (*Renew) FrameType() FrameType { return FrameRenew }

// Joined answers Join and Renew.
type Joined struct {
	Tier        Tier   `cbor:"1,keyasint,omitempty"`
	Name        string `cbor:"2,keyasint,omitempty"`
	Site        string `cbor:"3,keyasint,omitempty"` // the parent's site
	Certificate []byte `cbor:"4,keyasint,omitempty"` // DER
	CA          []byte `cbor:"5,keyasint,omitempty"` // DER
	Counter     uint64 `cbor:"6,keyasint,omitempty"`
	Life        uint32 `cbor:"7,keyasint,omitempty"` // seconds from now until the certificate expires
	SiteCert    []byte `cbor:"8,keyasint,omitempty"` // DER: the child's CA key, certified by this site's CA
}

// FrameType implements Message.
func (*Joined) FrameType() FrameType { return FrameJoined }
