// Command skerry-worker is `skerry worker` alone, for boards with little flash memory: the same commands, flags and data directory, without
// root, cluster, client, dashboard and measurements. Each of the two programs can be upgraded to the other.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/cmd/internal/agent"
	"skerry.dev/skerry/cmd/internal/role"
)

// name is this program's.
const name = "skerry-worker"

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func main() {
	if status, ok := agent.Helper(version, os.Args[1:]); ok {
		os.Exit(status)
	}
	tree := commands()
	os.Args = append(os.Args[:1], complete(tree, os.Args[1:])...) // also for the program that this one is upgraded to
	os.Exit(role.Main(tree, os.Args[1:]))
}

// commands is the whole command tree.
func commands() *cobra.Command {
	tree := &cobra.Command{Use: name, Short: "Run a worker of an edge site", Version: version, SilenceErrors: true, SilenceUsage: true}
	tree.AddCommand(agent.Command(agent.Program{Name: name, Version: version}), versionCommand())
	tree.InitDefaultHelpCmd()
	return tree
}

// complete adds the command worker to arguments that leave it out.
func complete(tree *cobra.Command, args []string) []string {
	if len(args) > 0 && slices.ContainsFunc(tree.Commands(), func(c *cobra.Command) bool { return c.Name() == args[0] }) {
		return args
	}
	return append([]string{"worker"}, args...)
}

// versionCommand answers as that of skerry does, without a server.
func versionCommand() *cobra.Command {
	format := ""
	cmd := &cobra.Command{Use: "version", Short: "Show the version of this program", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{"client": version})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		}}
	cmd.Flags().StringVarP(&format, "output", "o", "", "json for use by programs")
	return cmd
}
