// Package agent has the commands of a worker's agent, for each program that contains one. It knows no other role.
package agent

import (
	"github.com/spf13/cobra"

	"skerry.dev/skerry/cmd/internal/role"
)

// Helper runs what a worker starts of itself, such as the shim of a native process, and gives its exit status. The command is hidden and
// dispatched before anything else is built up, for a shim runs as long as its process and must stay small. ok is false if args name none.
func Helper(version string, args []string) (status int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	run := helper(version, args[0])
	if run == nil {
		return 0, false
	}
	return run(args[1:]), true
}

// Program is a program that has the commands of a worker.
type Program struct {
	Name    string // of its file in images of an agent's program
	Version string
}

// Command is the worker's, with those below it.
func Command(program Program) *cobra.Command {
	var flags Flags
	cmd := &cobra.Command{
		Use: "worker", Short: "Run a worker: it runs the instances that its cluster assigns to it", Args: cobra.NoArgs,
		Long: `Run a worker: it runs the instances that its cluster assigns to it, in any of its runtimes.

Every flag can also be set by an environment variable: --cluster is SKERRY_CLUSTER. SIGTERM stops the agent; instances keep
running, and the agent adopts them when it starts again.`,
		Example: "  skerry worker --cluster harbour.example.com --join skt1.worker.…\n  skerry worker check\n  skerry worker status",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := role.FromEnv(cmd); err != nil {
				return err
			}
			return runWorker(cmd.Context(), &flags, program)
		},
	}
	flags.Common.Add(cmd.Flags(), "worker")
	flags.Join.Add(cmd.Flags(), "cluster", "cluster orchestrator", "7444")
	flags.Add(cmd.Flags())
	cmd.AddCommand(freezeCommands()...)
	cmd.AddCommand(upgradeCommand(), checkCommand(program.Version), profileCommand(program.Version),
		role.StatusCommand("worker"), cleanupCommand(program.Version))
	return cmd
}
