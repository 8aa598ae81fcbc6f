package ctl

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
)

// listOf makes a command that lists a kind.
func (a *app) listOf(kind, short string) *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: short, Args: cobra.NoArgs,
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, _ []string) error { return a.get(cmd, c, &f, []string{kind}) })}
	outputFlag(cmd, &f.output)
	return cmd
}

// removeOf makes a command that deletes things of a kind.
func (a *app) removeOf(kind, use, short string) *cobra.Command {
	r, _ := findResource(kind)
	return &cobra.Command{Use: use, Aliases: []string{"rm"}, Short: short, Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeKind(kind),
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			var errs []error
			for _, name := range args {
				if _, _, err := a.remove(cmd.Context(), c, r, name, false, false); err != nil {
					errs = append(errs, err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s/%s deleted\n", r.singular(), name)
			}
			return joinErrors(cmd, errs)
		})}
}

// passwordFlags say where a new user's password comes from.
type passwordFlags struct {
	file  string
	stdin bool
}

func (f *passwordFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "password-file", "", "file with the password")
	cmd.Flags().BoolVar(&f.stdin, "password-stdin", false, "read the password from standard input")
}

func (f *passwordFlags) get(cmd *cobra.Command) (string, error) {
	switch {
	case f.file != "":
		b, err := os.ReadFile(f.file)
		return strings.TrimRight(string(b), "\r\n"), err
	case f.stdin:
		return readLine(cmd.InOrStdin())
	}
	return askNew(cmd)
}

func parseGrants(list []string) ([]auth.Grant, error) {
	out := []auth.Grant{}
	for _, s := range list {
		g, err := auth.ParseGrant(s)
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

const grantHelp = `A grant is ROLE:ORGANISATION or ROLE:ORGANISATION:CLUSTER. * means all organisations, and resources without one, such as
workers. Without a cluster, the grant applies to all clusters. Roles are admin, operator, developer and viewer.`

func (a *app) userCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "user", Short: "Manage users and their permissions"}
	var pw passwordFlags
	var grants []string
	create := &cobra.Command{Use: "create NAME", Short: "Create a user", Args: cobra.ExactArgs(1), Long: "Create a user.\n\n" + grantHelp,
		Example: "  skerry user create alice --grant developer:shop --password-file alice.txt",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			list, err := parseGrants(grants)
			if err != nil {
				return err
			}
			p, err := pw.get(cmd)
			if err != nil {
				return err
			}
			u, err := c.CreateUser(cmd.Context(), args[0], p, list)
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "user/%s created\n", u.Name)
			}
			return err
		})}
	pw.add(create)
	create.Flags().StringSliceVar(&grants, "grant", nil, "grant; may be repeated")
	change := func(use, short string, edit func(u *auth.User, args []string) (api.UserPatch, error), min int) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: cobra.MinimumNArgs(min), ValidArgsFunction: a.completeKind("user"),
			RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
				u, err := c.User(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				p, err := edit(&u, args[1:])
				if err != nil {
					return err
				}
				if _, err = c.ChangeUser(cmd.Context(), args[0], p); err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "user/%s changed\n", args[0])
				}
				return err
			})}
	}
	grant := change("grant NAME GRANT...", "Add grants to a user", func(u *auth.User, args []string) (api.UserPatch, error) {
		more, err := parseGrants(args)
		list := append(u.Grants, more...)
		return api.UserPatch{Grants: &list}, err
	}, 2)
	grant.Long = "Add grants to a user.\n\n" + grantHelp
	revoke := change("revoke NAME GRANT...", "Revoke grants of a user", func(u *auth.User, args []string) (api.UserPatch, error) {
		less, err := parseGrants(args)
		list := []auth.Grant{}
		for _, g := range u.Grants {
			keep := true
			for _, h := range less {
				keep = keep && g != h
			}
			if keep {
				list = append(list, g)
			}
		}
		if err == nil && len(list) == len(u.Grants) {
			err = skerry.Errorf(skerry.CodeNotFound, "user %s has none of these grants", u.Name).
				WithHint("`skerry get user %s` lists the user's grants", u.Name)
		}
		return api.UserPatch{Grants: &list}, err
	}, 2)
	off := change("disable NAME", "Disable a user and end all of the user's sessions", func(*auth.User, []string) (api.UserPatch, error) {
		yes := true
		return api.UserPatch{Disabled: &yes}, nil
	}, 1)
	on := change("enable NAME", "Enable a disabled user", func(*auth.User, []string) (api.UserPatch, error) {
		no := false
		return api.UserPatch{Disabled: &no}, nil
	}, 1)
	var setPW passwordFlags
	set := &cobra.Command{Use: "password NAME", Short: "Set a user's password and end all of the user's sessions", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeKind("user"),
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			p, err := setPW.get(cmd)
			if err != nil {
				return err
			}
			if _, err = c.ChangeUser(cmd.Context(), args[0], api.UserPatch{Password: &p}); err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "user/%s changed\n", args[0])
			}
			return err
		})}
	setPW.add(set)
	cmd.AddCommand(create, a.listOf("users", "List the users"), grant, revoke, off, on, set, a.resetTOTPCommand(),
		a.removeOf("user", "delete NAME...", "Remove users"))
	return cmd
}

// quotaFlags are those of a quota.
type quotaFlags struct {
	cpu, memory, storage, pushed, definitions string
	instances, addresses                      int
}

func (f *quotaFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.cpu, "cpu", "", "total cores of all instances; 0 means unlimited")
	cmd.Flags().StringVar(&f.memory, "memory", "", "total memory of all instances, such as 4Gi; 0 means unlimited")
	cmd.Flags().StringVar(&f.storage, "storage", "", "total storage of all instances; 0 means unlimited")
	cmd.Flags().StringVar(&f.pushed, "pushed", "", "size of images in the built-in registry, such as 100Gi; 0 means 16Gi")
	cmd.Flags().StringVar(&f.definitions, "definitions", "",
		"size of applications, with their earlier versions, and secrets in the server's store, such as 64Mi; 0 means 1Gi")
	cmd.Flags().IntVar(&f.instances, "instances", 0, "number of instances; 0 means unlimited")
	cmd.Flags().IntVar(&f.addresses, "service-addresses", 0,
		"number of service addresses, three for each service and one for each of its numbered instances; 0 means unlimited")
}

// apply changes a quota by the flags that were given.
func (f *quotaFlags) apply(cmd *cobra.Command, q *apps.Quota) error {
	var err error
	bad := func(flag string, err error) error { return skerry.Errorf(skerry.CodeInvalid, "--%s: %w", flag, err) }
	if f.cpu != "" {
		if q.CPU, err = skerry.ParseMilliCPU(f.cpu); err != nil {
			return bad("cpu", err)
		}
	}
	if f.memory != "" {
		if q.Memory, err = skerry.ParseBytes(f.memory); err != nil {
			return bad("memory", err)
		}
	}
	if f.storage != "" {
		if q.Storage, err = skerry.ParseBytes(f.storage); err != nil {
			return bad("storage", err)
		}
	}
	if f.pushed != "" {
		if q.Pushed, err = skerry.ParseBytes(f.pushed); err != nil {
			return bad("pushed", err)
		}
	}
	if f.definitions != "" {
		if q.Definitions, err = skerry.ParseBytes(f.definitions); err != nil {
			return bad("definitions", err)
		}
	}
	if cmd.Flags().Changed("instances") {
		if q.Instances = f.instances; f.instances < 0 {
			return bad("instances", fmt.Errorf("%d is negative", f.instances))
		}
	}
	if cmd.Flags().Changed("service-addresses") {
		if q.ServiceAddresses = f.addresses; f.addresses < 0 {
			return bad("service-addresses", fmt.Errorf("%d is negative", f.addresses))
		}
	}
	return nil
}

func (a *app) orgCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "org", Aliases: []string{"organisation"}, Short: "Manage organisations and their quotas"}
	var q quotaFlags
	create := &cobra.Command{Use: "create NAME", Short: "Create an organisation", Args: cobra.ExactArgs(1),
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			o := apps.Org{Name: args[0]}
			if err := q.apply(cmd, &o.Quota); err != nil {
				return err
			}
			if _, err := client.CreateOrg(cmd.Context(), o); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "org/%s created; give it a namespace with `skerry namespace create NAME --org %s`\n", o.Name, o.Name)
			return nil
		})}
	q.add(create)
	var change quotaFlags
	quota := &cobra.Command{Use: "quota NAME", Short: "Show or change an organisation's quota", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeKind("org"),
		Example:           "  skerry org quota shop --cpu 8 --memory 16Gi",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			if cmd.Flags().NFlag() == 0 {
				return a.get(cmd, client, &getFlags{output: formatWide}, []string{"org", args[0]})
			}
			list, err := client.Orgs(cmd.Context())
			if err != nil {
				return err
			}
			for _, o := range list {
				if o.Name != args[0] {
					continue
				}
				if err := change.apply(cmd, &o.Quota); err != nil {
					return err
				}
				if _, err := client.SetQuota(cmd.Context(), o.Name, o.Quota); err != nil {
					return err
				}
				return a.get(cmd, client, &getFlags{output: formatWide}, []string{"org", o.Name})
			}
			return skerry.Errorf(skerry.CodeNotFound, "there is no organisation %q", args[0]).WithHint("`skerry org list` shows them")
		})}
	change.add(quota)
	cmd.AddCommand(create, a.listOf("orgs", "List the organisations and their usage"), quota,
		a.removeOf("org", "delete NAME...", "Remove organisations without namespaces"))
	return cmd
}

func (a *app) namespaceCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "namespace", Aliases: []string{"ns"}, Short: "Manage namespaces"}
	org := "default"
	create := &cobra.Command{Use: "create NAME", Short: "Create a namespace for an organisation", Args: cobra.ExactArgs(1),
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			if _, err := c.CreateNamespace(cmd.Context(), apps.Namespace{Name: args[0], Org: org}); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "namespace/%s created\n", args[0])
			return nil
		})}
	create.Flags().StringVar(&org, "org", org, "organisation that owns it")
	use := &cobra.Command{Use: "use NAME", Short: "Switch to a namespace in this context", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeKind("namespace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := a.chosen()
			if err != nil {
				return err
			}
			return editConfig(func(c *Config) error {
				y := c.Find(x.Name)
				if y == nil {
					return noContext(x.Name)
				}
				y.Namespace = args[0]
				fmt.Fprintf(cmd.OutOrStdout(), "switched to namespace %s\n", args[0])
				return nil
			})
		}}
	cmd.AddCommand(create, a.listOf("namespaces", "List the namespaces"), use,
		a.removeOf("namespace", "delete NAME...", "Remove empty namespaces"))
	return cmd
}

func (a *app) accessTokenCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "access-token", Short: "Manage access tokens, with which programs act as you"}
	var req api.AccessTokenRequest
	var ttl time.Duration
	var scopes []string
	create := &cobra.Command{Use: "create NAME", Short: "Create an access token, which is shown once", Args: cobra.ExactArgs(1),
		Example: "  SKERRY_TOKEN=$(skerry access-token create ci --scope apps:write --scope apps:read --ttl 90d)",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			req.Name, req.TTL = args[0], spec.Duration(ttl)
			for _, s := range scopes {
				req.Scopes = append(req.Scopes, auth.Scope(s))
			}
			t, err := c.CreateAccessToken(cmd.Context(), req)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), t.Text)
			fmt.Fprintln(cmd.ErrOrStderr(), "store it now: it is not shown again. Use it as SKERRY_TOKEN or with `skerry login --token`")
			return nil
		})}
	create.Flags().Var(spanValue{&ttl}, "ttl", "lifetime, such as 90d (default: until deleted)")
	create.Flags().StringSliceVar(&scopes, "scope", nil, "limit the token to this scope; may be repeated (skerry whoami lists yours)")
	create.Flags().StringVar(&req.User, "for", "", "create it for another user")
	cmd.AddCommand(create, a.listOf("access-tokens", "List your access tokens"),
		a.removeOf("access-token", "delete ID|NAME...", "Delete access tokens"))
	return cmd
}

func (a *app) memberCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "member", Short: "Manage enrolled clusters or workers"}
	var reason string
	revoke := &cobra.Command{Use: "revoke NAME", Short: "Permanently revoke a member's key and close its connection",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeKind("member"),
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			if err := c.RevokeMember(cmd.Context(), args[0], reason); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "member/%s is revoked; it needs a new token to join again\n", args[0])
			return nil
		})}
	revoke.Flags().StringVar(&reason, "reason", "", "reason, for the record")
	release := &cobra.Command{Use: "release NAME", Short: "End a member's quarantine after its copy is removed", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeKind("member"),
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			if err := c.ReleaseMember(cmd.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "member/%s is released\n", args[0])
			return nil
		})}
	cmd.AddCommand(a.listOf("members", "List the members"), revoke, release)
	return cmd
}

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Check the audit log"}
	var since string
	verify := &cobra.Command{Use: "verify", Short: "Check that no audit record was changed or removed", Args: cobra.NoArgs,
		Long: `Check that no audit record was changed or removed. Each record contains the hash of the one before it. The last line
names the newest record and its hash: keep it elsewhere, and name it with --since next time. Without that, whoever can
write the role's store could have written another log; with it, only records after the mark. That the oldest records are
gone is no fault, because they are dropped by age and number. The status is 1 if something is wrong.`,
		Example: `  skerry audit verify | tee marks
  skerry audit verify --since "$(tail -n 1 marks)" | tee -a marks`,
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, _ []string) error {
			report, err := client.VerifyAudit(cmd.Context(), since)
			if err != nil {
				return err
			}
			if len(report.Faults) > 0 {
				return skerry.Errorf(skerry.CodeConflict, "the audit log is not as it was written: %s", strings.Join(report.Faults, "; ")).
					WithHint("compare it with the log of the role, which has each record that was dropped or could not be kept")
			}
			out := cmd.ErrOrStderr()
			switch {
			case report.Records == 0:
				fmt.Fprintln(out, "there are no audit records")
				return nil
			case report.Chained == 0:
				fmt.Fprintf(out, "%d records from %d on, none of them chained yet\n", report.Records, report.First)
			case report.Chained > report.First+1:
				fmt.Fprintf(out, "%d records from %d on; those from %d on are unchanged, older ones are not chained\n", report.Records, report.First,
					report.Chained-1)
			default:
				fmt.Fprintf(out, "%d records from %d on are unchanged\n", report.Records, report.First)
			}
			fmt.Fprintln(cmd.OutOrStdout(), report.Head)
			return nil
		})}
	verify.Flags().StringVar(&since, "since", "", "SEQ:HASH as an earlier run printed it: that record must still be there, unchanged")
	cmd.AddCommand(verify)
	return cmd
}
