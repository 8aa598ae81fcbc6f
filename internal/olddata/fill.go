package olddata

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"time"
)

// when is the time in samples.
var when = time.Date(2026, 11, 24, 12, 30, 0, 0, time.UTC)

// Fill sets every exported field of what v points to, so that a sample of it pins each one. Types that read themselves get a value where
// their underlying kind allows it; others stay as they are.
func Fill(v any) { fill(reflect.ValueOf(v).Elem(), nil) }

func fill(v reflect.Value, within []reflect.Type) {
	t := v.Type()
	for n, outer := range within {
		if outer == t && n < len(within)-1 { // a type within itself, once
			return
		}
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(when))
		return
	case reflect.TypeFor[netip.Addr]():
		v.Set(reflect.ValueOf(netip.MustParseAddr("192.0.2.7")))
		return
	case reflect.TypeFor[netip.Prefix]():
		v.Set(reflect.ValueOf(netip.MustParsePrefix("192.0.2.0/24")))
		return
	case reflect.TypeFor[netip.AddrPort]():
		v.Set(reflect.ValueOf(netip.MustParseAddrPort("192.0.2.7:443")))
		return
	case reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte("{}"))
		return
	}
	within = append(within, t)
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(0.5)
	case reflect.String:
		v.SetString("x")
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(t.Elem()))
		}
		fill(v.Elem(), within)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(t, 1, 1))
		fill(v.Index(0), within)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), within)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(t))
		k, e := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		fill(k, within)
		fill(e, within)
		v.SetMapIndex(k, e)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				fill(f, within)
			}
		}
	}
}
