package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

func workerStatus() *cobra.Command {
	var data, output string
	cmd := &cobra.Command{Use: "status", Short: "Show how the worker on this machine fares", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var st status
			if err := callLocal(cmd.Context(), data, "GET", "/status", nil, &st); err != nil {
				return notRunning(err)
			}
			if output == "json" {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(st)
			}
			printStatus(cmd.OutOrStdout(), &st)
			return nil
		}}
	cmd.Flags().StringVar(&data, "data", defaultData()+"/worker", "data directory of the worker")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for programs")
	return cmd
}

func printStatus(out io.Writer, st *status) {
	tw := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "Worker:\t%s\n", st.Name)
	fmt.Fprintf(tw, "Version:\t%s\n", st.Version)
	fmt.Fprintf(tw, "Process:\t%d\n", st.Pid)
	fmt.Fprintf(tw, "Ready:\t%s\n", yesNo(st.Ready, st.Why))
	if st.Parent != nil {
		fmt.Fprintf(tw, "Cluster:\t%s\n", map[bool]string{true: "connected", false: "not connected: " + st.Parent.Why}[st.Parent.Connected])
	}
	for _, r := range st.Runtimes {
		fmt.Fprintf(tw, "Runtime %s:\t%s\n", r.Name, yesNo(r.Passed, r.Cause))
	}
	fmt.Fprintf(tw, "Instances:\t%d\n", len(st.Instances))
	tw.Flush()
	if len(st.Instances) == 0 {
		return
	}
	fmt.Fprintln(out)
	tw = tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "INSTANCE\tSTATE\tPHASE\tREADY\tRESTARTS\tRUNTIME\tADDRESS")
	for _, i := range st.Instances {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%v\t%d\t%s\t%s\n", i.ID, i.State, orDash(string(i.Phase)), i.Ready, i.Restarts, orDash(i.Runtime), orDash(i.Address))
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
