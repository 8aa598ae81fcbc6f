package agent

import (
	"bytes"
	"testing"

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
