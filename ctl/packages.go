package ctl

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
)

// findPackages shows which instances contain a package, and of which that is not known.
func (a *app) findPackages(cmd *cobra.Command, client *api.Client, res *resource, flags *getFlags, names []string) error {
	if res.singular() != "instance" || len(names) > 0 || flags.watch || flags.selector != "" {
		return skerry.Errorf(skerry.CodeInvalid, "--package goes with a list of instances").
			WithHint("write `skerry get instances --package %s`", flags.pkg)
	}
	filter := api.InstanceFilter{App: flags.app}
	if !flags.all {
		filter.Namespace = a.namespace()
	}
	report, err := client.FindPackages(cmd.Context(), flags.pkg, filter, flags.fetch)
	if err != nil {
		return err
	}
	if flags.output == formatJSON || flags.output == formatYAML {
		_, err := printValue(cmd.OutOrStdout(), flags.output, report)
		return err
	}
	query := listQuery{namespace: filter.Namespace, all: flags.all}
	rows := &table{head: []string{"NAME", "SERVICE", "CLUSTER", "PACKAGE", "VERSION"}, wide: []string{"IMAGE"}}
	for _, u := range report.Found {
		service := query.showKey(u.Service.App) + "/" + u.Service.Service
		rows.add("instance/"+string(u.Instance), []string{string(u.Instance), service, u.Cluster, u.Package, u.Version}, u.Image)
	}
	switch {
	case len(report.Found) == 0:
		fmt.Fprintf(cmd.ErrOrStderr(), "no instance is known to contain %s\n", flags.pkg)
	case flags.output == formatName:
		var printed []string
		for _, row := range rows.rows {
			if !slices.Contains(printed, row.name) {
				printed = append(printed, row.name)
				fmt.Fprintln(cmd.OutOrStdout(), row.name)
			}
		}
	default:
		rows.print(cmd.OutOrStdout(), flags.output == formatWide, !flags.noHeaders)
	}
	for _, u := range report.Unknown {
		fmt.Fprintf(cmd.ErrOrStderr(), "not known of %d instances: %s: %s\n", len(u.Instances), u.Image, u.Reason)
	}
	return nil
}
