package ctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
)

func (a *app) migrateCommand() *cobra.Command {
	var req skerry.MigrateRequest
	var output string
	cmd := &cobra.Command{Use: "migrate INSTANCE", Short: "Move an instance to another place, without a failed request", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeKind("instance"),
		Long: `Move one instance to another worker of its site: the best other one, or at the cluster the one that --to names. A copy starts there, and
when it is ready it is the instance; if it does not get ready, the first one stays. At the root, --to names a cluster: there another instance
of the service starts, and takes the place of the first one when it is ready.

Refused, with the reasons, is what no other place can take, what does not run, copies that belong to their worker, jobs, and what keeps
data on its worker (--force moves that within its site, without the data). Where a scheduling plugin has a say, only skerry drain moves.
To name a worker or a cluster needs the right to see it.`,
		Example: "  skerry migrate shop-front-x2k9d\n  skerry --context local-site migrate shop-front-x2k9d --to w3 --reason 'w1 gets a new disk'\n  skerry migrate shop-front-x2k9d --to harbour",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			id, err := a.instanceID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			m, err := c.MigrateInstance(cmd.Context(), id, req)
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
			fmt.Fprintf(out, "instance/%s moves %s, once its copy there is ready; `skerry get events` follows it\n", id, where)
			return nil
		})}
	cmd.Flags().StringVar(&req.To, "to", "", "worker, at the root cluster, that it is to move to")
	cmd.Flags().StringVar(&req.Reason, "reason", "", "why, for people")
	cmd.Flags().BoolVar(&req.Force, "force", false, "move it also if it keeps data on its worker, which it loses")
	outputFlag(cmd, &output)
	return cmd
}
