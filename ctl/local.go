package ctl

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
)

// localCommand is what works on a worker's own device with nobody else in reach: the agent answers over its socket.
func (a *app) localCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{Use: "local", Short: "Inspect and manage instances on this device, with or without its cluster",
		Long: `Inspect and manage instances on this device, with or without its cluster. The worker's agent answers on a socket in its data
directory, to anyone who may write there, without a login. Instances can be inspected and restarted in place; the cluster
decides what should run.`,
		Example: "  skerry local get\n  skerry local logs front-x5b2k -f\n  skerry local exec -it front-x5b2k -- sh\n  skerry local restart front-x5b2k"}
	cmd.PersistentFlags().StringVar(&data, "data", a.opt.WorkerData, "data directory of the worker")
	l := &app{opt: a.opt, local: func() (*api.Client, error) { return a.opt.LocalClient(data) }}
	var flags getFlags
	get := &cobra.Command{Use: "get [INSTANCE]", Short: "List the worker's instances", Args: cobra.MaximumNArgs(1),
		RunE: l.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			list, err := client.Instances(cmd.Context(), api.InstanceFilter{})
			if err != nil {
				return err
			}
			q := listQuery{now: time.Now(), all: true}
			var items []item
			for _, i := range list {
				if len(args) == 0 || string(i.ID) == args[0] {
					items = append(items, instanceItem(&i, q))
				}
			}
			if len(args) == 1 && len(items) == 0 {
				return skerry.Errorf(skerry.CodeNotFound, "instance %q is not on this device", args[0]).
					WithHint("`skerry local get` lists those that are")
			}
			r, err := findResource("instance")
			if err != nil {
				return err
			}
			return printItems(cmd, r, &flags, items, len(args) == 1)
		})}
	outputFlag(get, &flags.output)
	restart := &cobra.Command{Use: "restart INSTANCE", Short: "Restart an instance in place", Args: cobra.ExactArgs(1),
		RunE: l.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			if err := client.RestartOnDevice(cmd.Context(), skerry.InstanceID(args[0])); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "instance/%s is restarted\n", args[0])
			return nil
		})}
	cmd.AddCommand(get, l.logsCommand(), l.execCommand(), restart)
	return cmd
}
