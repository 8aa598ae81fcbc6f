package wire

import (
	"slices"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

// TestLost: a type that has lost a field, has it under another name or number, or of another kind, is found out.
func TestLost(t *testing.T) {
	type inner struct {
		Port int    `json:"port,omitempty" cbor:"1,keyasint,omitempty"`
		Name string `json:"name,omitempty" cbor:"2,keyasint,omitempty"`
	}
	type record struct {
		App    string           `json:"app,omitempty" cbor:"1,keyasint,omitempty"`
		Ports  []inner          `json:"ports,omitempty" cbor:"2,keyasint,omitempty"`
		By     map[string]inner `json:"by,omitempty" cbor:"3,keyasint,omitempty"`
		Frozen bool             `json:"held,omitempty" cbor:"4,keyasint,omitempty"`
	}
	type removed struct {
		App   string           `json:"app,omitempty" cbor:"1,keyasint,omitempty"`
		Ports []inner          `json:"ports,omitempty" cbor:"2,keyasint,omitempty"`
		By    map[string]inner `json:"by,omitempty" cbor:"3,keyasint,omitempty"`
	}
	type renamed struct {
		App  string  `json:"application,omitempty" cbor:"1,keyasint,omitempty"`
		Port []inner `json:"ports,omitempty" cbor:"5,keyasint,omitempty"`
		By   map[string]struct {
			Port int `json:"port,omitempty" cbor:"1,keyasint,omitempty"`
		} `json:"by,omitempty" cbor:"3,keyasint,omitempty"`
		Frozen bool `json:"held,omitempty" cbor:"4,keyasint,omitempty"`
	}
	type rekinded struct {
		App string `json:"app,omitempty" cbor:"1,keyasint,omitempty"`
		By  string `json:"by,omitempty" cbor:"3,keyasint,omitempty"`
	}
	full := record{"shop", []inner{{1, "a"}, {2, "b"}}, map[string]inner{"x": {3, "c"}}, true}
	packed, err := cbor.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(`{"app":"shop","ports":[{"port":1,"name":"a"},{"port":2,"name":"b"}],"by":{"x":{"port":3,"name":"c"}},"held":true}`)
	for _, c := range []struct {
		name string
		data []byte
		into any
		want []string
	}{
		{"the same", text, new(record), nil},
		{"the same, packed", packed, new(record), nil},
		{"a field less", text, new(removed), []string{"held"}},
		{"a field less, packed", packed, new(removed), []string{"4"}},
		{"other names", text, new(renamed), []string{"app", "by.x.name"}},
		{"other numbers", packed, new(renamed), []string{"2", "3.x.2"}},
		{"means nothing", []byte(`{"app":"","held":false,"by":{"x":{}},"since":"0001-01-01T00:00:00Z","n":0,"l":[]}`), new(removed), nil},
	} {
		if got, err := Lost(c.data, c.into); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
	for _, data := range [][]byte{text, packed} {
		if _, err := Lost(data, new(rekinded)); err == nil {
			t.Error("a text is read from a map")
		}
	}
	type cut struct {
		Ports []struct {
			Port int8 `json:"-"`
		} `json:"ports"`
	}
	if got, err := Changed([]byte(`{"ports":[{"port":1}]}`), new(cut)); err != nil || !slices.Equal(got, []string{"ports[].port"}) {
		t.Error(got, err)
	}
	type rounded struct {
		N float32 `json:"n"`
	}
	if got, err := Changed([]byte(`{"n":16777217}`), new(rounded)); err != nil || !slices.Equal(got, []string{"n (another value)"}) {
		t.Error(got, err)
	}
	if got, err := Lost([]byte(`{"n":16777217}`), new(rounded)); err != nil || got != nil {
		t.Error(got, err)
	}
}
