//go:build linux

// Shim is what the main binary does when conmon calls it, without all the rest of the main binary.
package main

import (
	"os"

	"skerry.dev/skerry/runtime/native"
)

func main() { os.Exit(native.ShimMain(os.Args[1:])) }
