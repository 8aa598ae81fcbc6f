// Package wire owns what tiers tell each other: messages, the items of their sets, reports, events, what a core wants done, and their
// coding, which is CBOR with integer keys, strict on reading, or JSON. It neither sends nor keeps anything: frames are the business of
// link, records that of the cores. Everything below the API may import it.
package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// Codec codes values. It is safe for concurrent use.
type Codec struct {
	enc   cbor.EncMode
	dec   cbor.DecMode
	types sync.Map // whether values of a type can hold a time
}

// New makes a codec. Its limits hold for one item: nesting 24, 64 Ki entries of a list or map. What is no finite number is
// refused, and a time of another era: records could not hold it, and sums and comparisons go wrong with it.
func New() *Codec {
	enc, err := cbor.EncOptions{Sort: cbor.SortCoreDeterministic, Time: cbor.TimeRFC3339NanoUTC}.EncMode()
	if err != nil {
		panic("constant options: " + err.Error())
	}
	dec, err := cbor.DecOptions{MaxNestedLevels: 24, MaxArrayElements: 1 << 16, MaxMapPairs: 1 << 16,
		DupMapKey: cbor.DupMapKeyEnforcedAPF, NaN: cbor.NaNDecodeForbidden, Inf: cbor.InfDecodeForbidden}.DecMode()
	if err != nil {
		panic("constant options: " + err.Error())
	}
	return &Codec{enc: enc, dec: dec}
}

// Marshal gives the deterministic encoding of a value of ours, so that equal values are equal bytes.
func (c *Codec) Marshal(v any) []byte {
	data, err := c.enc.Marshal(v)
	if err != nil {
		panic("our own values always encode: " + err.Error())
	}
	return data
}

// Text gives the JSON of a value of ours, for a peer whose end of the link speaks JSON. It is deterministic, too.
func (c *Codec) Text(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("our own values always encode: " + err.Error())
	}
	return data
}

// Unmarshal reads a value that came from a peer, in CBOR or, where it begins with a brace, in JSON. Unknown fields are skipped,
// so that an older reader survives.
func (c *Codec) Unmarshal(data []byte, into any) error {
	if Payload(data).IsText() {
		if err := json.Unmarshal(data, into); err != nil {
			return fmt.Errorf("decode %T: %w", into, err)
		}
		return nil
	}
	err := c.dec.Unmarshal(data, into)
	if err == nil {
		err = c.checkTimes(reflect.ValueOf(into))
	}
	if err != nil {
		return fmt.Errorf("decode %T: %w", into, err)
	}
	return nil
}

// SpecIn finds where in an encoded spec.Assignment the specification is, which is the same for all instances of a service. Without one it
// gives two zeros.
func (c *Codec) SpecIn(assignment []byte) (from, to int) {
	var has struct {
		Spec cbor.RawMessage `cbor:"7,keyasint"`
	}
	if c.dec.Unmarshal(assignment, &has) != nil || len(has.Spec) == 0 {
		return 0, 0
	}
	from = bytes.Index(assignment, has.Spec)
	return from, from + len(has.Spec)
}
