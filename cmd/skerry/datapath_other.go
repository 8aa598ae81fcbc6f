//go:build !linux

package main

import (
	"fmt"
	"os"
)

const datapathCommand = "datapath"

func datapath([]string) int {
	fmt.Fprintln(os.Stderr, "error: the datapath is part of a worker, which needs Linux")
	return 1
}
