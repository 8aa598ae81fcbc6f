package core

import (
	"testing"

	"skerry.dev/skerry/spec"
)

// What leaves the site names no device of an instance, of its successor neither, whichever worker or other device its name has a part of.
func TestRedactDevices(t *testing.T) {
	ws := roster{"a5b6": {Name: "a5b6"}}
	p := &placement{A: spec.Assignment{Devices: []string{"serial=0403-a5", "serial=0403-a5b6-if01"}}, location: location{Worker: "a5b6"},
		Next: &successor{Worker: "w2", Devices: []string{"camera=gate"}}}
	for text, want := range map[string]string{
		"its device serial=0403-a5 is gone":             "its device serial is gone",
		"its device serial=0403-a5b6-if01 is gone":      "its device serial is gone",
		"the copy ended: camera=gate is not on it":      "the copy ended: camera is not on it",
		"its device /dev/serial/by-id/usb-FTDI is gone": "its device /dev/serial/by-id/usb-FTDI is gone",
	} {
		if got := ws.redact(p, text); got != want {
			t.Errorf("%q leaves as %q, want %q", text, got, want)
		}
	}
}
