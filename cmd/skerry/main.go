// Go would look once a second whether the processors that this process may use have changed, also at rest.
//go:debug updatemaxprocs=0

// Command skerry is root, cluster, worker and client in one program. Main puts the parts together: it chooses the role,
// reads flags and gives every part what it needs.
package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/bench"
	"skerry.dev/skerry/bench/device"
	"skerry.dev/skerry/bench/interference"
	"skerry.dev/skerry/bench/orchestrator"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/cmd/internal/agent"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/ctl"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/plugin"
	"skerry.dev/skerry/sim"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func main() {
	if status, ok := agent.Helper(version, os.Args[1:]); ok {
		os.Exit(status)
	}
	if len(os.Args) > 1 && os.Args[1] == parents.PluginShimCommand {
		os.Exit(plugin.ShimMain(os.Args[2:]))
	}
	os.Exit(role.Main(commands(), os.Args[1:]))
}

// commands is the whole command tree.
func commands() *cobra.Command {
	root := ctl.New(ctl.Options{Version: version, LocalToken: localToken, LocalClient: localClient,
		WorkerData: filepath.Join(role.DefaultData(), "worker"), Checks: machineChecks,
		Roles: []*cobra.Command{rootCommand(), clusterCommand(), agent.Command(agent.Program{Name: "skerry", Version: version}), upCommand()}})
	measure := bench.Command()
	measure.AddCommand(append(report.Commands(), device.Command(), interference.Command(), orchestrator.Command())...)
	ctl.Operate(root, backupCommand(), restoreCommand(), repairCommand(), measure, sim.Command())
	ctl.Operate(root, extraCommands()...)
	return root
}
