//go:build linux

// Run is vm-run alone, for tests.
package main

import (
	"os"

	"skerry.dev/skerry/runtime/vm"
)

func main() { os.Exit(vm.Main(os.Args[1:])) }
