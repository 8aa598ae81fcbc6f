package main

import (
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/runtime/native"
)

const shimCommand = node.ShimCommand

func shim(args []string) int { return native.ShimMain(args) }
