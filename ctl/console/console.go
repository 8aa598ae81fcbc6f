// Package console runs a tree of commands for a person at a terminal, or for a program: what it reads and writes, how errors are shown, and
// with which status it ends. It knows no command; ctl and the programs import it.
package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

// Exit codes of every command but exec, which passes on the remote one.
const (
	ExitOK        = 0
	ExitError     = 1
	ExitNotPlaced = 2 // accepted, but not placed in time
)

// Exit ends a command with a status. A nil error prints nothing.
type Exit struct {
	Code int
	Err  error
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Exit) Unwrap() error { return e.Err }

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// StdStreams are those of the process.
func StdStreams() Streams { return Streams{os.Stdin, os.Stdout, os.Stderr} }

// Main runs a command and gives the exit status. Errors are told on the error stream, with their hints.
func Main(ctx context.Context, root *cobra.Command, args []string, s Streams) int {
	s.Out, s.Err = toScreen(s.Out), toScreen(s.Err)
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(FlagError)
	err := unknownIn(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if err == nil {
		return ExitOK
	}
	var exit *Exit
	if errors.As(err, &exit) {
		if exit.Err != nil {
			PrintError(s.Err, exit.Err)
		}
		return exit.Code
	}
	PrintError(s.Err, err)
	return ExitError
}

// FlagError says what is wrong with the flags of a command.
func FlagError(cmd *cobra.Command, err error) error {
	return skerry.Errorf(skerry.CodeInvalid, "%w", err).WithHint("`%s --help` lists the flags", cmd.CommandPath())
}

// Elsewhere begins the annotations of the root command that say what there is here for a command of another program.
const Elsewhere = "elsewhere:"

// unknownIn reports a command that its group does not have: for those below the root, cobra shows the help of the group and counts that as
// success.
func unknownIn(root *cobra.Command, args []string) error {
	root.DisableSuggestions = true // they take any two short names to be alike
	group, rest, err := root.Find(args)
	if err == nil && (!group.HasParent() || group.Runnable()) || group.ParseFlags(rest) != nil || group.Flags().NArg() == 0 {
		return nil
	}
	name := group.Flags().Arg(0)
	if name == "help" {
		return nil
	}
	unknown := skerry.Errorf(skerry.CodeInvalid, "unknown command %q for %q", name, group.CommandPath())
	if here := root.Annotations[Elsewhere+name]; here != "" && group == root {
		return unknown.WithHint("%s", here)
	}
	// A name of three letters is near to many others.
	group.SuggestionsMinimumDistance = 1
	if len(name) > 3 {
		group.SuggestionsMinimumDistance = 2
	}
	if like := group.SuggestionsFor(name); len(like) > 0 {
		return unknown.WithHint("did you mean %s?", strings.Join(like, " or "))
	}
	return unknown.WithHint("`%s --help` lists the commands", group.CommandPath())
}

// PrintError tells a user of an error: the message, every problem with its path, and the hint. Much of it may come from elsewhere.
func PrintError(to io.Writer, err error) {
	out := new(strings.Builder)
	writeError(out, err)
	io.WriteString(to, strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && Moves(r) {
			return ' '
		}
		return r
	}, out.String()))
}

func writeError(out io.Writer, err error) {
	var problem *skerry.Error
	if !errors.As(err, &problem) {
		msg, hint := err.Error(), ""
		if strings.HasPrefix(msg, "unknown command") {
			if at := strings.LastIndex(msg, ` for "`); at >= 0 {
				hint = "`" + strings.Trim(msg[at+len(" for "):], `"`) + " --help` lists the commands"
			}
		}
		fmt.Fprintf(out, "error: %s\n", msg)
		if hint != "" {
			fmt.Fprintf(out, "hint: %s\n", hint)
		}
		return
	}
	msg := problem.Message
	if full := err.Error(); len(problem.Problems) == 0 && strings.Contains(full, msg) {
		msg = full // with what was wrapped around it
	}
	fmt.Fprintf(out, "error: %s\n", msg)
	for _, p := range problem.Problems {
		path := p.Path
		if path != "" {
			path += ": "
		}
		fmt.Fprintf(out, "  %s%s", path, p.Message)
		if p.Hint != "" {
			fmt.Fprintf(out, " (%s)", p.Hint)
		}
		fmt.Fprintln(out)
	}
	if problem.Hint != "" {
		fmt.Fprintf(out, "hint: %s\n", problem.Hint)
	}
}
