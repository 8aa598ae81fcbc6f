package wire

// Events carries events of a sender's outbox in order: the first has sequence number First, the next First+1. Events
// below Floor are no longer kept by the sender; a receiver that misses them counts them as lost. Stream names one life
// of the outbox; numbers of different streams have nothing to do with each other.
type Events struct {
	Stream string   `json:"stream,omitempty" cbor:"1,keyasint,omitempty"`
	First  uint64   `json:"first,omitempty" cbor:"2,keyasint,omitempty"`
	Floor  uint64   `json:"floor,omitempty" cbor:"3,keyasint,omitempty"`
	Items  Payloads `json:"items,omitempty" cbor:"4,keyasint,omitempty"`
}

// FrameType implements Message.
func (*Events) FrameType() FrameType { return FrameEvents }

// EventsAck says that all events up to and with Seq are kept by the receiver.
type EventsAck struct {
	Stream string `json:"stream,omitempty" cbor:"1,keyasint,omitempty"`
	Seq    uint64 `json:"seq,omitempty" cbor:"2,keyasint,omitempty"`
}

// FrameType implements Message.
func (*EventsAck) FrameType() FrameType { return FrameEventsAck }

// Report is an ephemeral payload, such as a beat with utilisation. The newest replaces those before; none is stored
// or sent again.
type Report struct {
	Kind    string  `json:"kind,omitempty" cbor:"1,keyasint,omitempty"`
	Payload Payload `json:"payload,omitempty" cbor:"2,keyasint,omitempty"`
}

// FrameType implements Message.
func (*Report) FrameType() FrameType { return FrameReport }
