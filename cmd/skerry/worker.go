package main

import (
	"github.com/spf13/cobra"
)

func workerCommand() *cobra.Command {
	var w workerFlags
	cmd := &cobra.Command{
		Use: "worker", Short: "Run a worker: it runs the instances that its cluster assigns to it", Args: cobra.NoArgs,
		Long: `Run a worker: it runs the instances that its cluster assigns to it, in any of its runtimes.

Every flag can also be set by an environment variable: --cluster is SKERRY_CLUSTER. SIGTERM stops the agent; instances keep
running, and the agent adopts them when it starts again.`,
		Example: "  skerry worker --cluster harbour.example.com --join skt1.worker.…\n  skerry worker check\n  skerry worker status",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnv(cmd); err != nil {
				return err
			}
			return runWorker(cmd.Context(), &w)
		},
	}
	w.common.add(cmd.Flags(), "worker")
	w.join.add(cmd.Flags(), "cluster", "cluster orchestrator", "7444")
	w.add(cmd.Flags())
	cmd.AddCommand(workerFreezeCommands()...)
	cmd.AddCommand(workerUpgrade(), workerCheck(), workerProfile(), statusCommand("worker"), workerCleanup())
	return cmd
}
