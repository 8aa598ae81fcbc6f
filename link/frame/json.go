package frame

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"skerry.dev/skerry/wire"
)

// MaxText is the longest message in JSON, in bytes. What fits a frame fits it, quoted twice.
const MaxText = 2 * MaxFrame

// EncodeJSON gives a message as one JSON object whose first member, "type", names it.
func EncodeJSON(m wire.Message) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, `{"type":%q`, m.FrameType().String())
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return nil, fmt.Errorf("encode %T: %w", m, err)
	}
	rest := bytes.TrimSpace(body.Bytes())[1:] // without its brace
	if len(rest) > 1 {
		out.WriteByte(',')
	}
	out.Write(rest)
	if out.Len() > MaxText {
		return nil, fmt.Errorf("encode %T: %w: %d bytes, at most %d", m, ErrTooLarge, out.Len(), MaxText)
	}
	return out.Bytes(), nil
}

// DecodeJSON reads what EncodeJSON writes. A message of unknown type gives nil without an error, and unknown members are ignored:
// a newer peer may send them. The message shares no memory with text.
func DecodeJSON(text []byte) (wire.Message, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(text), MaxText)
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%w: it is not UTF-8", ErrMalformed)
	}
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrMalformed, err)
	}
	m := messageNamed(head.Type)
	if m == nil {
		return nil, nil
	}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%w: %s: %v", ErrMalformed, head.Type, err)
	}
	return m, nil
}

func messageNamed(name string) wire.Message {
	if name == "" {
		return nil
	}
	for t := wire.FrameHello; t <= wire.FrameFollowed; t++ {
		if t.String() == name {
			return wire.NewMessage(t)
		}
	}
	return nil
}
