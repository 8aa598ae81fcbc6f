package device

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"skerry.dev/skerry/bench/report"
)

// Change is a case in one place in two reports. Percent is how much better the second is; less than 0 is worse.
type Change struct {
	Case, Place, Unit string
	Was, Is           report.Summary
	Percent           float64
	Significant       bool
}

// Changes compares what two reports have in common.
func Changes(was, is *Report) (out []Change) {
	for _, c := range is.Cases {
		at := slices.IndexFunc(was.Cases, func(o Measured) bool { return o.ID == c.ID })
		if at < 0 {
			continue
		}
		for _, p := range is.Places {
			a, b := was.Cases[at].Results[p.Name], c.Results[p.Name]
			if a == nil || b == nil || a.Summary == nil || b.Summary == nil || a.Summary.Mean == 0 || b.Summary.Mean == 0 {
				continue
			}
			k := Change{Case: c.ID, Place: p.Name, Unit: c.Unit, Was: *a.Summary, Is: *b.Summary, Percent: 100 * (b.Summary.Mean/a.Summary.Mean - 1)}
			if c.Better == Lower {
				k.Percent = 100 * (a.Summary.Mean/b.Summary.Mean - 1)
			}
			k.Significant = min(k.Was.N, k.Is.N) > 2 && (k.Is.Low > k.Was.High || k.Is.High < k.Was.Low)
			out = append(out, k)
		}
	}
	return out
}

// WriteChanges tells people what changed.
func WriteChanges(out io.Writer, was, is *Report, all bool) error {
	list := Changes(was, is)
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "The reports have nothing in common.")
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	n := 0
	for _, c := range list {
		if !c.Significant && !all {
			continue
		}
		if n++; n == 1 {
			fmt.Fprintln(table, "CASE\tPLACE\tUNIT\tWAS\tIS\tBETTER BY")
		}
		mark := ""
		if !c.Significant {
			mark = "~"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%.4g ±%.1f%%\t%.4g ±%.1f%%\t%s%+.1f%%\n", c.Case, c.Place, c.Unit, c.Was.Mean, c.Was.RSD, c.Is.Mean,
			c.Is.RSD, mark, c.Percent)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if !all {
		fmt.Fprintf(out, "%d of %d figures changed.\n", n, len(list))
	}
	for _, k := range []string{"cpu", "cores", "kernel", "memory", "governor", "mitigations"} {
		if was.Machine[k] != is.Machine[k] {
			fmt.Fprintf(out, "The machine is another one: %s was %q, is %q.\n", k, was.Machine[k], is.Machine[k])
		}
	}
	return nil
}
