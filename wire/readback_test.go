package wire

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"skerry.dev/skerry/spec"
)

// TestRecordsReadBack: whatever a peer sends becomes part of records, so all of it has to be read back from JSON, or the tier that keeps it
// never starts again.
func TestRecordsReadBack(t *testing.T) {
	for _, text := range []string{"", "x", "stopAfter -3s", "stopAfter 1ns", "\x00\xff", "../..", "-1"} {
		for _, n := range []int64{-1, 0, 1, -1 << 63, 1<<63 - 1, 1e9 + 1} {
			for _, v := range []any{&spec.Assignment{}, &Observation{}, &WorkerReport{}, &Instance{}, &spec.Application{}} {
				fill(reflect.ValueOf(v).Elem(), text, n, 0)
				data, err := json.Marshal(v)
				if err != nil {
					t.Fatalf("%T with %q and %d: %v", v, text, n, err) // would be a panic in a core
				}
				if err := json.Unmarshal(data, reflect.New(reflect.TypeOf(v).Elem()).Interface()); err != nil {
					t.Errorf("%T with %q and %d: %v", v, text, n, err)
				}
			}
		}
	}
}

// fill sets all texts and numbers of a value.
func fill(v reflect.Value, text string, n int64, depth int) {
	if depth > 12 || v.Type() == reflect.TypeFor[time.Time]() {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text, n, depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), text, n, depth+1)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text, n, depth+1)
	case reflect.Map:
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(k, text, n, depth+1)
		fill(e, text, n, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(k, e)
	case reflect.String:
		v.SetString(text)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(n))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(n))
	case reflect.Bool:
		v.SetBool(n != 0)
	}
}
