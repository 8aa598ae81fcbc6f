package ctl

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
)

func (a *app) secretCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "secret", Short: "Manage secrets, such as passwords and keys of services",
		Long: `Manage secrets. A secret is one or more small files. A manifest lists it under secrets; its files then appear in the containers
in /run/secrets/NAME, in memory. They are encrypted for each machine that holds them. Nobody can read them back, not even
their author.`}
	var flags secretFlags
	create := &cobra.Command{Use: "create NAME", Short: "Create a secret", Args: cobra.ExactArgs(1),
		Example: `  skerry secret create db --from-file password.txt
  openssl rand -base64 24 | skerry secret create db --from-file password=-
  skerry secret create tls --from-file cert.pem --from-file key.pem=/etc/ssl/private/shop.pem`,
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			v, err := flags.value(cmd.InOrStdin())
			if err != nil {
				return err
			}
			got, err := c.PutSecret(cmd.Context(), a.namespace(), args[0], false, v)
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "secret/%s created, version %d\n", got.Name, got.Version)
			}
			return err
		})}
	rotate := &cobra.Command{Use: "rotate NAME", Short: "Store a new version of a secret and update the services that use it",
		Args: cobra.ExactArgs(1),
		Long: `Store a new version of a secret, with all of its files. Services that name no version get it by a normal update, with canary
and waves; a service waits for those that it links to. Jobs keep the version they were applied with, and services that name a version keep it.`,
		Example: "  skerry secret rotate db --from-file password.txt",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			v, err := flags.value(cmd.InOrStdin())
			if err != nil {
				return err
			}
			got, err := c.PutSecret(cmd.Context(), a.namespace(), args[0], true, v)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "secret/%s rotated, version %d\n", got.Name, got.Version)
			if len(got.UsedBy) > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "used by: %s\n", strings.Join(got.UsedBy, ", "))
			}
			return nil
		})}
	for _, c := range []*cobra.Command{create, rotate} {
		c.Flags().StringArrayVar(&flags.files, "from-file", nil,
			"[NAME=]FILE: a file of the secret, optionally under another name; NAME=- reads standard input; may be repeated")
		c.Flags().StringArrayVar(&flags.literals, "from-literal", nil,
			"NAME=VALUE: a file with this content, visible in the process list and the shell's history; may be repeated")
	}
	var listing getFlags
	ls := &cobra.Command{Use: "ls [NAME...]", Aliases: []string{"list", "get"}, Short: "List secrets, without their content",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			return a.get(cmd, c, &listing, append([]string{"secret"}, args...))
		})}
	outputFlag(ls, &listing.output)
	ls.Flags().BoolVarP(&listing.all, "all-namespaces", "A", false, "in all namespaces")
	rm := &cobra.Command{Use: "rm NAME...", Aliases: []string{"delete"}, Short: "Remove secrets that no service uses",
		Args: cobra.MinimumNArgs(1),
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			var errs []error
			for _, name := range args {
				if err := c.DeleteSecret(cmd.Context(), a.namespace(), name); err != nil {
					errs = append(errs, err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "secret/%s removed\n", name)
			}
			return joinErrors(cmd, errs)
		})}
	cmd.AddCommand(create, ls, rotate, a.secretUndo(), rm)
	return cmd
}

func (a *app) secretUndo() *cobra.Command {
	var to int
	cmd := &cobra.Command{Use: "undo NAME", Short: "Use an earlier version of a secret again, and update the services that use it",
		Args: cobra.ExactArgs(1),
		Long: `Use an earlier version of a secret again: the one before the version in use, or the one that --to names. Services that name no
version get it at once, without canary and waves; a service waits for those that it links to. It stays in use, also for
manifests that are applied again, until somebody rotates the secret or names another version with --to.`,
		Example: `  skerry secret undo db
  skerry secret undo db --to 3`,
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			if to < 0 {
				return skerry.Errorf(skerry.CodeInvalid, "--to %d is not a version; the first one is 1", to)
			}
			got, err := c.UndoSecret(cmd.Context(), a.namespace(), args[0], to)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "secret/%s uses version %d\n", got.Name, got.Version)
			if len(got.UsedBy) > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "used by: %s\n", strings.Join(got.UsedBy, ", "))
			}
			return nil
		})}
	cmd.Flags().IntVar(&to, "to", 0, "the version to use; 0: the one before the version in use")
	return cmd
}

// secretFlags say what a secret is to hold.
type secretFlags struct{ files, literals []string }

// value reads it. Its errors never tell of a value, also not of one in the wrong place.
func (f *secretFlags) value(stdin io.Reader) (spec.SecretValue, error) {
	out := spec.SecretValue{}
	put := func(name string, data []byte) error {
		if _, twice := out[name]; twice {
			return skerry.Errorf(skerry.CodeInvalid, "file %q of the secret is given twice", name)
		}
		out[name] = data
		return nil
	}
	for _, s := range f.files {
		name, path, named := strings.Cut(s, "=")
		if !named {
			name, path = filepath.Base(s), s
		}
		var data []byte
		var err error
		switch {
		case path == "-" && !named:
			err = skerry.Errorf(skerry.CodeInvalid, "standard input has no name").WithHint("write --from-file NAME=-")
		case path == "-":
			data, err = io.ReadAll(io.LimitReader(stdin, spec.MaxSecretBytes+1))
		default:
			data, err = readSecretFile(path)
		}
		if err == nil {
			err = put(name, data)
		}
		if err != nil {
			return nil, err
		}
	}
	for n, s := range f.literals {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--from-literal number %d is not NAME=VALUE", n+1)
		}
		if err := put(name, []byte(value)); err != nil {
			return nil, err
		}
	}
	if len(out) == 0 {
		return nil, skerry.Errorf(skerry.CodeInvalid, "the secret has no content").
			WithHint("give --from-file FILE, or --from-file NAME=- for standard input")
	}
	return out, out.Check()
}

// readSecretFile reads no more of a file than a secret may have.
func readSecretFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--from-file: %w", err)
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, spec.MaxSecretBytes+1))
}

func listSecrets(ctx context.Context, client *api.Client, query listQuery) ([]item, error) {
	spaces := []string{query.namespace}
	if query.namespace == "" {
		list, err := client.Namespaces(ctx)
		if err != nil {
			return nil, err
		}
		spaces = spaces[:0]
		for _, n := range list {
			spaces = append(spaces, n.Name)
		}
	}
	var out []item
	for _, ns := range spaces {
		list, err := client.Secrets(ctx, ns)
		if err != nil {
			return nil, err
		}
		for _, v := range list {
			name := query.showKey(skerry.AppKey{Namespace: v.Namespace, Name: v.Name})
			out = append(out, item{name: name, value: v, cells: []string{name, strconv.Itoa(v.Version), strings.Join(v.Files, ","),
				skerry.Bytes(v.Size).String(), orNone(v.UsedBy), age(query.now, v.UpdatedAt)},
				wide: []string{v.Author, strconv.Itoa(len(v.Versions))}})
		}
	}
	return out, nil
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ",")
}
