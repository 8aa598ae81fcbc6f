package agent

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"

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
