package wire

import (
	"fmt"
	"time"

	"skerry.dev/skerry"
)

// The control protocol's versions spoken by this build. Peers pick the highest version that both speak; parents are
// upgraded first and keep the previous two.
const (
	ProtocolMin uint32 = 1
	ProtocolMax uint32 = 1
)

// Tier is the part a process plays in the federation ("role" on the command line; people have roles too, hence the
// other word here).
type Tier string

// The three tiers.
const (
	TierRoot    Tier = "root"
	TierCluster Tier = "cluster"
	TierWorker  Tier = "worker"
)

// TierSuccessor is the role in which a machine joins a cluster to stand by for it. It is no tier of its own: it becomes the
// cluster, or nothing.
const TierSuccessor Tier = "successor"

// Parent gives the tier above: root for a cluster, cluster for a worker or a successor, and "" for anything else.
func (t Tier) Parent() Tier {
	switch t {
	case TierCluster:
		return TierRoot
	case TierWorker, TierSuccessor:
		return TierCluster
	}
	return ""
}

// Valid reports whether t is one of the three, or a successor.
func (t Tier) Valid() bool { return t == TierRoot || t.Parent() != "" }

// FrameType is the first byte of a frame on a link. Numbers are never reused.
type FrameType byte

// Frame types of protocol 1.
const (
	FrameHello        FrameType = 1
	FrameWelcome      FrameType = 2
	FrameRefuse       FrameType = 3
	FramePing         FrameType = 4
	FramePong         FrameType = 5
	FrameSetDelta     FrameType = 16
	FrameSetChunk     FrameType = 17
	FrameSetAck       FrameType = 18
	FrameSetWant      FrameType = 19
	FrameSetHeldWant  FrameType = 20
	FrameSetHeld      FrameType = 21
	FrameEvents       FrameType = 32
	FrameEventsAck    FrameType = 33
	FrameReport       FrameType = 34
	FrameOpenStreams  FrameType = 48
	FrameStreamHello  FrameType = 49
	FrameStreamHeader FrameType = 50
	FrameStreamOpened FrameType = 51
	FrameJoin         FrameType = 64
	FrameRenew        FrameType = 65
	FrameJoined       FrameType = 66
	FrameLease        FrameType = 80
	FramePromise      FrameType = 81
	FrameVote         FrameType = 82
	FrameAsk          FrameType = 83
	FrameFollow       FrameType = 84
	FrameFollowed     FrameType = 85
)

// String gives the name of a type, which is what JSON has in its place; "" for an unknown one.
func (t FrameType) String() string {
	switch t {
	case FrameHello:
		return "hello"
	case FrameWelcome:
		return "welcome"
	case FrameRefuse:
		return "refuse"
	case FramePing:
		return "ping"
	case FramePong:
		return "pong"
	case FrameSetDelta:
		return "set-delta"
	case FrameSetChunk:
		return "set-chunk"
	case FrameSetAck:
		return "set-ack"
	case FrameSetWant:
		return "set-want"
	case FrameSetHeldWant:
		return "set-held-want"
	case FrameSetHeld:
		return "set-held"
	case FrameEvents:
		return "events"
	case FrameEventsAck:
		return "events-ack"
	case FrameReport:
		return "report"
	case FrameOpenStreams:
		return "open-streams"
	case FrameStreamHello:
		return "stream-hello"
	case FrameStreamHeader:
		return "stream-header"
	case FrameStreamOpened:
		return "stream-opened"
	case FrameJoin:
		return "join"
	case FrameRenew:
		return "renew"
	case FrameJoined:
		return "joined"
	case FrameLease:
		return "lease"
	case FramePromise:
		return "promise"
	case FrameVote:
		return "vote"
	case FrameAsk:
		return "ask"
	case FrameFollow:
		return "follow"
	case FrameFollowed:
		return "followed"
	}
	return ""
}

// Message is anything that travels in a frame, always a pointer to one of the structs below. Whoever sends one gives
// it up: it may be read at any time later and must not be changed.
type Message interface {
	FrameType() FrameType
}

// NewMessage gives a pointer to the zero message of a type for a decoder, or nil for an unknown type. Unknown types
// are skipped by receivers, so that an older peer survives a newer one.
func NewMessage(t FrameType) Message {
	switch t {
	case FrameHello:
		return new(Hello)
	case FrameWelcome:
		return new(Welcome)
	case FrameRefuse:
		return new(Refuse)
	case FramePing:
		return new(Ping)
	case FramePong:
		return new(Pong)
	case FrameSetDelta:
		return new(SetDelta)
	case FrameSetChunk:
		return new(SetChunk)
	case FrameSetAck:
		return new(SetAck)
	case FrameSetWant:
		return new(SetWant)
	case FrameSetHeldWant:
		return new(SetHeldWant)
	case FrameSetHeld:
		return new(SetHeld)
	case FrameEvents:
		return new(Events)
	case FrameEventsAck:
		return new(EventsAck)
	case FrameReport:
		return new(Report)
	case FrameOpenStreams:
		return new(OpenStreams)
	case FrameStreamHello:
		return new(StreamHello)
	case FrameStreamHeader:
		return new(StreamHeader)
	case FrameStreamOpened:
		return new(StreamOpened)
	case FrameJoin:
		return new(Join)
	case FrameRenew:
		return new(Renew)
	case FrameJoined:
		return new(Joined)
	case FrameLease:
		return new(Lease)
	case FramePromise:
		return new(Promise)
	case FrameVote:
		return new(Vote)
	case FrameAsk:
		return new(Ask)
	case FrameFollow:
		return new(Follow)
	case FrameFollowed:
		return new(Followed)
	}
	return nil
}

// Hello is the child's first frame on a control connection. Tier and Name must be those of its certificate.
type Hello struct {
	Tier        Tier     `json:"tier,omitempty" cbor:"1,keyasint,omitempty"`
	Name        string   `json:"name,omitempty" cbor:"2,keyasint,omitempty"`
	Version     string   `json:"version,omitempty" cbor:"3,keyasint,omitempty"` // software version, for people
	ProtocolMin uint32   `json:"protocolMin,omitempty" cbor:"4,keyasint,omitempty"`
	ProtocolMax uint32   `json:"protocolMax,omitempty" cbor:"5,keyasint,omitempty"`
	Features    []string `json:"features,omitempty" cbor:"6,keyasint,omitempty"` // offered
	Required    []string `json:"required,omitempty" cbor:"7,keyasint,omitempty"` // the link is of no use without these
	// Sets says, for each set that the child receives, what it holds, and for the one that it sends how far that has come: the
	// parent then knows when it has been told all.
	Sets []SetAck `json:"sets,omitempty" cbor:"8,keyasint,omitempty"`
	// Boot is a random id of this run of the agent; Machine names the device for people (machine id or host name).
	Boot    string `json:"boot,omitempty" cbor:"9,keyasint,omitempty"`
	Machine string `json:"machine,omitempty" cbor:"10,keyasint,omitempty"`
	// Time is the child's wall clock in Unix milliseconds, from which the parent names a skew. It decides nothing.
	Time int64 `json:"time,omitempty" cbor:"11,keyasint,omitempty"`
	// Term is the highest one of its site that the child knows of: a worker's promise, or a cluster's own, as the root is to
	// prefer the later. 0: none.
	Term uint64 `json:"term,omitempty" cbor:"12,keyasint,omitempty"`
	// Carrier says over what the child is connected; it never travels: the parent's end sets it. Empty: the link itself.
	Carrier string `json:"-" cbor:"-"`
}

// CarrierMQTT is the Carrier of a worker that is connected to the cluster's MQTT listener. Items of its sets are JSON, and
// there are no streams and no beats to it.
const CarrierMQTT = "mqtt"

// FrameType implements Message.
func (*Hello) FrameType() FrameType { return FrameHello }

// Welcome accepts a Hello. After it, both sides send what they like.
type Welcome struct {
	Protocol    uint32             `json:"protocol,omitempty" cbor:"1,keyasint,omitempty"` // the version spoken from now on
	Features    []string           `json:"features,omitempty" cbor:"2,keyasint,omitempty"` // offered by both
	Tier        Tier               `json:"tier,omitempty" cbor:"3,keyasint,omitempty"`     // the parent's
	Name        string             `json:"name,omitempty" cbor:"4,keyasint,omitempty"`
	Version     string             `json:"version,omitempty" cbor:"5,keyasint,omitempty"`
	Incarnation skerry.Incarnation `json:"incarnation,omitempty" cbor:"6,keyasint,omitempty"` // of the parent's store
	// Sets says, for each set that the child sends, what the parent holds.
	Sets []SetAck `json:"sets,omitempty" cbor:"7,keyasint,omitempty"`
	// Events is how far the parent has kept the child's events.
	Events EventsAck `json:"events" cbor:"8,keyasint"`
	// KeepAlive in milliseconds: the child pings when it has sent nothing for that long; either side gives the
	// connection up after three times as long without a frame.
	KeepAlive uint32 `json:"keepAlive,omitempty" cbor:"9,keyasint,omitempty"`
	Time      int64  `json:"time,omitempty" cbor:"10,keyasint,omitempty"` // the parent's wall clock, Unix milliseconds
	Pace      *Pace  `json:"pace,omitempty" cbor:"11,keyasint,omitempty"` // how often the child does what costs traffic; nil: as it is used to
	// Beat in milliseconds: the child sends one so often by UDP to the port of the link; 0: none (package link/beat).
	Beat uint32 `json:"beat,omitempty" cbor:"12,keyasint,omitempty"`
	// Term is the one in which the parent leads. A child that knows of a later one does not stay. 0: the parent has none.
	Term uint64 `json:"term,omitempty" cbor:"13,keyasint,omitempty"`
}

// Pace says how often a child does what costs traffic, in milliseconds; 0: as it is used to.
type Pace struct {
	Report     uint32 `json:"report,omitempty" cbor:"1,keyasint,omitempty"`     // while something changes
	ReportIdle uint32 `json:"reportIdle,omitempty" cbor:"2,keyasint,omitempty"` // while nothing does
	Probe      uint32 `json:"probe,omitempty" cbor:"3,keyasint,omitempty"`      // round trips to other workers
}

// FrameType implements Message.
func (*Welcome) FrameType() FrameType { return FrameWelcome }

// RefuseCode says why a peer was turned away, for programs.
type RefuseCode string

// Reasons of a refusal.
const (
	RefuseProtocol      RefuseCode = "protocol"       // no common protocol version
	RefuseFeature       RefuseCode = "feature"        // a required feature is unknown
	RefuseIdentity      RefuseCode = "identity"       // the certificate says another name or tier
	RefuseExpired       RefuseCode = "expired"        // the certificate has expired; renew, then come again
	RefuseRevoked       RefuseCode = "revoked"        // the key was revoked
	RefuseUnknown       RefuseCode = "unknown"        // the key is not enrolled here
	RefuseClone         RefuseCode = "clone"          // the same identity runs on two machines
	RefuseTokenUsed     RefuseCode = "token-used"     // one-time token was used before
	RefuseTokenExpired  RefuseCode = "token-expired"  //
	RefuseTokenUnknown  RefuseCode = "token-unknown"  // never existed here, deleted, or the secret is wrong
	RefuseTokenRole     RefuseCode = "token-role"     // token is for another tier
	RefuseTokenName     RefuseCode = "token-name"     // token is bound to another name
	RefuseNameTaken     RefuseCode = "name-taken"     // another key is enrolled under this name
	RefuseMalformed     RefuseCode = "malformed"      // request does not parse
	RefuseBusy          RefuseCode = "busy"           // try again after RetryAfter
	RefuseStreamKind    RefuseCode = "stream-kind"    // nobody serves this kind of stream
	RefuseNotAuthorised RefuseCode = "not-authorised" // policy says no
	RefuseStandby       RefuseCode = "standby"        // this machine does not lead the site now: try the others
	RefuseDeposed       RefuseCode = "deposed"        // another machine leads the site in a later term
	RefuseInternal      RefuseCode = "internal"       // the parent could not answer, for example its disk is full
)

// Refuse turns a peer, a join or a stream away. It is also the error that callers get.
type Refuse struct {
	Code   RefuseCode `json:"code,omitempty" cbor:"1,keyasint,omitempty"`
	Reason string     `json:"reason,omitempty" cbor:"2,keyasint,omitempty"`
	Hint   string     `json:"hint,omitempty" cbor:"3,keyasint,omitempty"`
	// RetryAfter in milliseconds; 0 leaves it to the child's back-off.
	RetryAfter uint32 `json:"retryAfter,omitempty" cbor:"4,keyasint,omitempty"`
}

// FrameType implements Message.
func (*Refuse) FrameType() FrameType { return FrameRefuse }

// Error gives reason and hint.
func (r *Refuse) Error() string {
	if r.Hint == "" {
		return r.Reason
	}
	return fmt.Sprintf("%s (%s)", r.Reason, r.Hint)
}

// Wait is RetryAfter as a duration.
func (r *Refuse) Wait() time.Duration { return time.Duration(r.RetryAfter) * time.Millisecond }

// Ping asks for a Pong with the same nonce. RTT is what the sender measured last, in microseconds, 0 if unknown.
type Ping struct {
	Nonce uint64 `json:"nonce,omitempty" cbor:"1,keyasint,omitempty"`
	RTT   uint32 `json:"rtt,omitempty" cbor:"2,keyasint,omitempty"`
}

// FrameType implements Message.
func (*Ping) FrameType() FrameType { return FramePing }

// Pong answers a Ping.
type Pong struct {
	Nonce uint64 `json:"nonce,omitempty" cbor:"1,keyasint,omitempty"`
}

// FrameType implements Message.
func (*Pong) FrameType() FrameType { return FramePong }

// PeerIdentity is what a verified certificate of a link says.
type PeerIdentity struct {
	Tier    Tier
	Name    string
	Site    string    // whose CA signed
	Key     string    // SHA-256 of the public key, hexadecimal: what is enrolled
	Counter uint64    // of the renewal that made the certificate
	Expires time.Time // by the issuer's clock
	Public  []byte    // the public key itself (SPKI)
}
