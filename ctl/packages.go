package ctl

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
)

// findPackages shows which instances contain a package, and of which that is not known.
func (a *app) findPackages(cmd *cobra.Command, c *api.Client, r *resource, f *getFlags, names []string) error {
	if r.singular() != "instance" || len(names) > 0 || f.watch || f.selector != "" {
		return skerry.Errorf(skerry.CodeInvalid, "--package goes with a list of instances").
			WithHint("write `skerry get instances --package %s`", f.pkg)
	}
	filter := api.InstanceFilter{App: f.app}
	if !f.all {
		filter.Namespace = a.namespace()
	}
	report, err := c.FindPackages(cmd.Context(), f.pkg, filter, f.fetch)
	if err != nil {
		return err
	}
	if f.output == formatJSON || f.output == formatYAML {
		_, err := printValue(cmd.OutOrStdout(), f.output, report)
		return err
	}
	q := listQuery{namespace: filter.Namespace, all: f.all}
	t := &table{head: []string{"NAME", "SERVICE", "CLUSTER", "PACKAGE", "VERSION"}, wide: []string{"IMAGE"}}
	for _, u := range report.Found {
		service := q.showKey(u.Service.App) + "/" + u.Service.Service
		t.add("instance/"+string(u.Instance), []string{string(u.Instance), service, u.Cluster, u.Package, u.Version}, u.Image)
	}
	switch {
	case len(report.Found) == 0:
		fmt.Fprintf(cmd.ErrOrStderr(), "no instance is known to contain %s\n", f.pkg)
	case f.output == formatName:
		var printed []string
		for _, row := range t.rows {
			if !slices.Contains(printed, row.name) {
				printed = append(printed, row.name)
				fmt.Fprintln(cmd.OutOrStdout(), row.name)
			}
		}
	default:
		t.print(cmd.OutOrStdout(), f.output == formatWide, !f.noHeaders)
	}
	for _, u := range report.Unknown {
		fmt.Fprintf(cmd.ErrOrStderr(), "not known of %d instances: %s: %s\n", len(u.Instances), u.Image, u.Reason)
	}
	return nil
}
