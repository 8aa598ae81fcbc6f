package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

// holdRequest is what the device's own commands ask of its worker.
type holdRequest struct {
	Reason   string            `json:"reason,omitempty"`
	Instance skerry.InstanceID `json:"instance,omitempty"`
}

// workerHoldCommands are for people and programs on the device itself.
func workerHoldCommands() []*cobra.Command {
	ask := func(cmd *cobra.Command, data, path string, q holdRequest) error {
		return callLocal(cmd.Context(), data, "POST", path, q, &struct{}{})
	}
	dataFlag := func(cmd *cobra.Command, data *string) *cobra.Command {
		cmd.Flags().StringVar(data, "data", filepath.Join(defaultData(), "worker"), "data directory of the worker")
		return cmd
	}
	var data, reason string
	hold := &cobra.Command{Use: "hold", Short: "Have the worker on this device carry out nothing that its cluster asks for", Args: cobra.NoArgs,
		Long: `Have the worker on this device carry out nothing that its cluster asks for: no start, update, restart or stop, while a vehicle
drives or a robot works. What runs runs on, also after restarts of the agent and reboots; the cluster sees what waits and
why. skerry worker release ends this; skerry worker approve carries out what waits for one instance. What a service itself
asked for with onDisconnect: stopAfter is done all the same.

To keep new work from a worker, at its cluster: skerry cordon. To move what runs there elsewhere: skerry drain.`,
		Example: "  skerry worker hold --reason 'on the road'\n  skerry worker status\n  skerry worker release",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ask(cmd, data, "/hold", holdRequest{Reason: reason}); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "the worker is held")
			return nil
		}}
	hold.Flags().StringVar(&reason, "reason", "", "why, for people")
	release := &cobra.Command{Use: "release", Short: "Let the worker on this device carry out what waits, and what its cluster asks for", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ask(cmd, data, "/release", holdRequest{}); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "the worker is released")
			return nil
		}}
	all := false
	approve := &cobra.Command{Use: "approve INSTANCE... | approve --all", Short: "Carry out what waits for instances, while the worker is held",
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return skerry.Errorf(skerry.CodeInvalid, "name instances, or --all").WithHint("`skerry worker status` lists what waits")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if all {
				args = []string{""}
			}
			for _, id := range args {
				if err := ask(cmd, data, "/approve", holdRequest{Instance: skerry.InstanceID(id)}); err != nil {
					return err
				}
				if id == "" {
					id = "all that waited"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s is carried out\n", id)
			}
			return nil
		}}
	approve.Flags().BoolVar(&all, "all", false, "all that waits now")
	return []*cobra.Command{dataFlag(hold, &data), dataFlag(release, &data), dataFlag(approve, &data)}
}
