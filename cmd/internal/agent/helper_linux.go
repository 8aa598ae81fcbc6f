package agent

import (
	"skerry.dev/skerry/internal/nfsmount"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/profile"
	"skerry.dev/skerry/overlay/tunnel"
	"skerry.dev/skerry/runtime/containerd"
	"skerry.dev/skerry/runtime/lease"
	"skerry.dev/skerry/runtime/native"
	"skerry.dev/skerry/runtime/vm"
	"skerry.dev/skerry/runtime/wasm"
)

// helper gives what a hidden command runs, or nil.
func helper(version, name string) func(args []string) int {
	switch name {
	case node.ShimCommand:
		return native.ShimMain
	case node.WasmCommand:
		return wasm.RunMain
	case node.VMCommand:
		return vm.Main
	case node.KeepCommand:
		return containerd.KeepMain
	case node.LeaseCommand:
		return lease.Main
	case node.NFSCommand:
		return nfsmount.Main
	case profile.WorkCommand:
		return profile.WorkMain
	case node.DatapathCommand:
		return func(args []string) int { return tunnel.Main(version, args) }
	}
	return nil
}
