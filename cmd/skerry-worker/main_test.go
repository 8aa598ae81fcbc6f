package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/ctl/console"
)

func run(t *testing.T, args string) (status int, text string) {
	t.Helper()
	var out bytes.Buffer
	status = console.Main(t.Context(), commands(), own(strings.Fields(args)), console.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	return status, out.String()
}

// The help of this program names its own commands, by which they are called; the word worker may be there or not.
func TestHelp(t *testing.T) {
	for _, args := range []string{"--help", "help", "worker --help", "help status", "status --help", "worker status --help"} {
		status, text := run(t, args)
		_, usage, ok := strings.Cut(text, "Usage:\n  skerry-worker ")
		if status != 0 || !ok || strings.HasPrefix(usage, "worker") {
			t.Errorf("%s: exit status %d: %s", args, status, text)
		}
		if strings.Contains(args, "status") && !strings.HasPrefix(usage, "status [flags]") {
			t.Errorf("%s gives another command's help: %s", args, text)
		}
	}
	_, text := run(t, "help")
	_, list, _ := strings.Cut(text, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	lines := strings.Split(list, "\n")
	if len(lines) < 8 {
		t.Errorf("%d commands: %s", len(lines), text)
	}
	for _, line := range lines {
		name := strings.Fields(line)[0]
		if status, text := run(t, name+" --help"); status != 0 || !strings.Contains(text, "skerry-worker "+name) {
			t.Errorf("%s: exit status %d: %s", name, status, text)
		}
	}
}

// Every example of the help can be typed as it is, and nothing in it sends its reader to a command that is not on this machine.
func TestHelpIsOfThisProgram(t *testing.T) {
	examples := 0
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		path := strings.TrimPrefix(cmd.CommandPath(), name)
		if status, text := run(t, path+" --help"); status != 0 || strings.Contains(text, "skerry worker") {
			t.Errorf("%s: exit status %d:\n%s", cmd.CommandPath(), status, text)
		}
		for line := range strings.Lines(cmd.Example) {
			examples++
			var words []string
			for i, part := range strings.Split(strings.TrimSpace(line), "'") {
				if i%2 == 1 {
					words = append(words, part)
				} else {
					words = append(words, strings.Fields(part)...)
				}
			}
			if words[0] != name {
				t.Errorf("%q is no command of this program", line)
				continue
			}
			called, args, err := commands().Find(words[1:])
			if err == nil {
				err = called.ParseFlags(args)
			}
			if err == nil {
				err = called.ValidateArgs(called.Flags().Args())
			}
			if err != nil {
				t.Errorf("%q: %v", line, err)
			}
		}
		for _, below := range cmd.Commands() {
			look(below)
		}
	}
	look(commands())
	if examples < 5 {
		t.Errorf("only %d examples were found", examples)
	}
}

func TestCommands(t *testing.T) {
	for _, c := range []struct {
		args   string
		status int
		text   string
	}{
		{"version", 0, "dev\n"},
		{"version -o json", 0, `{"client":"dev"}` + "\n"},
		{"version -o yaml", 1, "error: -o \"yaml\" is not a format\n"},
		{"--version", 0, "skerry-worker version dev\n"},
		{"frob", 1, "error: unknown command \"frob\" for \"skerry-worker\"\nhint: `skerry-worker --help` lists the commands\n"},
		{"worker frob", 1, "error: unknown command \"frob\" for \"skerry-worker\"\nhint: `skerry-worker --help` lists the commands\n"},
		{"status frob", 1, "error: unknown command \"frob\" for \"skerry-worker status\"\nhint: `skerry-worker status --help` lists"},
		{"status --frob", 1, "error: unknown flag: --frob\nhint: `skerry-worker status --help` lists the flags\n"},
		{"__complete st", 0, "status\tShow the status"},
		{"completion bash", 0, "# bash completion"},
	} {
		if status, text := run(t, c.args); status != c.status || !strings.HasPrefix(text, c.text) {
			t.Errorf("%s: exit status %d: %.300s", c.args, status, text)
		}
	}
}
