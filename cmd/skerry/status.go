package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func joined(list []string) string { return strings.Join(list, ",") }

// notRunning gives an error of a role that is not running a hint.
func notRunning(err error) error {
	if errors.Is(err, errNotRunning) {
		return skerry.Errorf(skerry.CodeUnavailable, "%w", err).WithHint("start it, or name its data directory with --data")
	}
	return err
}

// statusCommand shows how a role on this machine fares.
func statusCommand(role string) *cobra.Command {
	var data, output string
	cmd := &cobra.Command{Use: "status", Short: "Show how the " + role + " on this machine fares", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var st status
			if err := callLocal(cmd.Context(), data, "GET", "/status", nil, &st); err != nil {
				return notRunning(err)
			}
			switch output {
			case "":
				printStatus(cmd.OutOrStdout(), &st)
				return nil
			case "json":
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(st)
			}
			return skerry.Errorf(skerry.CodeInvalid, "-o %q is not a format", output).WithHint("use json, or leave it away")
		}}
	cmd.Flags().StringVar(&data, "data", filepath.Join(defaultData(), role), "data directory of the role")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for programs")
	return cmd
}

func printStatus(out io.Writer, st *status) {
	tw := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "%s:\t%s\n", strings.ToUpper(st.Role[:1])+st.Role[1:], st.Name)
	fmt.Fprintf(tw, "Version:\t%s\n", st.Version)
	fmt.Fprintf(tw, "Process:\t%d\n", st.Pid)
	fmt.Fprintf(tw, "Ready:\t%s\n", yesNo(st.Ready, st.Why))
	if st.Parent != nil {
		fmt.Fprintf(tw, "Parent:\t%s\n", map[bool]string{true: "connected", false: "not connected: " + st.Parent.Why}[st.Parent.Connected])
	}
	if st.API != "" {
		fmt.Fprintf(tw, "API:\t%s\nCA pin:\t%s\n", st.API, st.Pin)
	}
	for _, r := range st.Runtimes {
		fmt.Fprintf(tw, "Runtime %s:\t%s\n", r.Name, yesNo(r.Passed, r.Cause))
	}
	if c := st.Coordinate; c != nil {
		fmt.Fprintf(tw, "Coordinate:\t(%.1f %.1f %.1f) + %.1f ms, ±%.0f%%\n", c.Vec[0], c.Vec[1], c.Vec[2], c.Height, 100*c.Error)
	}
	if st.Role == "worker" {
		fmt.Fprintf(tw, "Instances:\t%d\n", len(st.Instances))
	}
	tw.Flush()
	if len(st.Instances) == 0 {
		return
	}
	fmt.Fprintln(out)
	tw = tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "INSTANCE\tSTATE\tPHASE\tREADY\tRESTARTS\tRUNTIME\tADDRESS")
	for _, i := range st.Instances {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", i.ID, i.State, orDash(string(i.Phase)), yesNo(i.Ready, ""), i.Restarts, orDash(i.Runtime), orDash(i.Address))
	}
	tw.Flush()
}

func yesNo(ok bool, why string) string {
	switch {
	case ok:
		return "yes"
	case why == "":
		return "no"
	}
	return "no: " + why
}
