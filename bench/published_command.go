package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/spec"
)

// publishedCommand prints the figures that others have published.
func publishedCommand() *cobra.Command {
	var doc, table, output string
	cmd := &cobra.Command{
		Use: "published", Short: "Print the figures of the papers that Skerry is measured against", Args: cobra.NoArgs,
		Long: `Print the figures of the five documents that Skerry is built from, table by table: 000 KubeEdge-V, 001 Docker and KVM at the edge,
002 Oakestra, 003 microVMs on edge devices, 004 Kata under interference. Figures that appear only in the text are printed as ranges,
with their place.

A figure with * has another value in the text at hand, which is impossible: that value and the arithmetic are below the table. A
figure with ! is as in the document, and does not follow from the document's other figures.`,
		Example: `  skerry bench published --doc 004 --table 5.3
  skerry bench published --doc 003 -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := published.Load()
			if err != nil {
				return err
			}
			documents, err := chosen(set, doc, table)
			if err != nil {
				return err
			}
			switch output {
			case "json":
				return report.WriteJSON(cmd.OutOrStdout(), publishedResult{set.Find(published.Query{Document: doc, Table: table}),
					problemsOf(set, doc, table)})
			case "table":
				return writePublished(cmd.OutOrStdout(), documents, table, problemsOf(set, doc, table))
			}
			return skerry.Errorf(skerry.CodeInvalid, "unknown output %q: table or json", output)
		},
	}
	cmd.Flags().StringVar(&doc, "doc", "", "only this document: 000 to 004")
	cmd.Flags().StringVar(&table, "table", "", "only tables of this name")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// publishedResult is what -o json prints.
type publishedResult struct {
	Figures  []*published.Figure `json:"figures"`
	Problems []published.Problem `json:"problems"`
}

// chosen gives the documents that are asked for, or says what there is.
func chosen(set *published.Set, doc, table string) ([]*published.Document, error) {
	var out []*published.Document
	var ids, tables []string
	for _, d := range set.Documents {
		ids = append(ids, d.ID)
		if doc != "" && d.ID != doc {
			continue
		}
		found := table == ""
		for _, t := range d.Tables {
			tables = append(tables, t.ID)
			found = found || t.ID == table
		}
		if found {
			out = append(out, d)
		}
	}
	switch {
	case len(tables) == 0:
		return nil, skerry.Errorf(skerry.CodeNotFound, "there is no document %q", doc).WithHint("there are %s", strings.Join(ids, ", "))
	case len(out) == 0:
		return nil, skerry.Errorf(skerry.CodeNotFound, "there is no table %q", table).WithHint("%s", spec.Suggest(table, tables))
	}
	return out, nil
}

func problemsOf(set *published.Set, doc, table string) []published.Problem {
	out := []published.Problem{}
	for _, p := range set.Check() {
		if (doc == "" || p.Figure.Document == doc) && (table == "" || p.Figure.Table == table) {
			out = append(out, p)
		}
	}
	return out
}

// writePublished prints tables, each with notes below it. An empty table name stands for all.
func writePublished(out io.Writer, documents []*published.Document, table string, problems []published.Problem) error {
	wrong := map[*published.Figure]string{}
	for _, p := range problems {
		wrong[p.Figure] = p.Follows
	}
	var b strings.Builder
	for _, d := range documents {
		for _, t := range d.Tables {
			if table != "" && t.ID != table {
				continue
			}
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "%s, table %s: %s", d.ID, t.ID, t.About)
			if t.Place != "" {
				fmt.Fprintf(&b, " (%s)", t.Place)
			}
			b.WriteByte('\n')
			writePublishedTable(&b, t, wrong)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func writePublishedTable(b *strings.Builder, t *published.Table, wrong map[*published.Figure]string) {
	var notes []string
	out := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, c := range t.Columns {
		mark := ""
		if c.Raw != "" {
			mark = "*"
			notes = append(notes, fmt.Sprintf("* %s: %s; %s", c.Name, reads(c.Raw), c.Because))
		}
		fmt.Fprintf(out, "\t%s%s%s", c.Name, measure(c.Unit, c.Better), mark)
	}
	fmt.Fprintln(out)
	for _, r := range t.Rows {
		fmt.Fprint(out, r.Name)
		for n, c := range t.Columns {
			if what := rowMeasure(c, r.Cells[n]); what != "" {
				fmt.Fprint(out, what)
				break
			}
		}
		for _, f := range r.Cells {
			fmt.Fprintf(out, "\t%s", f.Words())
			if f.Deviation != nil {
				fmt.Fprintf(out, " ±%.2f%%", *f.Deviation)
			}
			if f.Damaged {
				fmt.Fprint(out, "*")
				notes = append(notes, fmt.Sprintf("* %s, %s: %s; %s", f.Row, f.Column, reads(f.Raw), f.Because))
			}
			if why, is := wrong[f]; is {
				fmt.Fprint(out, "!")
				notes = append(notes, fmt.Sprintf("! %s, %s: %s", f.Row, f.Column, why))
			}
		}
		fmt.Fprintln(out)
	}
	_ = out.Flush() // into memory
	for _, n := range notes {
		fmt.Fprintln(b, n)
	}
}

func reads(raw string) string {
	if raw == published.Missing {
		return "it is missing in the text"
	}
	return "the text reads " + raw
}

// rowMeasure words what a figure has from its row.
func rowMeasure(c *published.Column, f *published.Figure) string {
	if c.Unit != "" || c.Better != "" {
		return ""
	}
	return measure(f.Unit, f.Better)
}

// measure words a unit and what is better; nothing, where there is neither.
func measure(unit string, better published.Direction) string {
	switch {
	case unit == "" && better == "":
		return ""
	case unit == "":
		return " [" + string(better) + "]"
	case better == "":
		return " [" + unit + "]"
	}
	return " [" + unit + ", " + string(better) + "]"
}
