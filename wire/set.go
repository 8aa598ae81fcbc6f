package wire

import (
	"skerry.dev/skerry"
)

// Digest is a multiset hash over the items of a set: the sum, lane by lane, of a 128-bit hash of every key and value. It
// detects divergence; it is no signature.
type Digest [16]byte

// SetItem is one item of a set. Value is opaque here. Gen is the generation of its last change. A deleted item is a
// tombstone and has no value.
type SetItem struct {
	Key     string            `json:"key,omitempty" cbor:"1,keyasint,omitempty"`
	Value   Payload           `json:"value,omitempty" cbor:"2,keyasint,omitempty"`
	Gen     skerry.Generation `json:"gen,omitempty" cbor:"3,keyasint,omitempty"`
	Deleted bool              `json:"deleted,omitempty" cbor:"4,keyasint,omitempty"`
}

// SetDelta changes a set from generation Base to Gen. It applies to a receiver of the same incarnation whose
// generation lies in [Base, Gen), and only if the digest of the result is Digest.
type SetDelta struct {
	Set         string             `json:"set,omitempty" cbor:"1,keyasint,omitempty"`
	Incarnation skerry.Incarnation `json:"incarnation,omitempty" cbor:"2,keyasint,omitempty"`
	Base        skerry.Generation  `json:"base,omitempty" cbor:"3,keyasint,omitempty"`
	Gen         skerry.Generation  `json:"gen,omitempty" cbor:"4,keyasint,omitempty"`
	Digest      Digest             `json:"digest" cbor:"5,keyasint"`
	Items       []SetItem          `json:"items,omitempty" cbor:"6,keyasint,omitempty"`
}

// FrameType implements Message.
func (*SetDelta) FrameType() FrameType { return FrameSetDelta }

// SetChunk is a part of a snapshot of a set at Gen or, when Delta is set, of a change from Base to Gen that is too
// large for one frame. Parts take effect together when the one with Last has arrived and the digest fits.
type SetChunk struct {
	Set         string             `json:"set,omitempty" cbor:"1,keyasint,omitempty"`
	Incarnation skerry.Incarnation `json:"incarnation,omitempty" cbor:"2,keyasint,omitempty"`
	Base        skerry.Generation  `json:"base,omitempty" cbor:"3,keyasint,omitempty"`
	Gen         skerry.Generation  `json:"gen,omitempty" cbor:"4,keyasint,omitempty"`
	Digest      Digest             `json:"digest" cbor:"5,keyasint"` // of the whole set at Gen
	Items       []SetItem          `json:"items,omitempty" cbor:"6,keyasint,omitempty"`
	Index       uint32             `json:"index,omitempty" cbor:"7,keyasint,omitempty"`
	Last        bool               `json:"last,omitempty" cbor:"8,keyasint,omitempty"`
	Delta       bool               `json:"delta,omitempty" cbor:"9,keyasint,omitempty"`
}

// FrameType implements Message.
func (*SetChunk) FrameType() FrameType { return FrameSetChunk }

// SetAck says what a receiver holds of a set. It answers every delta and chunk and stands in Hello and Welcome.
type SetAck struct {
	Set         string             `json:"set,omitempty" cbor:"1,keyasint,omitempty"`
	Incarnation skerry.Incarnation `json:"incarnation,omitempty" cbor:"2,keyasint,omitempty"` // empty: holds nothing
	Gen         skerry.Generation  `json:"gen,omitempty" cbor:"3,keyasint,omitempty"`
	Digest      Digest             `json:"digest" cbor:"4,keyasint"`
	// A transfer in parts under way to these: parts before Next have arrived.
	PartIncarnation skerry.Incarnation `json:"partIncarnation,omitempty" cbor:"5,keyasint,omitempty"`
	PartGen         skerry.Generation  `json:"partGen,omitempty" cbor:"6,keyasint,omitempty"`
	PartDigest      Digest             `json:"partDigest,omitzero" cbor:"10,keyasint,omitzero"`
	PartNext        uint32             `json:"partNext,omitempty" cbor:"7,keyasint,omitempty"`
	// Orphans are items of earlier incarnations that the present one has neither named nor deleted.
	Orphans      uint32 `json:"orphans,omitempty" cbor:"8,keyasint,omitempty"`
	OrphanDigest Digest `json:"orphanDigest,omitzero" cbor:"9,keyasint,omitzero"`
}

// FrameType implements Message.
func (*SetAck) FrameType() FrameType { return FrameSetAck }

// SetWantReason says why a receiver could not use a frame.
type SetWantReason string

// Reasons of a SetWant.
const (
	WantGap      SetWantReason = "gap"      // base is ahead of what the receiver has: begin again at Gen
	WantSnapshot SetWantReason = "snapshot" // other incarnation, or the digest differed: send everything
	WantRetired  SetWantReason = "retired"  // incarnation Of was replaced before and never comes back
)

// SetWant asks the source to begin again.
type SetWant struct {
	Set         string             `json:"set,omitempty" cbor:"1,keyasint,omitempty"`
	Incarnation skerry.Incarnation `json:"incarnation,omitempty" cbor:"2,keyasint,omitempty"` // what the receiver holds
	Gen         skerry.Generation  `json:"gen,omitempty" cbor:"3,keyasint,omitempty"`
	Reason      SetWantReason      `json:"reason,omitempty" cbor:"4,keyasint,omitempty"`
	Of          skerry.Incarnation `json:"of,omitempty" cbor:"5,keyasint,omitempty"` // incarnation of the frame refused
}

// FrameType implements Message.
func (*SetWant) FrameType() FrameType { return FrameSetWant }

// SetHeldWant asks the receiver of a set for its orphans, from part Next on.
type SetHeldWant struct {
	Set    string `json:"set,omitempty" cbor:"1,keyasint,omitempty"`
	Next   uint32 `json:"next,omitempty" cbor:"2,keyasint,omitempty"`
	Digest Digest `json:"digest" cbor:"3,keyasint"` // of the orphans that the asker means
}

// FrameType implements Message.
func (*SetHeldWant) FrameType() FrameType { return FrameSetHeldWant }

// HeldItem is an item of an earlier incarnation that a receiver keeps.
type HeldItem struct {
	Key         string             `json:"key,omitempty" cbor:"1,keyasint,omitempty"`
	Value       Payload            `json:"value,omitempty" cbor:"2,keyasint,omitempty"`
	Gen         skerry.Generation  `json:"gen,omitempty" cbor:"3,keyasint,omitempty"`
	Incarnation skerry.Incarnation `json:"incarnation,omitempty" cbor:"4,keyasint,omitempty"`
}

// SetHeld lists a receiver's orphans in parts. It takes effect when complete and verified.
type SetHeld struct {
	Set    string     `json:"set,omitempty" cbor:"1,keyasint,omitempty"`
	Digest Digest     `json:"digest" cbor:"2,keyasint"`
	Items  []HeldItem `json:"items,omitempty" cbor:"3,keyasint,omitempty"`
	Index  uint32     `json:"index,omitempty" cbor:"4,keyasint,omitempty"`
	Last   bool       `json:"last,omitempty" cbor:"5,keyasint,omitempty"`
}

// FrameType implements Message.
func (*SetHeld) FrameType() FrameType { return FrameSetHeld }
