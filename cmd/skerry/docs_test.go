package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// docsCLI is the reference of commands, made from the commands themselves.
const docsCLI = "../../docs/CLI.md"

func allCommands(cmd *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	for _, c := range cmd.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		out = append(append(out, c), allCommands(c)...)
	}
	return out
}

// The reference says what the commands do. `go test ./cmd/skerry -run CLIReference -update` writes it.
func TestCLIReference(t *testing.T) {
	var b bytes.Buffer
	fmt.Fprint(&b, `# Commands

Generated from the program by `+"`go test ./cmd/skerry -run CLIReference -update`"+`; do not edit.

Every command takes `+"`--context NAME`"+` (server), `+"`-n`/`--namespace NAME`"+` and `+"`--help`"+`. Errors go to standard error, with a line
`+"`hint:`"+` if there is a fix.

| exit status | of | means |
|---|---|---|
| 0 | every command | done |
| 1 | every command but `+"`diff`"+` | an error: nothing was done, or what was done failed |
| 2 | `+"`apply`, `deploy`, `edit`, `plan`, `rollout status`, `run`, `scale`, `set`, `label`, `wait`"+` | accepted, but an instance could not be placed in time |
| 1, 2 | `+"`diff`"+` | there is a difference; an error |
| that of the remote command | `+"`exec`, `local exec`, `lab exec`"+` | it ended so; 130 if you ended it by Ctrl-C |

Environment of client commands: SKERRY_CONFIG (file of contexts), SKERRY_CONTEXT, SKERRY_NAMESPACE, SKERRY_SERVER with SKERRY_CA_PIN or
SKERRY_CA_FILE (in place of a context), SKERRY_TOKEN (access token), SKERRY_PASSWORD, SKERRY_OTP, SKERRY_IMAGES (image store). Flags of role
commands may be given as SKERRY_ and the flag's name in upper case.

`)
	list := allCommands(commands())
	for _, c := range list {
		if depth(c) == 1 {
			fmt.Fprintf(&b, "- [`%s`](#%s) %s\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), c.Short)
		}
	}
	shared := sharedFlags(list)
	fmt.Fprint(&b, "\n## Common flags\n\nFlags of several commands, each of which names those that it takes.\n\n")
	fmt.Fprintf(&b, "```\n%s```\n", shared.FlagUsages())
	for _, c := range list {
		fmt.Fprintf(&b, "\n%s %s\n\n", strings.Repeat("#", depth(c)+1), c.CommandPath())
		if c.Long != "" {
			fmt.Fprintln(&b, strings.TrimSpace(c.Long))
		} else {
			fmt.Fprintln(&b, c.Short+".")
		}
		if c.Runnable() {
			fmt.Fprintf(&b, "\n```\n%s\n```\n", c.UseLine())
		}
		if len(c.Aliases) > 0 {
			fmt.Fprintf(&b, "\nAlso: %s.\n", strings.Join(c.Aliases, ", "))
		}
		own, common := pflag.NewFlagSet("", pflag.ContinueOnError), []string{}
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			switch as := shared.Lookup(f.Name); {
			case as == nil || as.Usage != f.Usage:
				own.AddFlag(f)
			case as.DefValue != f.DefValue:
				common = append(common, fmt.Sprintf("`--%s` (default `%s`)", f.Name, f.DefValue))
			default:
				common = append(common, "`--"+f.Name+"`")
			}
		})
		if u := own.FlagUsages(); c.Runnable() && u != "" {
			fmt.Fprintf(&b, "\n```\n%s```\n", strings.TrimLeft(u, "\n"))
		}
		if c.Runnable() && len(common) > 0 {
			fmt.Fprintf(&b, "\n[Common flags](#common-flags): %s.\n", strings.Join(common, ", "))
		}
		if c.Example != "" {
			fmt.Fprintf(&b, "\nExamples:\n\n```\n%s\n```\n", strings.Trim(c.Example, "\n"))
		}
	}
	if *update {
		if err := os.WriteFile(docsCLI, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(docsCLI)
	if err != nil || !bytes.Equal(have, b.Bytes()) {
		t.Errorf("%s is not what the commands say (%v); run go test ./cmd/skerry -run CLIReference -update", docsCLI, err)
	}
}

// sharedFlags are those that several commands explain in the same words, without a default where that differs.
func sharedFlags(list []*cobra.Command) *pflag.FlagSet {
	uses := map[[2]string][]*pflag.Flag{} // by name and explanation
	for _, c := range list {
		if c.Runnable() {
			c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
				k := [2]string{f.Name, f.Usage}
				uses[k] = append(uses[k], f)
			})
		}
	}
	out := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, k := range slices.SortedFunc(maps.Keys(uses), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		same := uses[k]
		for other, list := range uses { // of two explanations of a name the more usual one
			if other[0] == k[0] && other != k && (len(list) > len(same) || len(list) == len(same) && other[1] < k[1]) {
				same = nil
			}
		}
		if len(same) < 2 || out.ShorthandLookup(same[0].Shorthand) != nil { // another has its letter
			continue
		}
		f := *same[0]
		if slices.ContainsFunc(same, func(o *pflag.Flag) bool { return o.DefValue != f.DefValue }) {
			f.DefValue = ""
		}
		out.AddFlag(&f)
	}
	return out
}

func depth(c *cobra.Command) int {
	n := 0
	for c.HasParent() {
		c = c.Parent()
		n++
	}
	return n
}
