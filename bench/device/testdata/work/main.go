// Work is the program of a profile for tests: of skerry no more than its work.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/bench/device"
)

func main() {
	root, bench := &cobra.Command{Use: "skerry"}, &cobra.Command{Use: "bench"}
	bench.AddCommand(device.Commands()...)
	root.AddCommand(bench)
	if root.Execute() != nil {
		os.Exit(1)
	}
}
