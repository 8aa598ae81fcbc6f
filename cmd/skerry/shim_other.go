//go:build !linux

package main

import (
	"fmt"
	"os"
)

const (
	shimCommand = "shim"
	wasmCommand = "wasm-run"
	vmCommand   = "vm-run"
	keepCommand = "containerd-keep"

	leaseCommand = "lease-guard"
)

func shim([]string) int {
	fmt.Fprintln(os.Stderr, "error: the shim is part of a worker, which needs Linux")
	return 1
}

func wasmRun(args []string) int { return shim(args) }

func vmRun(args []string) int { return shim(args) }

func keep(args []string) int { return shim(args) }

func guardLeases(args []string) int { return shim(args) }
