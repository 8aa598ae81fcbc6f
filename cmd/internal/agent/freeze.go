package agent

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cmd/internal/role"
)

// freezeRequest is what the device's own commands ask of its worker.
type freezeRequest struct {
	Reason   string            `json:"reason,omitempty"`
	Instance skerry.InstanceID `json:"instance,omitempty"`
}

// freezeCommands are for people and programs on the device itself.
func freezeCommands() []*cobra.Command {
	ask := func(cmd *cobra.Command, data, path string, q freezeRequest) error {
		return role.CallLocal(cmd.Context(), data, "POST", path, q, &struct{}{})
	}
	dataFlag := func(cmd *cobra.Command, data *string) *cobra.Command {
		cmd.Flags().StringVar(data, "data", filepath.Join(role.DefaultData(), "worker"), "data directory of the worker")
		return cmd
	}
	var data, reason string
	hold := &cobra.Command{Use: "hold", Short: "Freeze the worker on this device: it carries out no request of its cluster",
		Args: cobra.NoArgs,
		Long: `Freeze the worker on this device, for example while a vehicle drives or a robot works: it carries out no request of its cluster:
no start, update, restart or stop. Instances keep running, also across restarts of the agent and reboots. The cluster
sees which changes are pending and why. skerry worker release ends the freeze; skerry worker approve carries out the pending
change of one instance. A service with onDisconnect: stopAfter still stops as it requested.

To keep new instances off a worker, run skerry cordon at its cluster. To move its instances elsewhere, run skerry drain.`,
		Example: "  skerry worker hold --reason 'on the road'\n  skerry worker status\n  skerry worker release",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ask(cmd, data, "/hold", freezeRequest{Reason: reason}); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "the worker is frozen")
			return nil
		}}
	hold.Flags().StringVar(&reason, "reason", "", "reason, shown to people")
	release := &cobra.Command{Use: "release", Short: "End the freeze of the worker on this device and carry out pending changes",
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ask(cmd, data, "/release", freezeRequest{}); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "the worker is no longer frozen")
			return nil
		}}
	all := false
	approve := &cobra.Command{Use: "approve INSTANCE... | approve --all",
		Short: "Carry out pending changes of instances while the worker is frozen", Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return skerry.Errorf(skerry.CodeInvalid, "name instances, or --all").
					WithHint("`skerry worker status` lists pending changes")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if all {
				args = []string{""}
			}
			for _, id := range args {
				if err := ask(cmd, data, "/approve", freezeRequest{Instance: skerry.InstanceID(id)}); err != nil {
					return err
				}
				if id == "" {
					id = "all pending changes"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "approved: %s\n", id)
			}
			return nil
		}}
	approve.Flags().BoolVar(&all, "all", false, "approve all pending changes")
	return []*cobra.Command{dataFlag(hold, &data), dataFlag(release, &data), dataFlag(approve, &data)}
}
