package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/plugin"
	"skerry.dev/skerry/spec"
)

const pluginsHelp = "directory with the site's scheduling plugins"

func pluginConfig(dir string) (parents.PluginConfig, error) {
	if dir == "" {
		return parents.PluginConfig{}, nil
	}
	self, err := os.Executable()
	return parents.PluginConfig{Dir: dir, Shim: []string{self, parents.PluginShimCommand}}, err
}

func pluginList(h *plugin.Host) []plugin.Status {
	if h == nil {
		return []plugin.Status{}
	}
	return h.Status()
}

func pluginCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "plugin", Short: "Show and test the site's scheduling plugins", Args: cobra.NoArgs,
		Long: `Show and test the site's scheduling plugins: WebAssembly modules and programs that score workers for a service. Files in
the cluster's --plugins directory describe them; see docs/PLUGINS.md.`}
	cmd.AddCommand(pluginListCommand(), pluginCheckCommand(), pluginSampleCommand())
	return cmd
}

func pluginListCommand() *cobra.Command {
	var data, output string
	cmd := &cobra.Command{Use: "list", Short: "Show the status of this machine's cluster's plugins", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []plugin.Status
			if err := role.CallLocal(cmd.Context(), data, "GET", "/plugins", nil, &list); err != nil {
				return err
			}
			if done, err := printJSON(cmd.OutOrStdout(), output, list); done {
				return err
			}
			printPlugins(cmd.OutOrStdout(), list)
			return nil
		}}
	cmd.Flags().StringVar(&data, "data", filepath.Join(role.DefaultData(), "cluster"), "data directory of the role")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for use by programs")
	return cmd
}

// printJSON prints for programs when that is wanted. It reports whether there is no more to do.
func printJSON(out io.Writer, format string, v any) (bool, error) {
	switch format {
	case "":
		return false, nil
	case "json":
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return true, enc.Encode(v)
	}
	return true, skerry.Errorf(skerry.CodeInvalid, "-o %q is not a format", format).WithHint("use json, or omit -o")
}

func printPlugins(out io.Writer, list []plugin.Status) {
	if len(list) == 0 {
		fmt.Fprintln(out, "The site has no scheduling plugins.")
		return
	}
	tw := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tKIND\tSHOWN\tON FAILURE\tSTATE\tCALLS\tFAILED\tLAST\tMEMORY")
	for _, p := range list {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", p.Name, p.Kind, shown(p.All), p.OnFailure, p.State, p.Calls, p.Failures,
			short(p.Last), mebi(p.Memory))
	}
	tw.Flush()
	for _, p := range list {
		if p.Why != "" {
			fmt.Fprintf(out, "%s: %s\n", p.Name, p.Why)
		}
	}
}

func shown(all bool) string {
	if all {
		return "every service"
	}
	return "by name"
}

func short(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

func mebi(b skerry.Bytes) string { return fmt.Sprintf("%.1f MiB", float64(b)/float64(skerry.MiB)) }

func pluginCheckCommand() *cobra.Command {
	var output, query string
	cmd := &cobra.Command{Use: "check DIR", Short: "Load and test the plugins of a directory", Args: cobra.ExactArgs(1),
		Long: `Load the plugins of a directory and send each a sample query, as the cluster would: with its limits and in its sandbox.
Shows the time, the memory, the answer and the isolation of each. Fails if a plugin does not work.`,
		Example: "  skerry cluster plugin check /etc/skerry/plugins\n  skerry cluster plugin sample >q.json; skerry cluster plugin check . --query q.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			q := plugin.Sample()
			if query != "" {
				text, err := os.ReadFile(query)
				if err != nil {
					return err
				}
				q = sched.PluginQuery{}
				if p := spec.DecodeStrict(text, &q); len(p) > 0 {
					return &skerry.Error{Code: skerry.CodeInvalid, Message: "the query in " + query + " is not valid", Problems: p}
				}
			}
			c, err := pluginConfig(args[0])
			if err != nil {
				return err
			}
			trials, err := plugin.Check(cmd.Context(), plugin.Options{Dir: c.Dir, Shim: c.Shim}, q)
			if err != nil {
				return err
			}
			done, err := printJSON(cmd.OutOrStdout(), output, trials)
			if !done {
				printTrials(cmd.OutOrStdout(), trials)
			}
			if err != nil {
				return err
			}
			bad := 0
			for _, t := range trials {
				if t.Problem != "" {
					bad++
				}
			}
			switch {
			case len(trials) == 0:
				return skerry.Errorf(skerry.CodeNotFound, "no plugin in %s", args[0]).
					WithHint("a plugin is described by a file NAME.yaml or NAME.json")
			case bad > 0:
				return skerry.Errorf(skerry.CodeInvalid, "%d of %d plugins do not work", bad, len(trials))
			}
			return nil
		}}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for use by programs")
	cmd.Flags().StringVar(&query, "query", "", "file with the query to send, as JSON (default: a sample)")
	return cmd
}

func printTrials(out io.Writer, trials []plugin.Trial) {
	for _, t := range trials {
		fmt.Fprintln(out, cmp.Or(t.Name, t.File))
		tw := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		if d := t.Description; d != nil {
			fmt.Fprintf(tw, "  Kind:\t%s, shown %s, %s on failure\n", d.Kind,
				map[bool]string{true: "every service", false: "services that name it"}[d.All], d.OnFailure)
			fmt.Fprintf(tw, "  Limits:\t%s, %s\n", d.Timeout, d.Memory)
		}
		if len(t.Isolation) > 0 {
			fmt.Fprintf(tw, "  Isolation:\t%s\n", strings.Join(t.Isolation, ", "))
		}
		if t.First > 0 {
			fmt.Fprintf(tw, "  Took:\t%s to load, %s for the first answer, %s for the next, %s\n", short(t.Load), short(t.First), short(t.Then),
				mebi(t.Memory))
		}
		if t.Reply != nil {
			text, _ := json.Marshal(t.Reply)
			fmt.Fprintf(tw, "  Answer:\t%s\n", text)
		}
		if t.Problem != "" {
			fmt.Fprintf(tw, "  Problem:\t%s\n", strings.ReplaceAll(t.Problem, "\n", "\n  \t"))
		}
		tw.Flush()
	}
}

func pluginSampleCommand() *cobra.Command {
	return &cobra.Command{Use: "sample", Short: "Print the sample query as one line of JSON", Args: cobra.NoArgs,
		Long: "Print the sample query as one line of JSON, to test a plugin by hand: skerry cluster plugin sample | ./my-plugin",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(plugin.Sample())
		}}
}
