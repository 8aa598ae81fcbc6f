package ctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/ctl/console"
)

// Check is one finding of the doctor.
type Check struct {
	Name  string `json:"name"`
	State string `json:"state"` // ok, warning, problem or skipped
	Text  string `json:"text"`
	Cure  string `json:"cure,omitempty"`
}

// States of checks.
const (
	CheckOK      = "ok"
	CheckWarning = "warning"
	CheckProblem = "problem"
	CheckSkipped = "skipped"
)

func (a *app) doctorCommand() *cobra.Command {
	var format, data string
	var machine, client, security bool
	cmd := &cobra.Command{Use: "doctor", Short: "Diagnose this machine and the connection to the server", Args: cobra.NoArgs,
		Long: "Check whether this machine can be a worker, and whether the context's server is reachable and trusted.\nEach problem comes with a fix. Exits with 1 if there is a problem.\n" +
			"With --security, list the instances at a cluster that would now be refused or restricted; and, at a root too, exports without effect, organisations above their quotas, and images of registries that are not asked.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []Check
			if security {
				found, err := a.securityChecks(cmd.Context())
				if err != nil {
					return err
				}
				list, machine, client = found, true, true
			}
			if !client && a.opt.Checks != nil {
				list = a.opt.Checks(cmd.Context(), data)
			}
			if !machine {
				list = append(list, a.serverChecks(cmd.Context())...)
			}
			problems := 0
			for _, c := range list {
				if c.State == CheckProblem {
					problems++
				}
			}
			if done, err := printValue(cmd.OutOrStdout(), format, map[string]any{"items": list}); done {
				if err == nil && problems > 0 {
					err = &console.Exit{Code: console.ExitError}
				}
				return err
			}
			t := table{head: []string{"CHECK", "STATE", "FINDING"}}
			for _, c := range list {
				t.add("check/"+c.Name, []string{c.Name, c.State, c.Text})
			}
			t.print(cmd.OutOrStdout(), false, true)
			for _, c := range list {
				if c.Cure != "" && c.State != CheckOK {
					fmt.Fprintf(cmd.OutOrStdout(), "\n%s: %s\n  cure: %s\n", c.Name, c.Text, c.Cure)
				}
			}
			if problems > 0 {
				return &console.Exit{Code: console.ExitError}
			}
			return nil
		}}
	outputFlag(cmd, &format)
	cmd.Flags().StringVar(&data, "data", "", "directory that holds the roles' data directories (default the usual place)")
	cmd.Flags().BoolVar(&machine, "machine", false, "check this machine only")
	cmd.Flags().BoolVar(&client, "client", false, "check the connection to the server only")
	cmd.Flags().BoolVar(&security, "security", false, "list everything on the server that would now be refused, restricted or without effect")
	cmd.MarkFlagsMutuallyExclusive("machine", "client", "security")
	return cmd
}

// securityChecks lists what a site runs and would not take today.
func (a *app) securityChecks(ctx context.Context) ([]Check, error) {
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found, err := client.Unadmitted(ctx)
	if err != nil {
		return nil, err
	}
	var out []Check
	for _, u := range found {
		name := "organisation " + u.Org
		if u.Service != (skerry.ServiceKey{}) {
			name = strings.TrimSpace(u.Service.String() + " " + string(u.Instance))
		}
		out = append(out, Check{name, CheckWarning, u.Reason.Text, u.Reason.Hint})
	}
	if len(out) == 0 {
		out = append(out, Check{"admission", CheckOK, "nothing that is here would be refused, restricted or without effect today", ""})
	}
	return out, nil
}

// serverChecks looks at the configuration and the way to the server.
func (a *app) serverChecks(ctx context.Context) []Check {
	var out []Check
	add := func(name, state, text, cure string) { out = append(out, Check{name, state, text, cure}) }
	if path, err := ConfigPath(); err == nil {
		if fi, err := os.Stat(path); err == nil && fi.Mode().Perm()&0o077 != 0 && filepath.Separator == '/' {
			add("configuration", CheckProblem, fmt.Sprintf("%s is readable by others (mode %04o)", path, fi.Mode().Perm()), "chmod 600 "+path)
		} else if err == nil {
			add("configuration", CheckOK, path, "")
		}
	}
	x, err := a.chosen()
	if err != nil {
		e := skerry.AsError(err)
		add("context", CheckSkipped, e.Message, e.Hint)
		return out
	}
	add("context", CheckOK, orDash(x.Name)+" at "+x.Server, "")
	ctx, cancel := context.WithTimeout(ctx, 3*serverWait)
	defer cancel()
	server, err := serverURL(x.Server)
	if err != nil {
		add("server", CheckProblem, err.Error(), "fix it with `skerry context add "+x.Name+" --server ...`")
		return out
	}
	at, _ := url.Parse(server)
	d := net.Dialer{Timeout: serverWait}
	conn, err := d.DialContext(ctx, "tcp", at.Host)
	if err != nil {
		cure := "is the server running, and does a firewall let the port through?"
		var dns *net.DNSError
		if errors.As(err, &dns) {
			cure = "the name does not resolve: check its spelling, or use an address"
		}
		add("server", CheckProblem, err.Error(), cure)
		return out
	}
	conn.Close()
	add("server", CheckOK, at.Host+" answers", "")
	client, err := a.clientOf(x)
	if err != nil {
		e := skerry.AsError(err)
		add("client", CheckProblem, e.Message, e.Hint)
		return out
	}
	defer client.Close()
	begin := time.Now()
	version, err := client.Version(ctx)
	if err != nil {
		e := skerry.AsError(err)
		add("certificate", CheckProblem, e.Message, e.Hint)
		return out
	}
	add("certificate", CheckOK, fmt.Sprintf("trusted; %s %s, version %s, answers in %s", version.Tier, version.Name, version.Version,
		time.Since(begin).Round(time.Millisecond)), "")
	if version.Version != a.opt.Version {
		add("version", CheckWarning, fmt.Sprintf("the server has %s, this program %s", version.Version, a.opt.Version),
			"use the same version; upgrade servers first")
	}
	if err := client.Ready(ctx); err != nil {
		add("ready", CheckProblem, skerry.AsError(err).Message, "see the server's log")
	} else {
		add("ready", CheckOK, "the server is ready", "")
	}
	w, err := client.Whoami(ctx)
	if err != nil {
		e := skerry.AsError(err)
		add("login", CheckProblem, e.Message, e.Hint)
		return out
	}
	add("login", CheckOK, "logged in as "+w.User, "")
	if check, ok := orphanCheck(ctx, client); ok {
		out = append(out, check)
	}
	return out
}
