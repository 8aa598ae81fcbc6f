package wire

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
)

type tree struct {
	At       time.Time        `cbor:"1,keyasint"`
	Children []*tree          `cbor:"2,keyasint"`
	By       map[string]*tree `cbor:"3,keyasint"`
}

// A time that no record could hold is refused with the item that it is in, however deep.
func TestTimes(t *testing.T) {
	c := New()
	for _, at := range []any{int64(1) << 62, -(int64(1) << 61), int64(253402300800), 1e18, "0000-01-01T00:00:00Z"} {
		for _, in := range []any{map[int]any{1: at}, map[int]any{2: []any{map[int]any{1: at}}}, map[int]any{3: map[string]any{"x": map[int]any{2: []any{map[int]any{1: at}}}}}} {
			data, err := cbor.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			var into tree
			if err := c.Unmarshal(data, &into); err == nil {
				_, err = json.Marshal(&into)
				t.Errorf("%v was read: %v, and can be kept: %v", in, into, err)
			}
		}
	}
	good := &tree{At: time.Unix(1e9, 5).UTC(), Children: []*tree{{}, nil}, By: map[string]*tree{"x": {At: time.Unix(2e9, 0).UTC()}}}
	var into tree
	if err := c.Unmarshal(c.Marshal(good), &into); err != nil || !into.At.Equal(good.At) || len(into.Children) != 2 || into.By["x"] == nil {
		t.Errorf("%+v, %v", into, err)
	}
	var plain struct{ A []int }
	if c.timed(reflect.TypeOf(plain), nil) {
		t.Error("integers are times")
	}
}
