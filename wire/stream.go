package wire

// OpenStreams asks the child to dial the stream connection, because the parent wants to open a stream.
type OpenStreams struct {
	Reason string `cbor:"1,keyasint,omitempty"` // for logs
}

// FrameType implements Message.
func (*OpenStreams) FrameType() FrameType { return FrameOpenStreams }

// StreamHello is the child's first frame on a stream connection. Boot must be that of its live control connection.
// The parent answers with StreamOpened or Refuse; after that the connection is multiplexed.
type StreamHello struct {
	Tier Tier   `cbor:"1,keyasint,omitempty"`
	Name string `cbor:"2,keyasint,omitempty"`
	Boot string `cbor:"3,keyasint,omitempty"`
}

// FrameType implements Message.
func (*StreamHello) FrameType() FrameType { return FrameStreamHello }

// StreamHeader is the first frame of each stream, from whoever opens it. The other side answers with StreamOpened or
// Refuse, and then the bytes are the stream's own.
type StreamHeader struct {
	Kind string            `cbor:"1,keyasint,omitempty"`
	Meta map[string]string `cbor:"2,keyasint,omitempty"`
}

// FrameType implements Message.
func (*StreamHeader) FrameType() FrameType { return FrameStreamHeader }

// StreamOpened accepts a stream or a stream connection.
type StreamOpened struct{}

// FrameType implements Message.
func (*StreamOpened) FrameType() FrameType { return FrameStreamOpened }
