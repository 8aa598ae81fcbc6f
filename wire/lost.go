package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fxamacker/cbor/v2"
)

// PrefixSkipped begins the keys of a core's records that a program which does not know them skips and leaves as they are. They
// keep nobody from going back to such a program; a core may find them as they were before it ran.
const PrefixSkipped = "meta/core/"

// Lost names the fields of a value that a type of this program does not keep: what data holds, once read into into (a pointer) and written
// again, no longer has. A field whose value means nothing (null, false, 0, an empty text, list or map) is not lost. Data is JSON, or CBOR
// with integer keys. An error means that it cannot be read at all.
func Lost(data []byte, into any) ([]string, error) {
	return compare(data, into, false)
}

// Changed is Lost, and also names the fields that come back with another value.
func Changed(data []byte, into any) ([]string, error) {
	return compare(data, into, true)
}

func compare(data []byte, into any, values bool) ([]string, error) {
	text := json.Valid(data)
	var err error
	if text {
		err = json.Unmarshal(data, into)
	} else {
		err = New().Unmarshal(data, into)
	}
	if err != nil {
		return nil, fmt.Errorf("decode %T: %w", into, err)
	}
	var again []byte
	if text {
		again, err = json.Marshal(into)
	} else {
		again, err = New().enc.Marshal(into)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", into, err)
	}
	if bytes.Equal(data, again) { // as nearly always, and for half of the work
		return nil, nil
	}
	old, err := plain(data, text)
	if err != nil {
		return nil, err
	}
	now, err := plain(again, text)
	if err != nil {
		return nil, err
	}
	var out []string
	lost("", old, now, values, &out)
	slices.Sort(out)
	return slices.Compact(out), nil
}

// plain gives a value as maps, lists and plain values.
func plain(data []byte, text bool) (out any, err error) {
	if !text {
		return out, cbor.Unmarshal(data, &out)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return out, dec.Decode(&out)
}

// lost adds the paths of what old has and now has not.
func lost(path string, old, now any, values bool, out *[]string) {
	switch o := old.(type) {
	case map[string]any:
		n, ok := now.(map[string]any)
		if !ok {
			differs(path, old, now, values, out)
			return
		}
		for k, v := range o {
			field(path, k, v, n[k], values, out)
		}
	case map[any]any:
		n, ok := now.(map[any]any)
		if !ok {
			differs(path, old, now, values, out)
			return
		}
		for k, v := range o {
			field(path, fmt.Sprint(k), v, n[k], values, out)
		}
	case []any:
		n, ok := now.([]any)
		if !ok || len(n) != len(o) {
			differs(path, old, now, values, out)
			return
		}
		for i := range o {
			lost(path+"[]", o[i], n[i], values, out)
		}
	default:
		if !reflect.DeepEqual(old, now) {
			differs(path, old, now, values, out)
		}
	}
}

func field(path, name string, old, now any, values bool, out *[]string) {
	path = strings.TrimPrefix(path+"."+name, ".")
	switch {
	case now != nil:
		lost(path, old, now, values, out)
	case !nothing(old):
		*out = append(*out, path)
	}
}

func differs(path string, old, now any, values bool, out *[]string) {
	if values && !(nothing(old) && nothing(now)) {
		*out = append(*out, path+" (another value)")
	}
}

// nothing reports whether a value says as much as if it was left out.
func nothing(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == "" || v == "0001-01-01T00:00:00Z"
	case json.Number:
		f, err := v.Float64()
		return err == nil && f == 0
	case []byte:
		return len(v) == 0
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !nothing(e) })
	case map[string]any:
		for _, e := range v {
			if !nothing(e) {
				return false
			}
		}
		return true
	case map[any]any:
		for _, e := range v {
			if !nothing(e) {
				return false
			}
		}
		return true
	}
	return reflect.ValueOf(v).IsZero()
}
