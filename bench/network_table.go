package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// writeNetwork writes the results for people.
func writeNetwork(out io.Writer, n *Network) error {
	var b strings.Builder
	var machine []string
	for k, v := range n.Machine {
		machine = append(machine, k+": "+v)
	}
	slices.Sort(machine)
	fmt.Fprintf(&b, "%s; load at the end: %s; took %.0f s\n", strings.Join(machine, "; "), n.LoadAfter, n.Duration)
	for _, c := range cases() {
		fmt.Fprintf(&b, "  %-13s %s\n", c[0], c[1])
	}
	var t *tabwriter.Writer
	table := func(title, head string) {
		if t != nil {
			t.Flush()
		}
		b.WriteString("\n" + title + "\n")
		t = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, head)
	}
	for _, wire := range n.Wires {
		what := map[string]string{"gso": "a wire that passes large segments", "mtu": "a wire of 1500-byte packets"}[wire.Wire]
		table(fmt.Sprintf("%s (%s): median ±spread, and in brackets the median ratio to direct in the same round", wire.Wire, what),
			"CASE\t"+heads(0, 5))
		rows(t, wire, 0, 5)
		table(fmt.Sprintf("%s: round trips, microseconds; p99 beside", wire.Wire), "CASE\t"+heads(5, len(metrics())))
		rows(t, wire, 5, len(metrics()))
	}
	if len(n.Loss) > 0 {
		table("One TCP stream when both hosts lose one packet in a hundred (mtu)", "CASE\tGBIT/S\tTO DIRECT\tN")
		for _, x := range n.Loss {
			fmt.Fprintf(t, "%s\t%s\t%.2f\t%d\n", x.Case, plusMinus(x.Gbit), x.Gbit.Ratio, x.Gbit.N)
		}
	}
	if len(n.Replicas) > 0 {
		table("Connect, ask, answer by a service address (figure 8; mtu; microseconds), and how evenly instances were asked",
			"CASE\tREPLICAS\tMEDIAN\tP99\tN\tLEAST\tMOST")
		for _, x := range n.Replicas {
			fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t%d\t%d\t%d\n", x.Case, x.Replicas, x.Median, x.P99, x.N, x.Least, x.Most)
		}
	}
	if len(n.Downloads) > 0 {
		table("A download of 100 MB (figure 12; mtu), seconds", "CASE\tROUND TRIP MS\tSECONDS\tSPREAD\tN")
		for _, x := range n.Downloads {
			fmt.Fprintf(t, "%s\t%.0f\t%.2f\t±%.2f\t%d\n", x.Case, x.Delay, x.Seconds, x.Spread, x.N)
		}
	}
	if r := n.Routes; r != nil {
		table(fmt.Sprintf("A worker takes %d service addresses of three instances each over (ms; goal for 10,000: 1,000)", r.Services),
			"ALL NEW\tALL CHANGED\tNONE CHANGED\tN\tTABLES MIB")
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%.1f\n", plusMinus(r.First), plusMinus(r.Update), plusMinus(r.Same), r.Update.N, mib(r.MapBytes))
	}
	for _, f := range n.Flows {
		table(fmt.Sprintf("%d flows (%s) at once, left to expire, and again", f.Asked, f.Protocol),
			"FLOWS\tREFUSED\tSECONDS TO FILL\tKERNEL MEMORY MIB\tA SWEEP, SECONDS\tLEFT AFTER EXPIRY\tKERNEL MEMORY MIB")
		for _, c := range f.Cycles {
			fmt.Fprintf(t, "%d\t%d\t%.1f\t%.1f\t%.2f\t%d\t%.1f\n", c.Flows, c.Refused, c.Seconds, mib(c.Kernel), c.Sweep, c.Left, mib(c.After))
		}
	}
	if t != nil {
		t.Flush()
	}
	if len(n.Skipped) > 0 {
		b.WriteString("\nNot measured:\n")
		for _, s := range n.Skipped {
			b.WriteString("  " + s + "\n")
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// heads are the titles of some metrics.
func heads(from, to int) string {
	var out []string
	for _, m := range metrics()[from:to] {
		h := m.title
		if from == 0 {
			h += " " + strings.ToUpper(m.unit)
		}
		out = append(out, h)
	}
	return strings.Join(out, "\t")
}

// rows writes some metrics of all cases.
func rows(t io.Writer, wire NetWire, from, to int) {
	for _, c := range wire.Cases {
		if c.Skip != "" {
			fmt.Fprintf(t, "%s\tskipped\n", c.Name)
			continue
		}
		line := []string{c.Name}
		for _, m := range metrics()[from:to] {
			f, ok := c.Figures[m.name]
			switch {
			case !ok:
				line = append(line, "-")
			case m.title == "P99":
				line = append(line, short(f.Median))
			case c.Name == caseDirect || f.Ratio == 0:
				line = append(line, plusMinus(f))
			default:
				line = append(line, fmt.Sprintf("%s (%.2f)", plusMinus(f), f.Ratio))
			}
		}
		fmt.Fprintln(t, strings.Join(line, "\t"))
	}
}

func plusMinus(f Figure) string { return short(f.Median) + " ±" + short(f.Spread) }

// short gives three digits.
func short(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
