package ctl

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
)

// loginFlags say where and as whom to log in.
type loginFlags struct {
	server, user, passwordFile, otp, pin, caFile, token string
	passwordStdin, trust, system, oidc                  bool
}

func (a *app) loginCommand() *cobra.Command {
	var flags loginFlags
	cmd := &cobra.Command{Use: "login [SERVER]", Short: "Log in to a root or a cluster", Args: cobra.MaximumNArgs(1),
		Long: `Log in to a root or a cluster and store the session in a context. SERVER is HOST, HOST:PORT or https://HOST:PORT; the
default is the context's server.

A server's certificate is issued by its own site's CA. The first login shows the CA's SHA-256, so that you can compare it
with the one in the server's log, and then remembers it. Pass it as --ca-pin for non-interactive logins.`,
		Example: "  skerry login root.example.com -u alice\n  skerry login --ca-pin sha256:… --password-file /run/secret -u ci root.example.com",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				flags.server = args[0]
			}
			return a.login(cmd, &flags)
		}}
	fs := cmd.Flags()
	fs.StringVar(&flags.server, "server", "", "server, instead of the argument")
	fs.StringVarP(&flags.user, "user", "u", "", "user (default: prompt)")
	fs.StringVar(&flags.passwordFile, "password-file", "", "file with the password")
	fs.BoolVar(&flags.passwordStdin, "password-stdin", false, "read the password from standard input")
	fs.StringVar(&flags.otp, "otp", "", "one-time code or recovery code, if you need one (default: $SKERRY_OTP, or prompt)")
	fs.BoolVar(&flags.oidc, "oidc", false, "log in by a browser, at the identity provider that the server names")
	fs.StringVar(&flags.token, "token", "", "store this access token instead of logging in with a password")
	fs.StringVar(&flags.pin, "ca-pin", "", "SHA-256 of the certificate authority, as sha256:HEX")
	fs.StringVar(&flags.caFile, "ca-file", "", "file with the certificate authority (PEM)")
	fs.BoolVar(&flags.trust, "trust", false, "trust the certificate authority that the server presents, without asking")
	fs.BoolVar(&flags.system, "system-ca", false, "trust the certificate authorities of this machine")
	return cmd
}

func (a *app) login(cmd *cobra.Command, flags *loginFlags) error {
	path, err := ConfigPath()
	if err != nil {
		return err
	}
	cfg, err := LoadConfig(path)
	if err != nil {
		return err
	}
	name := a.contextName
	if name == "" {
		name = os.Getenv("SKERRY_CONTEXT")
	}
	if name == "" && flags.server == "" {
		name = cfg.Current
	}
	old := cfg.Find(name)
	if flags.server == "" {
		if old == nil {
			return skerry.Errorf(skerry.CodeInvalid, "no server is given").WithHint("write `skerry login SERVER`")
		}
		flags.server = old.Server
	}
	server, err := serverURL(flags.server)
	if err != nil {
		return err
	}
	if name == "" {
		name = contextName(cfg, server)
		old = cfg.Find(name)
	}
	context := &Context{Name: name, Server: server, CAFile: flags.caFile, CAPin: flags.pin}
	if old != nil && old.Server == server {
		context.Namespace = old.Namespace
		if flags.pin == "" && flags.caFile == "" && !flags.system {
			context.CAPin, context.CAFile = old.CAPin, old.CAFile
		}
	}
	if err := trustServer(cmd, context, flags); err != nil {
		return err
	}
	// The context is there before the login, so that its tokens have a place; a failed login leaves the file as it was.
	draft := *context
	draft.Name = ""
	client, err := a.clientOf(&draft)
	if err != nil {
		return err
	}
	defer client.Close()
	if flags.token != "" {
		draft.Token, context.Token = flags.token, flags.token
		if client, err = a.clientOf(&draft); err != nil {
			return err
		}
		who, err := client.Whoami(cmd.Context())
		if err != nil {
			return err
		}
		context.User = who.User
	} else {
		t, err := loginWith(cmd, flags, client, old)
		if err != nil {
			return err
		}
		context.User, context.Access, context.Expires, context.Refresh = t.User, t.Access, t.Expires, t.Refresh
	}
	if err := UpdateConfig(path, func(c *Config) error { c.Put(context); c.Current = name; return nil }); err != nil {
		return err
	}
	v, err := client.Version(cmd.Context())
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "logged in to %s %s as %s; switched to context %s\n", v.Tier, v.Name, context.User, name)
	return nil
}

// loginWith logs in at the identity provider, or with a password and, where the user has them, a one-time code. old is the context of
// before, if there was one.
func loginWith(cmd *cobra.Command, f *loginFlags, c *api.Client, old *Context) (auth.Tokens, error) {
	if f.oidc {
		return loginAtProvider(cmd, c)
	}
	user, password, err := askLogin(cmd, f, old)
	if err != nil {
		return auth.Tokens{}, err
	}
	code := cmp.Or(f.otp, os.Getenv("SKERRY_OTP"))
	t, err := c.LoginWithCode(cmd.Context(), user, password, code)
	if auth.NeedsCode(err) && code == "" {
		if code, err = AskSecret(cmd, codePrompt); err != nil {
			return auth.Tokens{}, skerry.Errorf(skerry.CodeUnauthorized, "the login of %s needs a one-time code", user).
				WithHint("give it with --otp or in SKERRY_OTP")
		}
		t, err = c.LoginWithCode(cmd.Context(), user, password, code)
	}
	t.User = user
	return t, err
}

// contextName makes a name for a server: the one of a context that has it, else its host.
func contextName(cfg *Config, server string) string {
	for _, x := range cfg.Contexts {
		if x.Server == server {
			return x.Name
		}
	}
	u, _ := url.Parse(server)
	name := u.Hostname()
	if y := cfg.Find(name); y != nil && u.Port() != "" {
		name += "-" + u.Port()
	}
	return name
}

// trustServer finds out whose certificates to trust for a context.
func trustServer(cmd *cobra.Command, server *Context, flags *loginFlags) error {
	if server.CAPin != "" || server.CAFile != "" || flags.system || strings.HasPrefix(server.Server, "http://") {
		return nil
	}
	pin, err := api.FetchPin(cmd.Context(), server.Server)
	if err != nil {
		return err
	}
	if !flags.trust {
		in, ok := cmd.InOrStdin().(*os.File)
		if !ok || !term.IsTerminal(int(in.Fd())) || flags.passwordStdin {
			return skerry.Errorf(skerry.CodeUnauthorized, "the certificate authority of %s is not known yet: %s", server.Server, pin).
				WithHint("compare it with the one in the server's log, then log in with --ca-pin %s", pin)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "The certificate authority of %s is not known yet:\n  %s\nCompare it with the one in the server's log. Trust it? (yes/no) ", server.Server, pin)
		line, err := readLine(in)
		if err != nil {
			return err
		}
		if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(line))) {
			return skerry.Errorf(skerry.CodeUnauthorized, "the server is not trusted")
		}
	}
	server.CAPin = pin
	return nil
}

func askLogin(cmd *cobra.Command, flags *loginFlags, old *Context) (user, password string, err error) {
	user = flags.user
	if user == "" && old != nil {
		user = old.User
	}
	if user == "" {
		if in, ok := cmd.InOrStdin().(*os.File); !ok || !term.IsTerminal(int(in.Fd())) {
			return "", "", skerry.Errorf(skerry.CodeInvalid, "no user is given").WithHint("name one with --user")
		}
		fmt.Fprint(cmd.ErrOrStderr(), "User: ")
		if user, err = readLine(cmd.InOrStdin()); err != nil {
			return "", "", err
		}
	}
	switch {
	case flags.passwordFile != "":
		b, err := os.ReadFile(flags.passwordFile)
		return user, strings.TrimRight(string(b), "\r\n"), err
	case flags.passwordStdin:
		password, err = readLine(cmd.InOrStdin())
	case os.Getenv("SKERRY_PASSWORD") != "":
		password = os.Getenv("SKERRY_PASSWORD")
	default:
		password, err = AskSecret(cmd, "Password of "+user+": ")
	}
	return user, password, err
}

func (a *app) logoutCommand() *cobra.Command {
	return &cobra.Command{Use: "logout", Short: "Log out and end the session", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := a.chosen()
			if err != nil {
				return err
			}
			client, err := a.clientOf(server)
			if err != nil {
				return err
			}
			defer client.Close()
			if server.Token == "" {
				if err := client.Logout(cmd.Context()); err != nil {
					return err
				}
			}
			path, err := ConfigPath()
			if err != nil {
				return err
			}
			err = UpdateConfig(path, func(c *Config) error {
				if y := c.Find(server.Name); y != nil {
					y.Access, y.Refresh, y.Token, y.Expires = "", "", "", time.Time{}
				}
				return nil
			})
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "logged out of %s\n", server.Server)
			}
			return err
		}}
}

func (a *app) whoamiCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{Use: "whoami", Short: "Show the current user, server and permissions", Args: cobra.NoArgs,
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, _ []string) error {
			w, err := client.Whoami(cmd.Context())
			if err != nil {
				return err
			}
			if done, err := printValue(cmd.OutOrStdout(), format, w); done {
				return err
			}
			var grants, scopes []string
			for _, g := range w.Grants {
				grants = append(grants, g.String())
			}
			for _, s := range w.Scopes {
				scopes = append(scopes, string(s))
			}
			p := newPairs(cmd.OutOrStdout())
			p.add("User", w.User)
			p.add("Access token", w.Token)
			p.add("Server", client.Server())
			p.add("Site", string(w.Tier)+" "+w.Site)
			p.add("Grants", strings.Join(grants, ", "))
			p.add("Scopes", strings.Join(scopes, ", "))
			return p.flush()
		})}
	outputFlag(cmd, &format)
	return cmd
}

func (a *app) passwdCommand() *cobra.Command {
	return &cobra.Command{Use: "passwd", Short: "Change your password; your other sessions end", Args: cobra.NoArgs,
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, _ []string) error {
			old, err := AskSecret(cmd, "Current password: ")
			if err != nil {
				return err
			}
			next, err := askNew(cmd)
			if err != nil {
				return err
			}
			if err := c.ChangePassword(cmd.Context(), old, next); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "the password is changed")
			return nil
		})}
}

// askNew asks for a new password, twice on a terminal.
func askNew(cmd *cobra.Command) (string, error) {
	p, err := AskSecret(cmd, "New password: ")
	if err != nil {
		return "", err
	}
	if f, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		again, err := AskSecret(cmd, "Repeat it: ")
		if err != nil {
			return "", err
		}
		if again != p {
			return "", skerry.Errorf(skerry.CodeInvalid, "the passwords do not match")
		}
	}
	return p, nil
}

func (a *app) versionCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{Use: "version", Short: "Show the version of this program and of the server", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := struct {
				Client string       `json:"client"`
				Server *api.Version `json:"server,omitempty"`
			}{Client: a.opt.Version}
			var why error
			if _, err := a.chosen(); err == nil {
				c, err := a.client()
				if err != nil {
					return err
				}
				defer c.Close()
				ctx, cancel := context.WithTimeout(cmd.Context(), serverWait)
				defer cancel()
				v, err := c.Version(ctx)
				if why = err; err == nil {
					out.Server = &v
				}
			}
			if done, err := printValue(cmd.OutOrStdout(), format, out); done {
				return err
			}
			p := newPairs(cmd.OutOrStdout())
			p.add("Client", out.Client)
			if out.Server != nil {
				p.add("Server", fmt.Sprintf("%s (%s %s)", out.Server.Version, out.Server.Tier, out.Server.Name))
			} else if why != nil {
				p.add("Server", "not reachable")
			}
			return p.flush()
		}}
	outputFlag(cmd, &format)
	return cmd
}
