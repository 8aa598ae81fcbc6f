//go:build linux

// Keeper is what the main binary does when the driver starts it beside a task, without all the rest of the main binary.
package main

import (
	"os"

	"skerry.dev/skerry/runtime/containerd"
)

func main() { os.Exit(containerd.KeepMain(os.Args[1:])) }
