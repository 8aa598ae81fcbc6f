package ctl

import (
	"context"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
)

// defaultPort is the root's.
const defaultPort = "7480"

// serverURL completes what a user types as a server: the scheme and the port may be left out.
func serverURL(s string) (string, error) {
	if !strings.Contains(s, "://") {
		s = "https://" + s
	}
	u, err := url.Parse(strings.TrimSuffix(s, "/"))
	if err != nil || u.Hostname() == "" {
		return "", skerry.Errorf(skerry.CodeInvalid, "%q is not the address of a server",
			s).WithHint("write HOST, HOST:PORT or https://HOST:PORT")
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), defaultPort)
	}
	return u.String(), nil
}

// clientOf makes the client of a context.
func (a *app) clientOf(x *Context) (*api.Client, error) {
	server, err := serverURL(x.Server)
	if err != nil {
		return nil, err
	}
	o := api.ClientOptions{Server: server, Pin: x.CAPin, Bearer: x.Token, Agent: "skerry/" + a.opt.Version, Cluster: a.cluster}
	if x.CAFile != "" {
		pem, err := os.ReadFile(x.CAFile)
		if err != nil {
			return nil, err
		}
		if o.Roots = x509.NewCertPool(); !o.Roots.AppendCertsFromPEM(pem) {
			return nil, skerry.Errorf(skerry.CodeInvalid, "%s holds no certificate in PEM form", x.CAFile)
		}
	}
	if x.Name != "" {
		o.Tokens = tokenStore{x.Name}
	}
	return api.NewClient(o)
}

// client makes the client of the chosen context.
func (a *app) client() (*api.Client, error) {
	if a.local != nil {
		return a.local()
	}
	x, err := a.chosen()
	if err != nil {
		return nil, err
	}
	return a.clientOf(x)
}

// tokenStore keeps the tokens of a login in the configuration.
type tokenStore struct{ context string }

func (t tokenStore) Load() (auth.Tokens, error) {
	path, err := ConfigPath()
	if err != nil {
		return auth.Tokens{}, err
	}
	c, err := LoadConfig(path)
	if err != nil {
		return auth.Tokens{}, err
	}
	if x := c.Find(t.context); x != nil {
		return auth.Tokens{Access: x.Access, Expires: x.Expires, Refresh: x.Refresh, User: x.User}, nil
	}
	return auth.Tokens{}, nil
}

func (t tokenStore) Save(tok auth.Tokens) error {
	path, err := ConfigPath()
	if err != nil {
		return err
	}
	return UpdateConfig(path, func(c *Config) error {
		x := c.Find(t.context)
		if x == nil {
			return skerry.Errorf(skerry.CodeNotFound, "context %q was removed meanwhile", t.context)
		}
		x.Access, x.Expires, x.Refresh = tok.Access, tok.Expires, tok.Refresh
		if tok.User != "" {
			x.User = tok.User
		}
		return nil
	})
}

// run makes the function of a command that needs a client.
func (a *app) run(fn func(cmd *cobra.Command, c *api.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		defer c.Close()
		return fn(cmd, c, args)
	}
}

// interrupted tells whether a command ended because the user wanted it to.
func interrupted(ctx context.Context) bool { return ctx.Err() != nil }
