package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// TestPrintRuntimes says of a runtime that works why it does less than was asked for.
func TestPrintRuntimes(t *testing.T) {
	var out bytes.Buffer
	printRuntimes(&out, []wire.RuntimeReport{
		{Name: "microvm", Passed: true, Version: "QEMU 7.2", Cause: "Firecracker does not", Cure: "install it"},
		{Name: "wasm", Passed: true},
		{Name: "native", Cause: "conmon is not installed", Cure: "install conmon"},
	})
	const want = `RUNTIME   WORKS   VERSION    ABILITIES
microvm   yes     QEMU 7.2   -
wasm      yes     -          -
native    no      -          -

microvm works: Firecracker does not
  cure: install it

native does not work: conmon is not installed
  cure: install conmon
`
	if out.String() != want {
		t.Errorf("got\n%s", &out)
	}
}

// What instances write is pushed to a collector, or the flag is refused: nobody would notice that nothing is.
func TestInstanceLogsNeedACollector(t *testing.T) {
	for args, refused := range map[string]bool{"--otlp-instance-logs": true, "--otlp-instance-logs --otlp http://127.0.0.1:4318": false} {
		var flags Flags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.Common.Add(set, "worker")
		flags.Add(set)
		if err := set.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if _, err := flags.Config("v1"); refused != (err != nil && strings.Contains(err.Error(), "--otlp-instance-logs is for a collector")) {
			t.Errorf("%q: %v; want it refused for want of a collector: %v", args, err, refused)
		}
	}
}

// Rules and files of devices that make no sense are refused before anything starts, by the flag's name.
func TestDevicesAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "devices.yaml")
	for _, c := range []struct{ args, text, want string }{
		{"--device-class serial --device-class plc=serial,vendor=0403,shares=2 --device-class acme.example/gpu,shares=4", "", ""},
		{"--device-class usb", "", "--device-class usb: \"usb\" is no kind of devices"},
		{"--device-class onvif", "", "--device-class onvif: onvif needs interface=NAME"},
		{"--device-file FILE", "devices: [{class: plc, name: a, nodes: [/dev/ttyS1]}]", ""},
		{"--device-file FILE", "devices: [{class: plc, name: a}]", "devices[0]: plc=a has either nodes"},
		{"--device-file FILE.none", "", "no such file"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var flags Flags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.Common.Add(set, "worker")
		flags.Add(set)
		if err := set.Parse(strings.Fields(strings.ReplaceAll(c.args, "FILE", file))); err != nil {
			t.Fatal(err)
		}
		_, err := flags.Config("v1")
		if e := skerry.AsError(err); c.want == "" && err != nil || c.want != "" && (e == nil || e.Code != skerry.CodeInvalid ||
			!strings.Contains(e.Message, c.want)) {
			t.Errorf("%s: got %v, want %q", c.args, err, c.want)
		}
	}
}
