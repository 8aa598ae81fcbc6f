// Go would look once a second whether the processors that this process may use have changed, also at rest.
//go:debug updatemaxprocs=0

// Command skerry-worker is `skerry worker` alone, for boards with little flash memory: the same commands, flags and data directory, without
// root, cluster, client, dashboard and measurements. Each of the two programs can be upgraded to the other.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry.dev/skerry"
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
	args := own(os.Args[1:])
	os.Args = append([]string{os.Args[0], "worker"}, args...) // for the program that this one is upgraded to, which may be skerry
	os.Exit(role.Main(commands(), args))
}

// own gives the arguments without the word worker, which this program does not need and skerry does.
func own(args []string) []string {
	if len(args) > 0 && args[0] == "worker" {
		return args[1:]
	}
	return args
}

// commands is the whole command tree: the worker's, and version.
func commands() *cobra.Command {
	tree := agent.Command(agent.Program{Name: name, Version: version})
	tree.Use, tree.Version, tree.SilenceErrors, tree.SilenceUsage = name, version, true, true
	tree.AddCommand(versionCommand())
	rename(tree)
	return tree
}

// rename has the help of a command, and of those below it, name this program in place of skerry's command for a worker.
func rename(cmd *cobra.Command) {
	as := func(text string) string { return strings.ReplaceAll(text, "skerry worker", name) }
	cmd.Long, cmd.Example = as(cmd.Long), as(cmd.Example)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = as(f.Usage) })
	for _, below := range cmd.Commands() {
		rename(below)
	}
}

// versionCommand answers as that of skerry does, without a server.
func versionCommand() *cobra.Command {
	format := ""
	cmd := &cobra.Command{Use: "version", Short: "Show the version of this program", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch format {
			case "":
				_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
				return err
			case "json":
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{"client": version})
			}
			return skerry.Errorf(skerry.CodeInvalid, "-o %q is not a format", format).WithHint("use json, or omit -o")
		}}
	cmd.Flags().StringVarP(&format, "output", "o", "", "json for use by programs")
	return cmd
}
