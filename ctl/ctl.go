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
	"skerry.dev/skerry/ctl/console"
)

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
	addGroup(root, groupApps, []*cobra.Command{a.applyCommand(), a.syncCommand(), a.diffCommand(), a.planCommand(), a.convertCommand(),
		a.runCommand(), a.editCommand(), a.setCommand(), a.labelCommand(), a.deployCommand(), a.getCommand(), a.describeCommand(),
		a.logsCommand(), a.execCommand(), a.cpCommand(),
		a.forwardCommand(), a.scaleCommand(), a.restartCommand(), a.migrateCommand(), a.rolloutCommand(), a.deleteCommand(), a.explainCommand(),
		a.eventsCommand(), a.waitCommand(), a.topCommand(), a.imageCommand(), a.volumeCommand()})
	addGroup(root, groupPeople, []*cobra.Command{a.loginCommand(), a.logoutCommand(), a.whoamiCommand(), a.passwdCommand(), a.contextCommand(),
		a.totpCommand(), a.userCommand(), a.orgCommand(), a.namespaceCommand(), a.certificateCommand(), a.secretCommand(), a.accessTokenCommand(),
		a.auditCommand()})
	addGroup(root, groupOperate, []*cobra.Command{a.adoptCommand(), a.cordonCommand(), a.uncordonCommand(), a.drainCommand(),
		a.rebalanceCommand(), a.upgradeCommand(), a.localCommand(), a.tokenCommand(), a.memberCommand(), a.doctorCommand(),
		a.versionCommand(), manCommand(root)})
	completionInstall(root)
	for _, c := range opt.Roles {
		if c.Name() == "worker" {
			c.AddCommand(a.workerCommands()...)
		}
		if c.Name() == "cluster" {
			c.AddCommand(a.grantCommands()...)
		}
	}
	addGroup(root, groupRoles, opt.Roles)
	root.Annotations = map[string]string{}
	for name, here := range commandsElsewhere {
		root.Annotations[console.Elsewhere+name] = here
	}
	return root
}

// app is what the commands of one tree share.
type app struct {
	opt         Options
	contextName string // --context
	space       string // --namespace
	cluster     string // --cluster: whose workers are meant, at a root
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
