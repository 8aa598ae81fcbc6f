package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay"
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
	if st.Held != "" {
		fmt.Fprintf(tw, "Held:\t%s\n", st.Held)
	}
	for _, r := range st.Runtimes {
		fmt.Fprintf(tw, "Runtime %s:\t%s\n", r.Name, yesNo(r.Passed, r.Cause))
	}
	if c := st.Coordinate; c != nil {
		fmt.Fprintf(tw, "Coordinate:\t(%.1f %.1f %.1f) + %.1f ms, ±%.0f%%\n", c.Vec[0], c.Vec[1], c.Vec[2], c.Height, 100*c.Error)
	}
	if o := st.Overlay; o != nil {
		printOverlay(tw, o)
	}
	if st.Role == "worker" {
		fmt.Fprintf(tw, "Instances:\t%d\n", len(st.Instances))
	}
	tw.Flush()
	printPeers(out, st.Overlay)
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
	for _, i := range st.Instances {
		if i.Held != "" {
			fmt.Fprintf(out, "%s: %s\n", i.ID, i.Held)
		}
	}
}

func printOverlay(out io.Writer, o *overlay.Status) {
	if o.Off != "" {
		fmt.Fprintf(out, "Overlay:\tno: %s\n", o.Off)
		return
	}
	if o.ID == 0 {
		fmt.Fprintf(out, "Overlay:\t%s; the cluster has not given addresses yet\n", o.Path)
		return
	}
	fmt.Fprintf(out, "Overlay:\t%s, number %d, UDP port %d, %s\n", o.Path, o.ID, o.Port, orDash(o.Cipher))
	if o.Why != "" {
		fmt.Fprintf(out, "\t%s\n", o.Why)
	}
	blocks := make([]string, len(o.Blocks))
	for i, b := range o.Blocks {
		blocks[i] = b.String()
	}
	fmt.Fprintf(out, "Addresses:\t%s %s\n", strings.Join(blocks, " "), o.V6)
	fmt.Fprintf(out, "Routes:\t%d, to %d service addresses\n", o.Routes, o.Services)
	fmt.Fprintf(out, "Flows:\t%d of %d, tables take %.1f MiB\n", o.Flows, o.FlowsMax, float64(o.MapBytes)/float64(skerry.MiB))
	dropped := []string{}
	for _, k := range slices.Sorted(maps.Keys(o.Counters)) {
		if strings.Contains(k, "drop-") && o.Counters[k] > 0 {
			dropped = append(dropped, fmt.Sprintf("%s %d", strings.Replace(k, "drop-", "", 1), o.Counters[k]))
		}
	}
	if len(dropped) > 0 {
		fmt.Fprintf(out, "Dropped:\t%s\n", strings.Join(dropped, ", "))
	}
}

// carried writes a number of bytes for people.
func carried(n int64) string {
	f, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f < 1024 {
			break
		}
		f, unit = f/1024, u
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

func printPeers(out io.Writer, o *overlay.Status) {
	if o == nil || len(o.Peers) == 0 {
		return
	}
	fmt.Fprintln(out)
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "PEER\tPATH\tENDPOINT\tRTT\tLOSS\tSENT\tRECEIVED\tREASON")
	for _, p := range o.Peers {
		name := p.Name
		if name == "" {
			name = "#" + p.Peer.String()
		}
		rtt, loss, endpoint := "-", "-", "-"
		if p.RTT > 0 {
			rtt, loss = p.RTT.Round(10*time.Microsecond).String(), fmt.Sprintf("%.1f%%", 100*p.Loss)
		}
		if p.Endpoint.IsValid() {
			endpoint = p.Endpoint.String()
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, p.Path, endpoint, rtt, loss, carried(p.TxBytes), carried(p.RxBytes), orDash(p.Reason))
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
