package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/view"
)

func listOrphans(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.Orphans(ctx)
	var out []item
	for _, o := range list {
		service, since := "", ""
		if o.Service != (skerry.ServiceKey{}) {
			service = o.Service.String()
		}
		if !o.StartedAt.IsZero() {
			since = age(q.now, o.StartedAt)
		}
		state := string(o.State)
		if o.Kept != "" {
			state = "Kept"
		}
		out = append(out, item{name: o.Name(), value: o, wide: []string{o.Org},
			cells: []string{o.Name(), service, state, string(o.Cluster), string(o.Worker), since, o.Problem}})
	}
	return out, err
}

func (a *app) adoptCommand() *cobra.Command {
	return &cobra.Command{Use: "adopt ORPHAN...", Short: "Adopt orphans: running instances that a restored backup does not know",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeKind("orphan"),
		Long: `Adopt orphans: make running instances that the server does not know instances of their applications again. Each adds one
replica to its service, with the specification that it was last assigned. A missing application or service is created again.
Nothing is restarted, unless the service has another version by now. One with local volumes takes the place of the instance
that waits for them.

Restoring a store from a backup leaves orphans if instances were started since. "skerry get orphans" lists them, at the root
those of its own applications and at a cluster those of the cluster's. "skerry delete orphan" ends one. Both require rights on
all organisations. A cluster also lists volumes and snapshots that workers keep and it does not take up; these can only be deleted.`,
		Example: "  skerry get orphans\n  skerry adopt front-x5b2k front-p9d3m\n  skerry delete orphan front-x5b2k",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			for _, id := range args {
				if err := c.AdoptOrphan(cmd.Context(), id); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "orphan/%s is an instance again\n", id)
			}
			return nil
		})}
}

// orphanCheck counts what runs unknown, and what is kept; nothing for who may not see it, and of servers before there were orphans.
func orphanCheck(ctx context.Context, c *api.Client) (Check, bool) {
	list, err := c.Orphans(ctx)
	running := view.OrphansRunning(list)
	text, hint := "", "`skerry get orphans`; adopt or delete them"
	switch kept := len(list) - running; {
	case err != nil:
		return Check{}, false
	case len(list) == 0:
		return Check{"orphans", CheckOK, "nothing runs that the server does not know", ""}, true
	case running == 0:
		text = fmt.Sprintf("workers keep volumes or snapshots that their site does not take up: %d", kept)
		hint = "`skerry get orphans` shows why; `skerry delete orphan` deletes them"
	case running == 1:
		text, hint = fmt.Sprintf("instance %s runs and is unknown to the server", list[0].Instance), "`skerry get orphans`; adopt or delete it"
	default:
		text = fmt.Sprintf("%d instances run and are unknown to the server", running)
	}
	return Check{"orphans", CheckWarning, text, hint}, true
}
