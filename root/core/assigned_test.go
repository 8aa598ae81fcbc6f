package core

import (
	"reflect"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestAssigned has what is decoded of an assignment be what the assignment says, by the numbers of its fields, and its specification be found
// in it.
func TestAssigned(t *testing.T) {
	as := spec.Assignment{ID: "web-1", Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"},
		Gen: 7, Revision: "abc", Spec: spec.ServiceSpec{Name: "web", Mode: spec.ModeService}, Fence: skerry.Fence{RootEpoch: 9, Sequence: 3},
		Restart: 4, Failover: true, Successor: &spec.Successor{Revision: "def", Spec: spec.ServiceSpec{Name: "web"}}, Seal: []byte("seal"),
		Exchange: spec.ExchangeHeld}
	codec := wire.New()
	data := codec.Marshal(&as)
	var got assigned
	if err := codec.Unmarshal(data, &got); err != nil {
		t.Fatalf("decode an assignment: got %v, want no error", err)
	}
	whole := map[string]reflect.Value{}
	for n := range reflect.TypeFor[spec.Assignment]().NumField() {
		number, _, _ := strings.Cut(reflect.TypeFor[spec.Assignment]().Field(n).Tag.Get("cbor"), ",")
		whole[number] = reflect.ValueOf(as).Field(n)
	}
	for n := range reflect.TypeFor[assigned]().NumField() {
		field := reflect.TypeFor[assigned]().Field(n)
		number, _, _ := strings.Cut(field.Tag.Get("cbor"), ",")
		if have, want := reflect.ValueOf(got).Field(n), whole[number]; field.Name == "Successor" {
			if got.Successor.Revision != as.Successor.Revision {
				t.Errorf("Successor: got %+v, want revision %s", got.Successor, as.Successor.Revision)
			}
		} else if !want.IsValid() || want.IsZero() || !reflect.DeepEqual(have.Interface(), want.Interface()) {
			t.Errorf("%s: got %v, want what the assignment has there: %v", field.Name, have, want)
		}
	}
	from, to := codec.SpecIn(data)
	var in spec.ServiceSpec
	if err := codec.Unmarshal(data[from:to], &in); err != nil || in.Name != as.Spec.Name || in.Mode != as.Spec.Mode {
		t.Errorf("the specification in bytes %d to %d of %d: got %+v, %v, want the assignment's", from, to, len(data), in, err)
	}
	for _, bad := range [][]byte{nil, {0xff}, data[:len(data)-1], codec.Marshal("text"), codec.Marshal(map[int]int{1: 2})} {
		if from, to := codec.SpecIn(bad); from != 0 || to != 0 {
			t.Errorf("the specification in %x: got bytes %d to %d, want none", bad, from, to)
		}
	}
}
