package main

import (
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/runtime/containerd"
	"skerry.dev/skerry/runtime/lease"
	"skerry.dev/skerry/runtime/native"
	"skerry.dev/skerry/runtime/vm"
	"skerry.dev/skerry/runtime/wasm"
)

const (
	shimCommand  = node.ShimCommand
	wasmCommand  = node.WasmCommand
	vmCommand    = node.VMCommand
	keepCommand  = node.KeepCommand
	leaseCommand = node.LeaseCommand
)

func shim(args []string) int { return native.ShimMain(args) }

func wasmRun(args []string) int { return wasm.RunMain(args) }

func vmRun(args []string) int { return vm.Main(args) }

func keep(args []string) int { return containerd.KeepMain(args) }

func guardLeases(args []string) int { return lease.Main(args) }
