// Package ctl holds the client commands: it reads what people type and files they give, talks to the API through its
// client, and shows what comes back. It starts no role and knows no core; the command skerry imports it.
package ctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
)

// Exit codes of every command but exec, which passes on the remote one.
const (
	ExitOK        = 0
	ExitError     = 1
	ExitNotPlaced = 2 // accepted, but not placed in time
)

// exitError ends a command with a status. A nil error prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// StdStreams are those of the process.
func StdStreams() Streams { return Streams{os.Stdin, os.Stdout, os.Stderr} }

// Groups of commands in the help.
const (
	groupApps    = "apps"
	groupPeople  = "people"
	groupOperate = "operate"
	groupRoles   = "roles"
)

// Options say what the commands are made with.
type Options struct {
	Version string
	// LocalToken asks the role that runs on a data directory for a join token; nil: there is no such way.
	LocalToken func(ctx context.Context, data string, q TokenRequest) (Token, error)
	// LocalClient speaks to the worker that runs on a data directory, WorkerData unless told otherwise, as to a server of the
	// API that has instances alone.
	LocalClient func(data string) (*api.Client, error)
	WorkerData  string
	// Checks are those of this machine that only the roles know how to make.
	Checks func(ctx context.Context, data string) []Check
	// Roles run a role; that of the worker gets hold and unhold beside.
	Roles []*cobra.Command
}

// New makes the command tree of the client.
func New(opt Options) *cobra.Command {
	root := &cobra.Command{
		Use: "skerry", Short: "Run services on edge sites", Version: opt.Version,
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.AddGroup(&cobra.Group{ID: groupApps, Title: "Applications:"}, &cobra.Group{ID: groupPeople, Title: "People and access:"},
		&cobra.Group{ID: groupOperate, Title: "Operation:"}, &cobra.Group{ID: groupRoles, Title: "Roles:"})
	root.SetHelpCommandGroupID(groupOperate)
	root.SetCompletionCommandGroupID(groupOperate)
	a := &app{opt: opt}
	root.PersistentFlags().StringVar(&a.contextName, "context", "", "context to use instead of the current one")
	root.PersistentFlags().StringVarP(&a.space, "namespace", "n", "", "namespace to use instead of the context's")
	root.RegisterFlagCompletionFunc("context", completeContexts)
	root.RegisterFlagCompletionFunc("namespace", a.completeKind("namespace"))
	addGroup(root, groupApps, []*cobra.Command{a.applyCommand(), a.planCommand(), a.deployCommand(), a.getCommand(), a.describeCommand(),
		a.logsCommand(), a.execCommand(),
		a.forwardCommand(), a.scaleCommand(), a.restartCommand(), a.migrateCommand(), a.rolloutCommand(), a.deleteCommand(), a.explainCommand(),
		a.eventsCommand(), a.waitCommand(), a.topCommand(), a.imageCommand(), a.volumeCommand()})
	addGroup(root, groupPeople, []*cobra.Command{a.loginCommand(), a.logoutCommand(), a.whoamiCommand(), a.passwdCommand(), a.contextCommand(),
		a.totpCommand(), a.userCommand(), a.orgCommand(), a.namespaceCommand(), a.certificateCommand(), a.secretCommand(), a.accessTokenCommand(),
		a.auditCommand()})
	addGroup(root, groupOperate, []*cobra.Command{a.adoptCommand(), a.cordonCommand(), a.uncordonCommand(), a.drainCommand(),
		a.rebalanceCommand(), a.upgradeCommand(), a.localCommand(), a.tokenCommand(), a.memberCommand(), a.doctorCommand(), a.versionCommand()})
	for _, c := range opt.Roles {
		if c.Name() == "worker" {
			c.AddCommand(a.workerCommands()...)
		}
	}
	addGroup(root, groupRoles, opt.Roles)
	return root
}

// app is what the commands of one tree share.
type app struct {
	opt         Options
	contextName string // --context
	space       string // --namespace
	// local, if set, makes the client in place of a context.
	local func() (*api.Client, error)
}

// Operate adds commands that look after a machine.
func Operate(root *cobra.Command, list ...*cobra.Command) { addGroup(root, groupOperate, list) }

func addGroup(root *cobra.Command, id string, list []*cobra.Command) {
	for _, c := range list {
		c.GroupID = id
		root.AddCommand(c)
	}
}

// Main runs a command and gives the exit status. Errors are told on the error stream, with their hints.
func Main(ctx context.Context, root *cobra.Command, args []string, s Streams) int {
	s.Out, s.Err = toScreen(s.Out), toScreen(s.Err)
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return skerry.Errorf(skerry.CodeInvalid, "%w", err).WithHint("`%s --help` lists the flags", cmd.CommandPath())
	})
	err := unknownIn(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if err == nil {
		return ExitOK
	}
	var exit *exitError
	if errors.As(err, &exit) {
		if exit.err != nil {
			PrintError(s.Err, exit.err)
		}
		return exit.code
	}
	PrintError(s.Err, err)
	return ExitError
}

// unknownIn reports a command that its group does not have: for those, cobra shows the help of the group and counts that as success.
func unknownIn(root *cobra.Command, args []string) error {
	group, rest, err := root.Find(args)
	if err != nil || !group.HasParent() || group.Runnable() || group.ParseFlags(rest) != nil || group.Flags().NArg() == 0 {
		return nil
	}
	name := group.Flags().Arg(0)
	if name == "help" {
		return nil
	}
	unknown := skerry.Errorf(skerry.CodeInvalid, "unknown command %q for %q", name, group.CommandPath())
	group.SuggestionsMinimumDistance = 2
	if like := group.SuggestionsFor(name); len(like) > 0 {
		return unknown.WithHint("did you mean %s?", strings.Join(like, " or "))
	}
	return unknown.WithHint("`%s --help` lists the commands", group.CommandPath())
}

// PrintError tells a user of an error: the message, every problem with its path, and the hint.
func PrintError(out io.Writer, err error) {
	var problem *skerry.Error
	if !errors.As(err, &problem) {
		msg, hint := err.Error(), ""
		if strings.HasPrefix(msg, "unknown command") {
			msg, _, _ = strings.Cut(msg, "\n")
			hint = "`skerry --help` lists the commands"
			if _, s, ok := strings.Cut(err.Error(), "Did you mean this?"); ok {
				hint = "did you mean " + strings.Join(strings.Fields(s), " or ") + "?"
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

// AskSecret asks on the terminal without showing what is typed. Without a terminal it reads a line of the input.
func AskSecret(cmd *cobra.Command, prompt string) (string, error) {
	if f, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(cmd.ErrOrStderr(), prompt)
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
		return string(b), err
	}
	line, err := readLine(cmd.InOrStdin())
	if err != nil {
		return "", skerry.Errorf(skerry.CodeInvalid, "%sno value was given, and there is no terminal to prompt on", prompt)
	}
	return line, nil
}

// readLine reads one line byte by byte, so that what follows is left to the next reader.
func readLine(r io.Reader) (string, error) {
	var out []byte
	b := make([]byte, 1)
	for len(out) < 64<<10 {
		n, err := r.Read(b)
		if n == 1 {
			if b[0] == '\n' {
				return strings.TrimRight(string(out), "\r"), nil
			}
			out = append(out, b[0])
		}
		if err != nil {
			if len(out) > 0 && errors.Is(err, io.EOF) {
				return string(out), nil
			}
			return "", err
		}
	}
	return "", bufio.ErrTooLong
}
