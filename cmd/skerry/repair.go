package main

import (
	"errors"
	"fmt"
	"os"
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
	cmd := &cobra.Command{Use: "repair", Short: "Repair the damaged store of a role, from its intact records", Args: cobra.NoArgs,
		Long: `Repair the damaged store of a stopped root or cluster: keep every record with a valid checksum, list the lost ones, and set
the damaged file aside. An intact store is not touched. A worker repairs its own store when it starts.

Restore a backup instead if you have a recent one. A store that has lost its certificate authority is not repaired: all children
would have to join again.

A repaired store starts a new incarnation: the role first learns what its children run, and deletes nothing until then.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			url := storeURL
			if url == "" {
				url = sqliteURL(data)
			}
			how := store.Repairing{Alter: node.Repaired, Needed: []string{auth.CARecord}, Finish: tier.BeginLost}
			done, err := store.Repair(ctx, url, store.Options{}, how)
			switch {
			case errors.Is(err, store.ErrNotDamaged):
				return skerry.Errorf(skerry.CodeConflict, "%w", err)
			case errors.Is(err, store.ErrInUse):
				return skerry.Errorf(skerry.CodeConflict, "%w", err).WithHint("stop the role first")
			case errors.Is(err, store.ErrDamaged):
				return skerry.Errorf(skerry.CodeUnavailable, "%w", err).
					WithHint("restore a backup: skerry restore --data %s FILE; if this is a worker's, start the worker: it repairs its own store", data)
			case errors.Is(err, os.ErrNotExist):
				return skerry.Errorf(skerry.CodeNotFound, "there is no store in %s", data).
					WithHint("give the role's data directory with --data, or its store with --store")
			case err != nil:
				return err
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
