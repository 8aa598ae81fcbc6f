package main

import (
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/overlay/tunnel"
)

// datapathCommand runs the encrypted path of a worker. It is hidden: the worker starts it.
const datapathCommand = node.DatapathCommand

func datapath(args []string) int { return tunnel.Main(version, args) }
