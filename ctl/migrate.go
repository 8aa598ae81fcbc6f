package ctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/view"
)

func (a *app) migrateCommand() *cobra.Command {
	var req view.MigrateRequest
	var output string
	cmd := &cobra.Command{Use: "migrate INSTANCE", Short: "Move an instance to another worker or site, without failed requests",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeKind("instance"),
		Long: `Move one instance to another worker of its site: the best other one or, at the cluster, the worker that --to names. A copy
starts there and replaces the instance once it is ready; if it does not become ready, the instance stays. At the root, --to
names a cluster: a new instance of the service starts there and replaces the old one once it is ready.

An instance cannot be moved if nothing else fits it, if it is not running, if it belongs to a job or runs once per worker,
or if it keeps data on its worker (--force moves it within its site, without the data). If a scheduling plugin takes part in
its placement, only skerry drain moves it. Naming a worker or a cluster requires permission to see it.`,
		Example: "  skerry migrate shop-front-x2k9d\n  skerry --context local-site migrate shop-front-x2k9d --to w3 --reason 'w1 gets a new disk'\n  skerry migrate shop-front-x2k9d --to harbour",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			id, err := a.instanceID(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			m, err := client.MigrateInstance(cmd.Context(), id, req)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if done, err := printValue(out, output, m); done {
				return err
			}
			where := "to worker " + string(m.Worker)
			switch {
			case m.Copy != "":
				where = fmt.Sprintf("to cluster %s, as instance %s", m.Cluster, m.Copy)
			case m.Cluster != "":
				where = "to another worker of cluster " + string(m.Cluster)
			}
			fmt.Fprintf(out, "instance/%s moves %s, once its copy there is ready; `skerry get events` shows the progress\n", id, where)
			return nil
		})}
	cmd.Flags().StringVar(&req.To, "to", "", "destination worker; at the root, destination cluster")
	cmd.Flags().StringVar(&req.Reason, "reason", "", "reason, shown to people")
	cmd.Flags().BoolVar(&req.Force, "force", false, "move it even if it keeps data on its worker; the data is lost")
	outputFlag(cmd, &output)
	return cmd
}
