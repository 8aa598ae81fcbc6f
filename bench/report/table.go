package report

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table is the figures of a group: a row for each name, and a column for each place, or what there is to say of the only one.
type Table struct {
	Title string
	Head  []string
	Rows  [][]string
	About []string // of each row, what pages say below its name
}

// Tables gives a table for each group, with details or without.
func (r *Report) Tables(details bool) (out []Table) {
	if !details {
		short := *r
		short.Figures = slices.DeleteFunc(slices.Clone(r.Figures), func(f *Figure) bool { return f.Detail })
		r = &short
	}
	for _, group := range r.groups() {
		places := r.placesOf(group)
		if len(places) == 1 && places[0] == "" {
			out = append(out, r.single(group))
			continue
		}
		t := Table{Title: group, Head: append([]string{"name", "unit", "better"}, places...)}
		published := slices.ContainsFunc(r.Figures, func(f *Figure) bool { return f.Group == group && f.Published != "" })
		if published {
			t.Head = append(t.Head, "published")
		}
		for _, name := range r.namesOf(group) {
			row, about, said := []string{name, "", ""}, "", []string{}
			for _, place := range places {
				f := r.Find(group, name, place)
				if row = append(row, f.cell()); f == nil {
					continue
				}
				row[1], row[2], about = cmp.Or(row[1], f.Unit), cmp.Or(row[2], f.Better), cmp.Or(about, f.About)
				if f.Published != "" && !slices.Contains(said, f.Published) {
					said = append(said, f.Published)
				}
			}
			if published {
				row = append(row, strings.Join(said, "; "))
			}
			t.Rows, t.About = append(t.Rows, row), append(t.About, about)
		}
		out = append(out, t)
	}
	return out
}

// single is the table of a group that has no places.
func (r *Report) single(group string) Table {
	t := Table{Title: group, Head: []string{"name", "value", "95 % interval", "n", "goal", "met", "about"}}
	for _, f := range r.Figures {
		if f.Group != group {
			continue
		}
		row := []string{f.Name, "-", "", "", "", "", f.About}
		if f.Value != nil {
			row[1], row[2] = strings.TrimSpace(digits(f.Value.Value)+" "+f.Unit), digits(f.Value.Low)+" to "+digits(f.Value.High)
			row[3] = fmt.Sprint(f.Value.N)
		}
		if f.Goal != nil {
			row[4] = map[string]string{Lower: "≤ ", Higher: "≥ "}[f.Better] + fmt.Sprintf("%g", *f.Goal)
			if f.Value != nil {
				row[5] = map[bool]string{true: "yes", false: "no"}[f.Met()]
			}
		}
		t.Rows, t.About = append(t.Rows, row), append(t.About, "")
	}
	return t
}

// cell is a figure beside those of other places; of none, too.
func (f *Figure) cell() string {
	if f == nil || f.Value == nil {
		return "-"
	}
	text := f.Value.words()
	if a := f.Against; a != nil {
		mark := "~" // may be chance
		if a.Significant {
			mark = ""
		}
		text += fmt.Sprintf(" (%s%.2fx)", mark, a.Times)
	}
	return text
}

// words is a value with its interval, if that has a width.
func (v *Value) words() string {
	if v.Low == v.High {
		return digits(v.Value)
	}
	return fmt.Sprintf("%s [%s, %s]", digits(v.Value), digits(v.Low), digits(v.High))
}

// digits gives three of them, or all before the point.
func digits(v float64) string {
	if v >= 1000 || v <= -1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func (r *Report) groups() (out []string) {
	for _, f := range r.Figures {
		if !slices.Contains(out, f.Group) {
			out = append(out, f.Group)
		}
	}
	return out
}

func (r *Report) namesOf(group string) (out []string) {
	for _, f := range r.Figures {
		if f.Group == group && !slices.Contains(out, f.Name) {
			out = append(out, f.Name)
		}
	}
	return out
}

// placesOf gives the places of a group, in the report's order and then in that of the figures.
func (r *Report) placesOf(group string) (out []string) {
	has := map[string]bool{}
	var all []string
	for _, f := range r.Figures {
		if f.Group == group && !has[f.Place] {
			has[f.Place] = true
			all = append(all, f.Place)
		}
	}
	for _, p := range r.Places {
		if has[p.Name] {
			out = append(out, p.Name)
		}
	}
	for _, p := range all {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// legend says what brackets mean.
func (r *Report) legend() string {
	text := "Values are medians of the rounds"
	if slices.ContainsFunc(r.Figures, func(f *Figure) bool { return f.Quantile != 0 }) {
		text += ", or the quantile in the name,"
	}
	text += " with their 95 % bootstrap intervals"
	if r.Baseline != "" {
		text += "; in brackets: times " + r.Baseline + ", as the median of the rounds, with ~ where it may be chance"
	}
	text += "."
	if slices.ContainsFunc(r.Figures, func(f *Figure) bool { return f.Detail }) {
		text += " JSON, CSV and HTML have more figures."
	}
	return text
}

// line says in a line when, with what and for how long a report was measured.
func (r *Report) line() string {
	text := fmt.Sprintf("skerry bench %s", r.Kind)
	if r.Options != "" {
		text += " " + r.Options
	}
	began := r.Began.UTC().Format("2006-01-02 15:04")
	commit, changed, _ := strings.Cut(r.Version, ",")
	return fmt.Sprintf("%s, %s UTC, commit %.12s%s, %d rounds in %.0f s", text, began, commit, changed, r.Rounds, r.Seconds)
}

// WriteTable writes a report for people.
func (r *Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s. %s\n", r.line(), r.machine())
	for _, t := range r.Tables(false) {
		fmt.Fprintln(w)
		if t.Title != "" {
			fmt.Fprintln(w, t.Title)
		}
		columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(columns, strings.ToUpper(strings.Join(t.Head, "\t")))
		for _, row := range t.Rows {
			fmt.Fprintln(columns, strings.Join(row, "\t"))
		}
		if err := columns.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w, "\n"+r.legend())
	for _, p := range r.Places {
		if p.Skip == "" && p.Text != "" {
			fmt.Fprintf(w, "%s: %s\n", p.Name, p.Text)
		}
	}
	for _, line := range r.Remarks() {
		fmt.Fprintln(w, line)
	}
	return nil
}

// WriteMarkdown writes a report as Markdown, with all that there is to say of it.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	if err := r.WriteTables(&b); err != nil {
		return err
	}
	fmt.Fprintf(&b, "\n%s\n", r.legend())
	for _, line := range r.Remarks() {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteTables writes the tables of a report as Markdown, and in a line before them when and on what they were measured.
func (r *Report) WriteTables(w io.Writer) error {
	var b strings.Builder
	cells := func(list []string) {
		for _, c := range list {
			b.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
		}
		b.WriteString("|\n")
	}
	fmt.Fprintf(&b, "`%s`. %s\n", r.line(), r.machine())
	for _, t := range r.Tables(false) {
		b.WriteString("\n")
		if t.Title != "" {
			fmt.Fprintf(&b, "**%s**\n\n", t.Title)
		}
		cells(t.Head)
		b.WriteString(strings.Repeat("|---", len(t.Head)) + "|\n")
		for _, row := range t.Rows {
			cells(row)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// machine says on what it was measured, in a line.
func (r *Report) machine() string {
	var out []string
	for _, k := range []string{"cpu", "cores", "memory", "kernel"} {
		if v := r.Machine[k]; v != "" {
			out = append(out, map[string]string{"cpu": "", "cores": "cores: ", "memory": "memory: ", "kernel": "Linux "}[k]+v)
		}
	}
	return strings.Join(out, ", ") + "."
}

func writeCSV(w io.Writer, lines [][]string) error {
	c := csv.NewWriter(w)
	return c.WriteAll(lines)
}
