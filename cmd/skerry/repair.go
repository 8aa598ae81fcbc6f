package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/store"
)

func repairCommand() *cobra.Command {
	var data, storeURL string
	cmd := &cobra.Command{Use: "repair", Short: "Repair the damaged store of a role, as far as its records are whole", Args: cobra.NoArgs,
		Long: `Repair the damaged store of a stopped root or cluster: keep every record whose checksum holds, name those that are lost, and set
the damaged file aside. A store that is whole is not touched. A worker repairs its own store when it starts.

Restore a backup instead if you have a recent one. A store that has lost its certificate authority is not repaired: all children
would have to join again.

A repaired store starts a new incarnation: the role first learns what its children run, and deletes nothing until then.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			url := storeURL
			if url == "" {
				url = sqliteURL(data)
			}
			done, err := store.Repair(ctx, url, store.Options{}, node.Repaired, auth.CARecord)
			switch {
			case errors.Is(err, store.ErrNotDamaged):
				return skerry.Errorf(skerry.CodeConflict, "%w", err)
			case errors.Is(err, store.ErrInUse):
				return skerry.Errorf(skerry.CodeConflict, "%w", err).WithHint("stop the role first")
			case errors.Is(err, store.ErrDamaged):
				return skerry.Errorf(skerry.CodeUnavailable, "%w", err).WithHint("restore a backup: skerry restore --data %s FILE", data)
			case err != nil:
				return err
			}
			// A store that has lost its life has lost its term, too, and begins above all that there can have been.
			st, err := openStore(ctx, data, storeURL)
			if err != nil {
				return err
			}
			defer st.Close()
			if _, err := st.Get(ctx, tier.KeyLife); errors.Is(err, store.ErrNotFound) {
				if err := tier.BeginAnew(ctx, st); err != nil {
					return err
				}
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "%s\n\nStart the role. Until a child has reported, nothing of it is deleted or placed again.\n", done)
			if done.Unreadable || slices.ContainsFunc(done.Lost, func(key string) bool { return strings.HasPrefix(key, `"place/`) }) {
				fmt.Fprintln(out, "If it is a cluster, start it once with --rebuild, so that it takes over the instances that it no longer knows.")
			}
			return nil
		}}
	storeFlags(cmd, &data, &storeURL)
	return cmd
}
