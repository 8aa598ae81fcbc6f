// Command skerry is root, cluster, worker and client in one program. Main puts the parts together: it chooses the role,
// reads flags and gives every part what it needs.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/bench"
	"skerry.dev/skerry/bench/device"
	"skerry.dev/skerry/bench/interference"
	"skerry.dev/skerry/bench/orchestrator"
	"skerry.dev/skerry/ctl"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/plugin"
	"skerry.dev/skerry/sim"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func main() {
	// The shim starts once per native process and must stay small: it is dispatched before anything else is built up.
	if len(os.Args) > 1 && os.Args[1] == shimCommand {
		os.Exit(shim(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == wasmCommand {
		os.Exit(wasmRun(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == vmCommand {
		os.Exit(vmRun(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == keepCommand {
		os.Exit(keep(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == leaseCommand {
		os.Exit(guardLeases(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == node.PluginShimCommand {
		os.Exit(plugin.ShimMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == datapathCommand {
		os.Exit(datapath(os.Args[2:]))
	}
	ends := []os.Signal{syscall.SIGTERM}
	if !signal.Ignored(os.Interrupt) { // a shell without job control starts what ends in & so: Ctrl-C is for its neighbours
		ends = append(ends, os.Interrupt)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(ctl.Main(ctx, commands(), os.Args[1:], ctl.StdStreams()))
}

// commands is the whole command tree.
func commands() *cobra.Command {
	root := ctl.New(ctl.Options{Version: version, LocalToken: localToken, LocalClient: localClient,
		WorkerData: filepath.Join(defaultData(), "worker"), Checks: machineChecks,
		Roles: []*cobra.Command{rootCommand(), clusterCommand(), workerCommand(), upCommand()}})
	measure := bench.Command()
	measure.AddCommand(append(device.Commands(), interference.Command(), orchestrator.Command())...)
	ctl.Operate(root, backupCommand(), restoreCommand(), repairCommand(), measure, sim.Command())
	ctl.Operate(root, extraCommands()...)
	return root
}
