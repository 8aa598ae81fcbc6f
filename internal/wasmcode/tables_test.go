package wasmcode

import (
	"reflect"
	"strings"
	"testing"
)

func FuzzFixTables(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		fixed, err := FixTables(data)
		if err != nil {
			return
		}
		again, err := FixTables(fixed)
		if err != nil || !reflect.DeepEqual(fixed, again) {
			t.Errorf("%x\nis not as it was: %x %v", fixed, again, err)
		}
	})
}

func TestFixTables(t *testing.T) {
	for _, c := range []struct {
		tables []byte
		want   string // of the section, or the error
	}{
		{[]byte{1, 0x70, 0, 5}, "\x01\x70\x01\x05\x05"},
		{[]byte{1, 0x70, 1, 5, 9}, "\x01\x70\x01\x05\x05"},
		{[]byte{2, 0x70, 0, 1, 0x6f, 0, 0x80, 1}, "\x02\x70\x01\x01\x01\x6f\x01\x80\x01\x80\x01"},
		{[]byte{1, 0x70, 0, 0xff, 0xff, 0xff, 0xff, 0x0f}, "more than 1048576 entries"},
		{[]byte{1, 0x70, 1, 5, 4}, "not a WebAssembly module"},
		{[]byte{1, 0x70, 4, 5}, "not supported"},
		{[]byte{1, 0x70, 0, 5, 1}, "not a WebAssembly module"},
		{[]byte{2, 0x70, 0, 5}, "not supported"},
	} {
		got, err := FixTables(Module{Tables: c.tables}.Encode())
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%x: %v", c.tables, err)
			}
			continue
		}
		if want := (Module{Tables: []byte(c.want)}).Encode(); string(got) != string(want) {
			t.Errorf("%x: %x\nwant %x", c.tables, got, want)
		}
	}
	for _, bad := range []string{"", "\x00as", "#!/bin/sh", "\x00asm\x0d\x00\x01\x00", "\x00asm\x01\x00\x00\x00\x04\x7f"} {
		if _, err := FixTables([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
