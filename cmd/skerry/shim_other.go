//go:build !linux

package main

import (
	"fmt"
	"os"
)

const shimCommand = "shim"

func shim([]string) int {
	fmt.Fprintln(os.Stderr, "error: the shim is part of a worker, which needs Linux")
	return 1
}
