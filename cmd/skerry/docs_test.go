package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
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

Every command takes `+"`--context NAME`"+` (server), `+"`-n`/`--namespace NAME`"+` and `+"`--help`"+`. Exit status: 0 done, 1 error, 2 accepted but not placed;
`+"`exec`"+` ends with the status of the remote command. Errors go to standard error, with a line `+"`hint:`"+` if there is a fix.

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
		if u := c.LocalNonPersistentFlags().FlagUsages(); c.Runnable() && u != "" {
			fmt.Fprintf(&b, "\n```\n%s```\n", strings.TrimLeft(u, "\n"))
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

func depth(c *cobra.Command) int {
	n := 0
	for c.HasParent() {
		c = c.Parent()
		n++
	}
	return n
}
