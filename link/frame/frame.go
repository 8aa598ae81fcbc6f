// Package frame puts messages on the wire and takes them off again: a type byte, a length of three bytes, a CBOR map with
// integer keys. It owns the limits that hold before anything is believed. It knows nothing of connections; link and auth
// import it.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"skerry.dev/skerry/wire"
)

// Limits of frames, in bytes of payload.
const (
	MaxFrame    = 1 << 20  // any frame
	MaxGreeting = 64 << 10 // the first frame of a connection, whose sender is not known yet
	HeaderSize  = 4
)

// Errors of a reader, wrapped. After one of these the connection is of no more use.
var (
	ErrTooLarge  = errors.New("frame is too large")
	ErrMalformed = errors.New("frame is malformed")
)

// Codec encodes and decodes payloads. It is safe for concurrent use.
type Codec struct {
	enc cbor.EncMode
	dec cbor.DecMode

	buffers sync.Pool // of *[]byte, for payloads
}

// NewCodec makes a codec with strict limits: no tags, no indefinite lengths, no duplicate keys, no invalid UTF-8, at
// most 8 levels, 65,536 elements of an array and 4,096 pairs of a map. Unknown fields are ignored.
func NewCodec() *Codec {
	enc, err := cbor.EncOptions{Sort: cbor.SortCoreDeterministic, IndefLength: cbor.IndefLengthForbidden,
		TagsMd: cbor.TagsForbidden, NilContainers: cbor.NilContainerAsEmpty}.EncMode()
	if err != nil {
		panic(err)
	}
	dec, err := cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden,
		TagsMd: cbor.TagsForbidden, MaxNestedLevels: 8, MaxArrayElements: 1 << 16, MaxMapPairs: 4096}.DecMode()
	if err != nil {
		panic(err)
	}
	return &Codec{enc: enc, dec: dec, buffers: sync.Pool{New: func() any { return new([]byte) }}}
}

// Encode gives a whole frame. It fails only for a message that is too large.
func (c *Codec) Encode(m wire.Message) ([]byte, error) {
	payload, err := c.enc.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", m, err)
	}
	if len(payload) > MaxFrame {
		return nil, fmt.Errorf("encode %T: %w: %d bytes, at most %d", m, ErrTooLarge, len(payload), MaxFrame)
	}
	out := make([]byte, HeaderSize+len(payload))
	binary.BigEndian.PutUint32(out, uint32(m.FrameType())<<24|uint32(len(payload)))
	copy(out[HeaderSize:], payload)
	return out, nil
}

// Decode reads a payload. A frame of unknown type gives nil without an error: a newer peer may send it. The message
// shares no memory with payload.
func (c *Codec) Decode(t wire.FrameType, payload []byte) (wire.Message, error) {
	m := wire.NewMessage(t)
	if m == nil {
		return nil, nil
	}
	if err := c.dec.Unmarshal(payload, m); err != nil {
		return nil, fmt.Errorf("%w: type %d: %v", ErrMalformed, t, err)
	}
	return m, nil
}

// Marshal and Unmarshal apply the same rules to values inside messages, such as the items of a set.
func (c *Codec) Marshal(v any) ([]byte, error)   { return c.enc.Marshal(v) }
func (c *Codec) Unmarshal(b []byte, v any) error { return c.dec.Unmarshal(b, v) }

// Reader takes frames off a connection. It reads no byte beyond a frame, so that another protocol may follow.
type Reader struct {
	r      io.Reader
	codec  *Codec
	limit  int
	header [HeaderSize]byte
}

// NewReader reads frames with payloads of at most limit bytes.
func NewReader(r io.Reader, codec *Codec, limit int) *Reader {
	return &Reader{r: r, codec: codec, limit: limit}
}

// keepBuffer is the largest payload buffer that is used again; larger ones are rare and go to the collector.
const keepBuffer = 64 << 10

// Next gives the next message and the size of its frame. The message is nil for an unknown type. io.EOF means that the
// peer closed between two frames.
func (r *Reader) Next() (wire.Message, int, error) {
	if _, err := io.ReadFull(r.r, r.header[:]); err != nil {
		return nil, 0, err
	}
	h := binary.BigEndian.Uint32(r.header[:])
	t, n := wire.FrameType(h>>24), int(h&0xffffff)
	if n > r.limit {
		return nil, 0, fmt.Errorf("%w: type %d with %d bytes, at most %d", ErrTooLarge, t, n, r.limit)
	}
	b := r.codec.buffers.Get().(*[]byte)
	defer func() {
		if cap(*b) <= keepBuffer {
			r.codec.buffers.Put(b)
		}
	}()
	if err := fill(r.r, b, n); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, 0, err
	}
	m, err := r.codec.Decode(t, (*b)[:n])
	return m, n + HeaderSize, err
}

// fill reads n bytes into b, which grows with what arrives and not with what was promised.
func fill(r io.Reader, b *[]byte, n int) error {
	*b = (*b)[:0]
	for len(*b) < n {
		step := min(n-len(*b), max(4<<10, len(*b)))
		if cap(*b)-len(*b) < step {
			grown := make([]byte, len(*b), max(len(*b)+step, 512))
			copy(grown, *b)
			*b = grown
		}
		start := len(*b)
		*b = (*b)[:start+step]
		if _, err := io.ReadFull(r, (*b)[start:]); err != nil {
			return err
		}
	}
	return nil
}

// Write puts one frame on w.
func Write(w io.Writer, c *Codec, m wire.Message) error {
	b, err := c.Encode(m)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}
