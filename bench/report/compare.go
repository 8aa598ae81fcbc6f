package report

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Change is a figure in two reports. Percent is how much better the second is; less than 0 is worse.
type Change struct {
	Was, Is     *Figure
	Percent     float64
	Significant bool // the intervals do not meet, and are of more than two samples
}

// Changes compares what two reports have in common.
func Changes(was, is *Report) (out []Change) {
	for _, now := range is.Figures {
		then := was.Find(now.Group, now.Name, now.Place)
		if then == nil || then.Value == nil || now.Value == nil || then.Value.Value == 0 || now.Value.Value == 0 {
			continue
		}
		before, after := then.Value, now.Value
		k := Change{Was: then, Is: now, Percent: 100 * (after.Value/before.Value - 1)}
		if now.Better == Lower {
			k.Percent = 100 * (before.Value/after.Value - 1)
		}
		k.Significant = min(before.N, after.N) > 2 && (after.Low > before.High || after.High < before.Low)
		out = append(out, k)
	}
	return out
}

// WriteChanges tells people what changed.
func WriteChanges(w io.Writer, was, is *Report, all bool) error {
	list := Changes(was, is)
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "The reports have nothing in common.")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	n := 0
	for _, c := range list {
		if !c.Significant && !all {
			continue
		}
		if n++; n == 1 {
			fmt.Fprintln(table, "FIGURE\tUNIT\tWAS\tIS\tBETTER BY")
		}
		mark := "~"
		if c.Significant {
			mark = ""
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s%+.1f%%\n", c.Is.title(), c.Is.Unit, c.Was.Value.words(), c.Is.Value.words(), mark, c.Percent)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if !all {
		fmt.Fprintf(w, "%d of %d figures changed.\n", n, len(list))
	}
	for _, k := range []string{"cpu", "cores", "kernel", "memory", "governor", "mitigations"} {
		if was.Machine[k] != is.Machine[k] {
			fmt.Fprintf(w, "The machine is another one: %s was %q, is %q.\n", k, was.Machine[k], is.Machine[k])
		}
	}
	return nil
}
