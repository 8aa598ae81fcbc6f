package ctl

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TokenRequest asks for a join token.
type TokenRequest struct {
	Role    wire.Tier     `json:"role"`
	Name    string        `json:"name,omitempty"`
	TTL     spec.Duration `json:"ttl,omitempty"`
	Replace bool          `json:"replace,omitempty"`
}

// Token is a join token with its text, which is shown once.
type Token struct {
	Token   string    `json:"token"`
	ID      string    `json:"id"`
	Expires time.Time `json:"expires"`
}

func (a *app) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Create and delete join tokens for clusters and workers"}
	cmd.AddCommand(a.tokenCreate(), a.listOf("tokens", "List the tokens"),
		a.removeOf("token", "delete ID...", "Delete tokens; members that joined with one stay"))
	return cmd
}

func (a *app) tokenCreate() *cobra.Command {
	var req TokenRequest
	var role, data string
	var ttl time.Duration
	cmd := &cobra.Command{Use: "create", Short: "Create a one-time join token for a cluster or a worker", Args: cobra.NoArgs,
		Long: `Create a one-time token with which a cluster joins the root or a worker joins its cluster. The token is written to standard
output and not shown again.

With --data, the role on this machine creates the token. This needs access to its data directory, but no login. Otherwise
the context's server creates it.`,
		Example: "  skerry token create --role cluster --name harbour\n  skerry token create --role worker --data /var/lib/skerry/cluster",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch req.Role = wire.Tier(role); req.Role {
			case wire.TierCluster, wire.TierWorker, wire.TierSuccessor:
			case "":
				return skerry.Errorf(skerry.CodeInvalid, "--role is missing").WithHint("use --role cluster at the root, --role worker at a cluster")
			default:
				return skerry.Errorf(skerry.CodeInvalid, "--role %q cannot join", role).WithHint("use cluster, worker or successor")
			}
			req.TTL = spec.Duration(ttl)
			t, err := a.makeToken(cmd, data, req)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), t.Token)
			fmt.Fprintf(cmd.ErrOrStderr(), "valid for one %s until %s\n", req.Role, t.Expires.Local().Format(time.DateTime))
			return nil
		}}
	cmd.Flags().StringVar(&role, "role", "", "cluster at the root; worker or successor at a cluster")
	cmd.Flags().StringVar(&req.Name, "name", "", "bind the token to this name")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "time within which it must be used (default 1h)")
	cmd.Flags().BoolVar(&req.Replace, "replace", false, "allow a reinstalled device to take over the name of an enrolled one")
	cmd.Flags().StringVar(&data, "data", "", "data directory of a role that runs on this machine")
	return cmd
}

// makeToken asks the role on this machine, or the server of the context.
func (a *app) makeToken(cmd *cobra.Command, data string, q TokenRequest) (Token, error) {
	if data != "" {
		return a.opt.LocalToken(cmd.Context(), data, q)
	}
	c, err := a.client()
	if err != nil {
		return Token{}, err
	}
	defer c.Close()
	t, err := c.CreateJoinToken(cmd.Context(), api.JoinTokenRequest{Role: q.Role, Name: q.Name, TTL: q.TTL, Replace: q.Replace})
	return Token{Token: t.Text, ID: t.ID, Expires: t.Expires}, err
}
