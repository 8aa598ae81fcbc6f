package wire

// FeatureLease is offered by who understands leases.
const FeatureLease = "tenure"

// LeaseCandidate is a machine that may be the cluster of a site: the one that leads, or a successor that was named in advance.
type LeaseCandidate struct {
	Name string `json:"name,omitempty" cbor:"1,keyasint,omitempty"`
	// Addr is where it listens for workers, HOST:PORT.
	Addr string `json:"addr,omitempty" cbor:"2,keyasint,omitempty"`
}

// Lease asks a worker to stay with the candidate that leads. It goes from the cluster to its workers, on the link, and after a
// take-over on the connection on which the vote was given. Package decide/lease has the rules.
type Lease struct {
	Term   uint64 `json:"term,omitempty" cbor:"1,keyasint,omitempty"`
	Holder string `json:"holder,omitempty" cbor:"2,keyasint,omitempty"` // the candidate that leads
	// Seq numbers, within a term, who may follow.
	Seq    uint64           `json:"seq,omitempty" cbor:"3,keyasint,omitempty"`
	InSync []LeaseCandidate `json:"heirs,omitempty" cbor:"4,keyasint,omitempty"` // in order
	// TTL is for how long the worker promises itself, in milliseconds from when it hears this.
	TTL uint32 `json:"ttl,omitempty" cbor:"5,keyasint,omitempty"`
	// Stamp is repeated in the answer: the holder's own time of sending.
	Stamp uint64 `json:"stamp,omitempty" cbor:"6,keyasint,omitempty"`
	// At is where the holder listens for workers, HOST:PORT.
	At string `json:"at,omitempty" cbor:"7,keyasint,omitempty"`
}

// FrameType implements Message.
func (*Lease) FrameType() FrameType { return FrameLease }

// Promise answers a Lease: the worker will vote for nobody else until the lease has run out. With a Term higher than that of
// the Lease it is a refusal, and Holder is whom the worker has promised itself to.
type Promise struct {
	Term   uint64 `json:"term,omitempty" cbor:"1,keyasint,omitempty"`
	Holder string `json:"holder,omitempty" cbor:"2,keyasint,omitempty"`
	Seq    uint64 `json:"seq,omitempty" cbor:"3,keyasint,omitempty"` // what the worker has written down
	Stamp  uint64 `json:"stamp,omitempty" cbor:"4,keyasint,omitempty"`
}

// FrameType implements Message.
func (*Promise) FrameType() FrameType { return FramePromise }

// Vote is what a worker has written down of who leads its site. A worker that has lost its cluster tells it to the candidates that it
// knows; after an Ask it tells whether its vote is the candidate's now.
type Vote struct {
	Term   uint64 `json:"term,omitempty" cbor:"1,keyasint,omitempty"` // the highest that it has promised itself for
	Holder string `json:"holder,omitempty" cbor:"2,keyasint,omitempty"`
	// LeaseTerm is the term of the last Lease that it heard, of whom, and with what.
	LeaseTerm   uint64           `json:"reign,omitempty" cbor:"3,keyasint,omitempty"`
	LeaseHolder string           `json:"reignHolder,omitempty" cbor:"4,keyasint,omitempty"`
	Seq         uint64           `json:"seq,omitempty" cbor:"5,keyasint,omitempty"`
	InSync      []LeaseCandidate `json:"heirs,omitempty" cbor:"6,keyasint,omitempty"`
	// Strayed: it has voted for another candidate than LeaseHolder since.
	Strayed bool `json:"strayed,omitempty" cbor:"7,keyasint,omitempty"`
	// Wait is how long its promise still binds it, in milliseconds; 0: it is free.
	Wait uint32 `json:"wait,omitempty" cbor:"8,keyasint,omitempty"`
	// At is where LeaseHolder listens.
	At string `json:"at,omitempty" cbor:"9,keyasint,omitempty"`
}

// FrameType implements Message.
func (*Vote) FrameType() FrameType { return FrameVote }

// Ask asks a worker for its vote in a term.
type Ask struct {
	Term      uint64 `json:"term,omitempty" cbor:"1,keyasint,omitempty"`
	Candidate string `json:"seat,omitempty" cbor:"2,keyasint,omitempty"`
}

// FrameType implements Message.
func (*Ask) FrameType() FrameType { return FrameAsk }

// Follow asks the candidate that leads for its store, from where the asking candidate's own ends.
type Follow struct {
	// LeaseTerm and Revision name the end of what the candidate has: a revision of its store, and the term in which that was written. 0:
	// it has nothing.
	LeaseTerm uint64 `json:"reign,omitempty" cbor:"1,keyasint,omitempty"`
	Revision  int64  `json:"revision,omitempty" cbor:"2,keyasint,omitempty"`
	// Addr is where the candidate listens for workers, HOST:PORT; without a host it is the one that the connection comes from.
	Addr    string `json:"addr,omitempty" cbor:"3,keyasint,omitempty"`
	Machine string `json:"machine,omitempty" cbor:"4,keyasint,omitempty"`
	Version string `json:"version,omitempty" cbor:"5,keyasint,omitempty"`
	// Keyed: the candidate takes the key of the site's secrets, before anything else.
	Keyed bool `json:"keyed,omitempty" cbor:"6,keyasint,omitempty"`
}

// FrameType implements Message.
func (*Follow) FrameType() FrameType { return FrameFollow }

// Followed accepts a Follow. The connection then carries the store, as package store writes it, and acknowledgements.
type Followed struct {
	Term   uint64 `json:"term,omitempty" cbor:"1,keyasint,omitempty"`
	Holder string `json:"holder,omitempty" cbor:"2,keyasint,omitempty"`
	// Whole: a whole copy comes first, and takes the place of what the candidate has.
	Whole bool `json:"whole,omitempty" cbor:"3,keyasint,omitempty"`
	// Orphan: what the candidate has written beyond the revision Common is not part of the site's history.
	Orphan bool   `json:"astray,omitempty" cbor:"4,keyasint,omitempty"`
	Common int64  `json:"common,omitempty" cbor:"5,keyasint,omitempty"`
	TTL    uint32 `json:"ttl,omitempty" cbor:"6,keyasint,omitempty"` // of leases, in milliseconds
}

// FrameType implements Message.
func (*Followed) FrameType() FrameType { return FrameFollowed }
