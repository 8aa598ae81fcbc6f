package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// Payload is what a message carries for somebody else than the link: an item of a set, an event, a report. It is CBOR, or
// JSON where the worker's end of the link speaks JSON. In JSON it is a string that holds the JSON text, byte for byte as it
// counts in digests; CBOR is an object {"cbor": base64}.
type Payload []byte

// IsText reports whether the payload is a JSON object. No CBOR map begins like one.
func (p Payload) IsText() bool { return len(p) > 0 && p[0] == '{' }

// bytesInJSON is how a payload that is no text looks in JSON.
type bytesInJSON struct {
	CBOR string `json:"cbor"`
}

// MarshalJSON implements json.Marshaler.
func (p Payload) MarshalJSON() ([]byte, error) {
	if len(p) == 0 {
		return []byte(`""`), nil
	}
	if p.IsText() && utf8.Valid(p) {
		return json.Marshal(string(p))
	}
	return json.Marshal(bytesInJSON{base64.StdEncoding.EncodeToString(p)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Payload) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	if len(data) > 0 && data[0] == '{' {
		var b bytesInJSON
		if err := json.Unmarshal(data, &b); err != nil {
			return err
		}
		raw, err := base64.StdEncoding.DecodeString(b.CBOR)
		*p = raw
		return err
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	*p = Payload(s)
	return nil
}

// Payloads is a list of payloads.
type Payloads [][]byte

// MarshalJSON implements json.Marshaler.
func (p Payloads) MarshalJSON() ([]byte, error) {
	list := make([]Payload, len(p))
	for i := range p {
		list[i] = p[i]
	}
	return json.Marshal(list)
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Payloads) UnmarshalJSON(data []byte) error {
	var list []Payload
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	*p = make(Payloads, len(list))
	for i := range list {
		(*p)[i] = list[i]
	}
	return nil
}

// MarshalJSON writes a digest as 32 hexadecimal digits.
func (d Digest) MarshalJSON() ([]byte, error) { return json.Marshal(hex.EncodeToString(d[:])) }

// UnmarshalJSON reads them.
func (d *Digest) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	b, err := hex.DecodeString(s)
	if err == nil && len(b) != len(d) {
		err = errors.New("a digest has 32 hexadecimal digits")
	}
	if err == nil {
		copy(d[:], b)
	}
	return err
}
