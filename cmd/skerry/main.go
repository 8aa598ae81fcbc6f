// Command skerry is root, cluster, worker and client in one program. Main puts the parts together: it chooses the role,
// reads flags and gives every part what it needs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/bench"
	"skerry.dev/skerry/ctl"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func main() {
	// The shim starts once per native process and must stay small: it is dispatched before anything else is built up.
	if len(os.Args) > 1 && os.Args[1] == shimCommand {
		os.Exit(shim(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)  // a second signal ends the process at once
	signal.Ignore(syscall.SIGHUP) // a lost terminal does not end a role
	os.Exit(ctl.Main(ctx, commands(), os.Args[1:], ctl.StdStreams()))
}

// commands is the whole command tree.
func commands() *cobra.Command {
	root := ctl.New(ctl.Options{Version: version, LocalToken: localToken, Checks: machineChecks,
		Roles: []*cobra.Command{rootCommand(), clusterCommand(), workerCommand(), upCommand()}})
	ctl.Operate(root, backupCommand(), restoreCommand(), bench.Command())
	ctl.Operate(root, extraCommands()...)
	return root
}
