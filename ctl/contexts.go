package ctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

func (a *app) contextCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "context", Aliases: []string{"ctx"}, Short: "Manage contexts: the servers that you use"}
	cmd.AddCommand(a.contextList(), a.contextUse(), a.contextAdd(), a.contextRemove())
	return cmd
}

// shownContext is a context without its secrets.
type shownContext struct {
	Name      string `json:"name"`
	Current   bool   `json:"current"`
	Server    string `json:"server"`
	CAPin     string `json:"caPin,omitempty"`
	User      string `json:"user,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	LoggedIn  bool   `json:"loggedIn"`
}

func (a *app) contextList() *cobra.Command {
	var format string
	cmd := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List the contexts", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := ConfigPath()
			if err != nil {
				return err
			}
			c, err := LoadConfig(path)
			if err != nil {
				return err
			}
			t := table{head: []string{"CURRENT", "NAME", "SERVER", "USER", "NAMESPACE", "LOGIN"}, wide: []string{"CA-PIN"}}
			list := []shownContext{}
			for _, x := range c.Contexts {
				s := shownContext{x.Name, x.Name == c.Current, x.Server, x.CAPin, x.User, x.Namespace, x.Refresh != "" || x.Token != ""}
				list = append(list, s)
				t.add("context/"+x.Name, []string{map[bool]string{true: "*"}[s.Current], s.Name, s.Server, s.User, s.Namespace,
					map[bool]string{true: "yes", false: "no"}[s.LoggedIn]}, s.CAPin)
			}
			return printList(cmd, format, list, &t)
		}}
	outputFlag(cmd, &format)
	return cmd
}

func (a *app) contextUse() *cobra.Command {
	return &cobra.Command{Use: "use NAME", Short: "Switch to a context", Args: cobra.ExactArgs(1), ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			return editConfig(func(c *Config) error {
				if c.Find(args[0]) == nil {
					return noContext(args[0])
				}
				c.Current = args[0]
				fmt.Fprintf(cmd.OutOrStdout(), "switched to context %s\n", args[0])
				return nil
			})
		}}
}

func noContext(name string) error {
	return skerry.Errorf(skerry.CodeNotFound, "there is no context %q", name).WithHint("`skerry context list` lists them")
}

func (a *app) contextAdd() *cobra.Command {
	var context Context
	cmd := &cobra.Command{Use: "add NAME --server SERVER", Short: "Add or change a context", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return editConfig(func(conf *Config) error {
				other := conf.Find(args[0])
				if other == nil {
					if context.Server == "" {
						return skerry.Errorf(skerry.CodeInvalid, "--server is missing")
					}
					other = &Context{Name: args[0]}
					conf.Put(other)
				}
				if context.Server != "" {
					s, err := serverURL(context.Server)
					if err != nil {
						return err
					}
					if s != other.Server { // tokens are for one server only
						*other = Context{Name: other.Name, Namespace: other.Namespace}
					}
					other.Server = s
				}
				set := func(flag string, to *string, v string) {
					if cmd.Flags().Changed(flag) {
						*to = v
					}
				}
				set("ca-pin", &other.CAPin, context.CAPin)
				set("ca-file", &other.CAFile, context.CAFile)
				set("default-namespace", &other.Namespace, context.Namespace)
				if conf.Current == "" {
					conf.Current = other.Name
				}
				fmt.Fprintf(cmd.OutOrStdout(), "context %s is saved\n", other.Name)
				return nil
			})
		}}
	cmd.Flags().StringVar(&context.Server, "server", "", "HOST, HOST:PORT or https://HOST:PORT")
	cmd.Flags().StringVar(&context.CAPin, "ca-pin", "", "SHA-256 of the server's certificate authority, as sha256:HEX")
	cmd.Flags().StringVar(&context.CAFile, "ca-file", "", "file with the server's certificate authority (PEM)")
	cmd.Flags().StringVar(&context.Namespace, "default-namespace", "", "default namespace")
	return cmd
}

func (a *app) contextRemove() *cobra.Command {
	return &cobra.Command{Use: "remove NAME", Aliases: []string{"rm"}, Short: "Remove a context and its login", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			return editConfig(func(c *Config) error {
				if !c.Remove(args[0]) {
					return noContext(args[0])
				}
				fmt.Fprintf(cmd.OutOrStdout(), "context %s is removed\n", args[0])
				return nil
			})
		}}
}

func editConfig(change func(*Config) error) error {
	path, err := ConfigPath()
	if err != nil {
		return err
	}
	return UpdateConfig(path, change)
}

func completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	path, err := ConfigPath()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := LoadConfig(path)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, x := range c.Contexts {
		out = append(out, x.Name)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
