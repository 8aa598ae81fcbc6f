package ctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/wire"
)

const siteGrantHelp = `Let the users of the root do something inside this site, by way of the root. A site grants nothing by itself:
the root knows its sites only in aggregate, and no name or value of a worker leaves its site. GRANT is one of

  workers  see the workers, with their names, addresses and values
  drain    cordon, drain and uncordon workers
  upgrade  upgrade the agents of workers
  waves    have this site upgrade all its workers when its turn comes in an upgrade of clusters

The site checks each request, and keeps it in its audit log under root/USER. A grant holds for all users of the root who may do
the same at every cluster or at this one; it takes effect at once, and so does "skerry cluster revoke". "skerry get grants" lists
the grants. Logs and terminals of what the root runs here need none.`

// grantCommands are what the operator of a site grants to the users of its root.
func (a *app) grantCommands() []*cobra.Command {
	var names []string
	for _, g := range wire.Grants() {
		names = append(names, string(g))
	}
	complete := cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)
	set := func(given bool, said string) func(*cobra.Command, []string) error {
		return a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			for _, g := range args {
				if err := c.SetGrant(cmd.Context(), wire.Grant(g), given); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "grant/%s is %s\n", g, said)
			}
			return nil
		})
	}
	return []*cobra.Command{
		{Use: "grant GRANT...", Short: "Let the users of the root do something at this site", Long: siteGrantHelp, Args: cobra.MinimumNArgs(1),
			ValidArgsFunction: complete, Example: "  skerry cluster grant workers drain", RunE: set(true, "given")},
		{Use: "revoke GRANT...", Short: "No longer let the users of the root do something at this site", Args: cobra.MinimumNArgs(1),
			ValidArgsFunction: complete, Example: "  skerry cluster revoke drain", RunE: set(false, "revoked")},
	}
}

func listGrants(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.Grants(ctx)
	var out []item
	for _, g := range list {
		out = append(out, item{name: string(g.Grant), value: g, cells: []string{string(g.Grant), g.By, age(q.now, g.At)}})
	}
	return out, err
}

func grantsText(list []wire.Grant) string {
	var out []string
	for _, g := range list {
		out = append(out, string(g))
	}
	return strings.Join(out, ",")
}
