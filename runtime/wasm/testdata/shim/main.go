//go:build linux

// Shim is what the main binary does for tasks of the runtimes native and wasm, without all the rest of it.
package main

import (
	"os"

	"skerry.dev/skerry/runtime/native"
	"skerry.dev/skerry/runtime/wasm"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "wasm-run" {
		os.Exit(wasm.RunMain(os.Args[2:]))
	}
	os.Exit(native.ShimMain(os.Args[1:]))
}
