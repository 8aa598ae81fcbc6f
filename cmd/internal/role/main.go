package role

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/ctl/console"
)

// Main runs a program's commands until they end, or SIGTERM or Ctrl-C ends them, and gives the exit status.
func Main(commands *cobra.Command, args []string) int {
	ends := []os.Signal{syscall.SIGTERM}
	if !signal.Ignored(os.Interrupt) { // a shell without job control starts what ends in & so: Ctrl-C is for its neighbours
		ends = append(ends, os.Interrupt)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return console.Main(ctx, commands, args, console.StdStreams())
}
