package wire

// Join asks to be enrolled. It travels on a connection whose other end has proven the site CA pinned by the token.
type Join struct {
	Token   string `json:"token,omitempty" cbor:"1,keyasint,omitempty"`
	Tier    Tier   `json:"tier,omitempty" cbor:"2,keyasint,omitempty"`
	Name    string `json:"name,omitempty" cbor:"3,keyasint,omitempty"`    // empty: the token's bound name
	CSR     []byte `json:"csr,omitempty" cbor:"4,keyasint,omitempty"`     // DER, signed by the device's key; its names are ignored
	Machine string `json:"machine,omitempty" cbor:"5,keyasint,omitempty"` // names the device for people
	Boot    string `json:"boot,omitempty" cbor:"6,keyasint,omitempty"`
	Version string `json:"version,omitempty" cbor:"7,keyasint,omitempty"`
	// SiteCA asks the root to certify the key of a cluster's own CA: a certificate request (DER), signed by that key, whose
	// one URI is skerry-key:<hash of the device's key>. Names in it are ignored.
	SiteCA []byte `json:"siteCA,omitempty" cbor:"8,keyasint,omitempty"`
}

// FrameType implements Message.
func (*Join) FrameType() FrameType { return FrameJoin }

// Renew asks for the next certificate. The connection must be authenticated by the enrolled key, whose certificate
// may have expired. Counter is the one handed out last; Attempt is a random id that is kept until an answer arrives,
// so that a lost answer is not mistaken for a clone.
type Renew struct {
	Counter uint64 `json:"counter,omitempty" cbor:"1,keyasint,omitempty"`
	Attempt string `json:"attempt,omitempty" cbor:"2,keyasint,omitempty"`
	Machine string `json:"machine,omitempty" cbor:"3,keyasint,omitempty"`
	Boot    string `json:"boot,omitempty" cbor:"4,keyasint,omitempty"`
	SiteCA  []byte `json:"siteCA,omitempty" cbor:"5,keyasint,omitempty"`
}

// FrameType implements Message.
func (*Renew) FrameType() FrameType { return FrameRenew }

// Joined answers Join and Renew.
type Joined struct {
	Tier        Tier   `json:"tier,omitempty" cbor:"1,keyasint,omitempty"`
	Name        string `json:"name,omitempty" cbor:"2,keyasint,omitempty"`
	Site        string `json:"site,omitempty" cbor:"3,keyasint,omitempty"`        // the parent's site
	Certificate []byte `json:"certificate,omitempty" cbor:"4,keyasint,omitempty"` // DER
	CA          []byte `json:"ca,omitempty" cbor:"5,keyasint,omitempty"`          // DER
	Counter     uint64 `json:"counter,omitempty" cbor:"6,keyasint,omitempty"`
	Life        uint32 `json:"life,omitempty" cbor:"7,keyasint,omitempty"`     // seconds from now until the certificate expires
	SiteCert    []byte `json:"siteCert,omitempty" cbor:"8,keyasint,omitempty"` // DER: the child's CA key, certified by this site's CA
}

// FrameType implements Message.
func (*Joined) FrameType() FrameType { return FrameJoined }
