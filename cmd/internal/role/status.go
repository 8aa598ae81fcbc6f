package role

import (
	"encoding/json"
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
	"skerry.dev/skerry/internal/succession"
	"skerry.dev/skerry/internal/upgrade"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/view"
)

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// StatusCommand shows how a role on this machine fares.
func StatusCommand(name string) *cobra.Command {
	var data, output string
	cmd := &cobra.Command{Use: "status", Short: "Show the status of the " + name + " on this machine", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var st Status
			if err := CallLocal(cmd.Context(), data, "GET", "/status", nil, &st); err != nil {
				return err
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
			return skerry.Errorf(skerry.CodeInvalid, "-o %q is not a format", output).WithHint("use json, or omit -o")
		}}
	cmd.Flags().StringVar(&data, "data", filepath.Join(DefaultData(), name), "data directory of the role")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for use by programs")
	return cmd
}

func printStatus(out io.Writer, st *Status) {
	tw := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "%s:\t%s\n", strings.ToUpper(st.Role[:1])+st.Role[1:], st.Name)
	fmt.Fprintf(tw, "Version:\t%s\n", st.Version)
	if text := upgradeText(st.Programs); text != "" {
		fmt.Fprintf(tw, "Upgrade:\t%s\n", text)
	}
	fmt.Fprintf(tw, "Process:\t%d\n", st.Pid)
	fmt.Fprintf(tw, "Ready:\t%s\n", yesNo(st.Ready, st.Why))
	if st.Parent != nil {
		fmt.Fprintf(tw, "Parent:\t%s\n", map[bool]string{true: "connected", false: "not connected: " + st.Parent.Why}[st.Parent.Connected])
	}
	if st.API != "" {
		fmt.Fprintf(tw, "API:\t%s\nCA pin:\t%s\n", st.API, st.Pin)
	}
	if s := st.Succession; s != nil {
		printSuccession(tw, s)
	}
	if c := st.Cache; c != nil {
		fmt.Fprintf(tw, "Image cache:\t%s of %s\n", skerry.Bytes(c.Bytes), skerry.Bytes(c.Max))
	}
	if i := st.ImageCopies; i != nil {
		fmt.Fprintf(tw, "Images:\t%s\n", copiesText(i))
	}
	if st.Frozen != "" {
		fmt.Fprintf(tw, "Frozen:\t%s\n", st.Frozen)
	}
	if st.Secrets != "" {
		fmt.Fprintf(tw, "Secrets:\tsealed for a key in: %s\n", st.Secrets)
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
	if st.Orphans > 0 {
		fmt.Fprintf(tw, "Orphans:\t%d run and are unknown here; skerry get orphans lists them\n", st.Orphans)
	}
	if st.Role == "worker" {
		fmt.Fprintf(tw, "Instances:\t%d\n", len(st.Instances))
	}
	tw.Flush()
	printSuccessors(out, st.Succession)
	printStandbys(out, st.Standbys)
	printRebuilt(out, st.Rebuilt)
	printPeers(out, st.Overlay)
	if len(st.Instances) == 0 {
		return
	}
	fmt.Fprintln(out)
	tw = tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "INSTANCE\tSTATE\tPHASE\tREADY\tRESTARTS\tRUNTIME\tADDRESS")
	for _, i := range st.Instances {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", i.ID, i.State, orDash(string(i.Phase)), yesNo(i.Ready, ""), i.Restarts,
			orDash(i.Runtime), orDash(i.Address))
	}
	tw.Flush()
	for _, i := range st.Instances {
		if i.Frozen != "" {
			fmt.Fprintf(out, "%s: %s\n", i.ID, i.Frozen)
		}
	}
}

func printSuccession(tw io.Writer, s *succession.Status) {
	fmt.Fprintf(tw, "Candidate:\t%s, %s, term %d\n", s.Candidate, s.State, s.Term)
	if s.Why != "" {
		fmt.Fprintf(tw, "\t%s\n", s.Why)
	}
	fmt.Fprintf(tw, "Leader:\t%s\n", orDash(s.Leader))
	fmt.Fprintf(tw, "Revision:\t%d", s.Revision)
	if s.Behind > 0 {
		fmt.Fprintf(tw, ", %d behind the leader", s.Behind)
	}
	fmt.Fprintf(tw, "\nVoters:\t%d workers, %d vote for another leader", len(s.Voters), s.Majority)
	if s.Keeps > 0 {
		fmt.Fprintf(tw, ", %d connected keep this one", s.Keeps)
	}
	fmt.Fprintln(tw)
	for _, f := range s.Aside {
		fmt.Fprintf(tw, "Set aside:\t%s\n", f)
	}
}

func printRebuilt(out io.Writer, r *view.Rebuilt) {
	if r == nil {
		return
	}
	fmt.Fprintf(out, "\nRebuilt from %d workers", r.Workers)
	if r.Waiting {
		fmt.Fprint(out, "; waiting for others to reconnect, nothing is started yet")
	}
	fmt.Fprintf(out, ":\n  %d instances of the root's have a worker\n", r.OfRoot)
	for _, s := range r.Local {
		fmt.Fprintf(out, "  %s: %d of %d instances adopted, its application rebuilt\n", s.Service, s.Instances, s.Wanted)
	}
	for _, l := range r.Left {
		fmt.Fprintf(out, "  %s keeps running and was not adopted: %s\n", l.Instance, l.Why)
	}
	fmt.Fprintln(out, "Not recovered:")
	for _, text := range view.NotRebuilt() {
		fmt.Fprintf(out, "  %s\n", text)
	}
}

func printSuccessors(out io.Writer, s *succession.Status) {
	if s == nil || len(s.Successors) == 0 {
		return
	}
	fmt.Fprintln(out)
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "SUCCESSOR\tSTATE\tBEHIND\tHEARD\tADDRESS")
	for _, x := range s.Successors {
		behind, heard := "-", "-"
		if !x.Heard.IsZero() {
			behind, heard = fmt.Sprint(x.Behind), time.Since(x.Heard).Round(time.Second).String()+" ago"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", x.Name, x.State, behind, heard, orDash(x.Addr))
	}
	tw.Flush()
}

// copiesText says which images a process that stands by has.
func copiesText(i *view.ImageStandby) string {
	text := fmt.Sprintf("%d copied from the leader", i.Images)
	if i.Missing > 0 {
		text += fmt.Sprintf(", %d missing", i.Missing)
	}
	if i.Why != "" {
		text += ": " + i.Why
	}
	return text
}

func printStandbys(out io.Writer, list []view.ImageStandby) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(out)
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "STANDBY\tCONNECTED\tIMAGES\tMISSING\tREASON")
	for _, x := range list {
		fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%s\n", x.Name, yesNo(x.Connected, ""), x.Images, x.Missing, orDash(x.Why))
	}
	tw.Flush()
}

func printOverlay(out io.Writer, o *overlay.Status) {
	if o.Off != "" {
		fmt.Fprintf(out, "Overlay:\tno: %s\n", o.Off)
		return
	}
	if o.ID == 0 {
		fmt.Fprintf(out, "Overlay:\t%s; no addresses from the cluster yet\n", o.Path)
		return
	}
	fmt.Fprintf(out, "Overlay:\t%s, number %d, UDP port %d, %s\n", o.Path, o.ID, o.Port, orDash(o.Cipher))
	if o.Why != "" {
		fmt.Fprintf(out, "\t%s\n", o.Why)
	}
	switch {
	case o.WireGuard != 0:
		fmt.Fprintf(out, "WireGuard:\tkernel, UDP port %d\n", o.WireGuard)
	case o.NoWireGuard != "":
		fmt.Fprintf(out, "WireGuard:\tno: %s\n", o.NoWireGuard)
	}
	blocks := make([]string, len(o.Blocks))
	for i, b := range o.Blocks {
		blocks[i] = b.String()
	}
	fmt.Fprintf(out, "Addresses:\t%s %s\n", strings.Join(blocks, " "), o.V6)
	fmt.Fprintf(out, "Routes:\t%d, to %d service addresses\n", o.Routes, o.Services)
	fmt.Fprintf(out, "Flows:\t%d of %d, tables take %.1f MiB\n", o.Flows, o.FlowsMax, float64(o.MapBytes)/float64(skerry.MiB))
	for _, r := range o.Relays {
		fmt.Fprintf(out, "Relay:\t%s\n", relayText(r))
	}
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

// relayText says how this worker is registered at a relay.
func relayText(r overlay.RelayStatus) string {
	text := r.Name + ", not registered"
	switch {
	case r.Over == "udp" && r.Reflexive.IsValid():
		text = fmt.Sprintf("%s, by UDP, which sees this worker as %s", r.Name, r.Reflexive)
	case r.Over != "":
		text = r.Name + ", by " + strings.ToUpper(r.Over)
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
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
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, wayOf(p), endpoint, rtt, loss, carried(p.TxBytes), carried(p.RxBytes),
			orDash(p.Reason))
	}
	tw.Flush()
}

// wayOf names a path; who encrypts is worth a word where it is the kernel.
func wayOf(p overlay.PathStatus) string {
	if p.Path == overlay.PathWireGuard {
		return "wireguard (kernel)"
	}
	return string(p.Path)
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

// upgradeText tells how the last upgrade of an agent fares, or nothing.
func upgradeText(s *upgrade.State) string {
	switch {
	case s == nil:
		return ""
	case s.Trial != nil:
		return fmt.Sprintf("from %s to %s, on trial since %s", s.Trial.From, s.Trial.Version, s.Trial.Since.Local().Format(time.TimeOnly))
	case s.Last == nil:
		return ""
	case !s.Last.Passed:
		return fmt.Sprintf("%s failed its trial, %s took over again: %s", s.Last.Version, s.Last.From, s.Last.Why)
	}
	return fmt.Sprintf("from %s to %s, passed %s", s.Last.From, s.Last.Version, s.Last.At.Local().Format(time.DateTime))
}
