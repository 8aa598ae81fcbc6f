package ctl

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/ctl/console"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// table is what a list looks like to people: columns in upper case, those that only wide shows at the end.
type table struct {
	head []string
	wide []string
	rows []row
}

type row struct {
	name  string // as `skerry get -o name` gives it
	cells []string
	wide  []string
}

func (t *table) add(name string, cells []string, wide ...string) {
	t.rows = append(t.rows, row{name, cells, wide})
}

func (t *table) print(w io.Writer, wide, header bool) { t.printBelow(w, wide, header, nil) }

// printBelow prints columns that are at least as wide as those printed before. It returns how wide they are.
func (t *table) printBelow(out io.Writer, wide, header bool, widths []int) []int {
	var lines [][]string
	add := func(cells, more []string) {
		if wide {
			cells = slices.Concat(cells, more)
		}
		line := make([]string, len(cells))
		for n, c := range cells {
			line[n] = clean(orDash(c))
			if n == len(widths) {
				widths = append(widths, 0)
			}
			widths[n] = max(widths[n], utf8.RuneCountInString(line[n]))
		}
		lines = append(lines, line)
	}
	if header {
		add(t.head, t.wide)
	}
	for _, r := range t.rows {
		add(r.cells, r.wide)
	}
	var b strings.Builder
	for _, line := range lines {
		for n, c := range line {
			b.WriteString(c)
			if n < len(line)-1 {
				b.WriteString(strings.Repeat(" ", widths[n]-utf8.RuneCountInString(c)+3))
			}
		}
		b.WriteByte('\n')
	}
	io.WriteString(out, b.String())
	return widths
}

// clean keeps what came from elsewhere from moving the cursor or hiding text.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if console.Moves(r) {
			return ' '
		}
		return r
	}, s)
}

func escapeRunes(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r >= 0x7f && console.Moves(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Formats of output.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
	formatName  = "name"
	// formatManifest is of applications alone: their manifests, as they can be applied again.
	formatManifest = "manifest"
	// Those with an argument.
	formatJSONPath = "jsonpath="
	formatColumns  = "custom-columns="
)

// formats are the values of --output.
var formats = []string{formatTable, formatWide, formatJSON, formatYAML, formatName}

func checkFormat(s string) error {
	if s == "" || slices.Contains(formats, s) || s == formatManifest {
		return nil
	}
	if _, err := parsePath(s); err != nil || strings.HasPrefix(s, formatJSONPath) {
		return err
	}
	if _, err := parseColumns(s); err != nil || strings.HasPrefix(s, formatColumns) {
		return err
	}
	return skerry.Errorf(skerry.CodeInvalid, "-o %q is not a format", s).
		WithHint("use %s, jsonpath=TEMPLATE or custom-columns=NAME:PATH,...", strings.Join(formats, ", "))
}

// printValue writes a value as JSON or YAML and reports whether the format is one of them.
func printValue(out io.Writer, format string, value any) (bool, error) {
	switch format {
	case formatJSON:
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return true, enc.Encode(value)
	case formatYAML:
		data, err := json.Marshal(value)
		if err != nil {
			return true, err
		}
		// Characters that JSON may hold as they are, and YAML may not. Outside of texts there are none.
		data = []byte(escapeRunes(string(data)))
		if data, err = yaml.JSONToYAML(data); err == nil {
			_, err = out.Write(data)
		}
		return true, err
	case formatManifest:
		return true, skerry.Errorf(skerry.CodeUnsupported, "only applications have manifests").WithHint("skerry get app NAME -o manifest")
	}
	if path, err := parsePath(format); path != nil || err != nil {
		if err == nil {
			err = path.print(out, value)
		}
		return true, err
	}
	return false, nil
}

// age is the time since t as people say it: 5s, 3m20s, 4h, 12d.
func age(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return span(now.Sub(t))
}

func span(left time.Duration) string {
	if left < 0 {
		left = 0
	}
	secs := int64(left / time.Second)
	two := func(a int64, ua string, b int64, ub string) string {
		if b == 0 {
			return strconv.FormatInt(a, 10) + ua
		}
		return strconv.FormatInt(a, 10) + ua + strconv.FormatInt(b, 10) + ub
	}
	switch {
	case secs < 120:
		return strconv.FormatInt(secs, 10) + "s"
	case secs < 10*60:
		return two(secs/60, "m", secs%60, "s")
	case secs < 3*3600:
		return strconv.FormatInt(secs/60, 10) + "m"
	case secs < 8*3600:
		return two(secs/3600, "h", secs%3600/60, "m")
	case secs < 48*3600:
		return strconv.FormatInt(secs/3600, 10) + "h"
	case secs < 8*86400:
		return two(secs/86400, "d", secs%86400/3600, "h")
	case secs < 2*365*86400:
		return strconv.FormatInt(secs/86400, 10) + "d"
	}
	return two(secs/(365*86400), "y", secs%(365*86400)/86400, "d")
}

// size gives an amount of bytes with three digits or so, for reading only.
func size(b skerry.Bytes) string {
	f := float64(b)
	for _, u := range []string{"B", "Ki", "Mi", "Gi", "Ti"} {
		if f < 1000 || u == "Ti" {
			if u == "B" || f >= 100 || f == float64(int64(f)) {
				return strconv.FormatFloat(f, 'f', 0, 64) + strings.TrimPrefix(u, "B")
			}
			return strconv.FormatFloat(f, 'f', 1, 64) + u
		}
		f /= 1024
	}
	return ""
}

// cores gives CPU as millicores below ten cores.
func cores(m skerry.MilliCPU) string {
	if m != 0 && m < 10000 && m%1000 != 0 {
		return strconv.FormatInt(int64(m), 10) + "m"
	}
	return m.String()
}

// parseSince reads "5m", "2d" or a time as in RFC 3339.
func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, "2006-01-02T15:04:05", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	d, err := parseSpan(s)
	if err != nil {
		return time.Time{}, skerry.Errorf(skerry.CodeInvalid, "--since %q is neither a duration nor a time", s).
			WithHint("write 5m, 2h, 1d, or 2006-01-02T15:04:05Z")
	}
	return now.Add(-d), nil
}

// parseSpan reads a duration as Go does, with d for days and w for weeks beside.
func parseSpan(s string) (time.Duration, error) {
	for suffix, unit := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			f, err := strconv.ParseFloat(n, 64)
			if err != nil || f < 0 || f > 36500 {
				return 0, fmt.Errorf("%q is not a duration", s)
			}
			return time.Duration(f * float64(unit)), nil
		}
	}
	d, err := time.ParseDuration(s)
	if err == nil && d < 0 {
		err = fmt.Errorf("%q is negative", s)
	}
	return d, err
}

// spanValue is a flag that parseSpan reads.
type spanValue struct{ d *time.Duration }

func (v spanValue) String() string {
	if v.d == nil || *v.d == 0 {
		return ""
	}
	return span(*v.d)
}
func (v spanValue) Set(s string) (err error) { *v.d, err = parseSpan(s); return err }
func (v spanValue) Type() string             { return "duration" }

// pairs prints lines of a name and a value; those without a value are left out.
type pairs struct{ tw *tabwriter.Writer }

func newPairs(w io.Writer) *pairs { return &pairs{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)} }

func (p *pairs) add(name, value string) {
	if value != "" {
		fmt.Fprintf(p.tw, "%s:\t%s\n", name, clean(value))
	}
}

func (p *pairs) flush() error { return p.tw.Flush() }

func outputFlag(cmd *cobra.Command, o *string) {
	cmd.Flags().StringVarP(o, "output", "o", "", "format: "+strings.Join(formats, ", ")+", jsonpath=TEMPLATE, custom-columns=NAME:PATH,...")
	cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	old := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if old != nil {
			if err := old(cmd, args); err != nil {
				return err
			}
		}
		return checkFormat(*o)
	}
}

// printList prints items in a format; shown is what they look like as a table.
func printList[T any](cmd *cobra.Command, format string, items []T, shown *table) error {
	out := cmd.OutOrStdout()
	if items == nil {
		items = []T{}
	}
	if done, err := printValue(out, format, map[string]any{"items": items}); done {
		return err
	}
	if done, err := printColumns(out, format, items, true); done || err != nil {
		return err
	}
	if format == formatName {
		for _, r := range shown.rows {
			fmt.Fprintln(out, r.name)
		}
		return nil
	}
	if len(shown.rows) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "there is nothing to show")
		return nil
	}
	shown.print(out, format == formatWide, true)
	return nil
}

// describeProgram shows what the main container of a service is made of, and what is done when it has started, and before it ends.
func describeProgram(to *pairs, shown *view.AppView, service *view.ServiceView) {
	to.add("  Image", service.Image)
	to.add("  Digest", service.Digest)
	if shown.Manifest == nil {
		return
	}
	if is := shown.Manifest.Spec.Service(service.Name); is != nil {
		to.add("  After start", hookText(is.PostStart))
		to.add("  Before end", hookText(is.PreStop))
	}
}

// hookText says what is done when a container has started, or before it ends.
func hookText(hook *spec.Hook) string {
	switch {
	case hook == nil:
		return ""
	case hook.Exec != nil:
		return "runs " + strings.Join(hook.Exec.Command, " ")
	case hook.HTTP != nil:
		return fmt.Sprintf("asks port %d for %s", hook.HTTP.Port, cmp.Or(hook.HTTP.Path, "/"))
	}
	return "waits " + hook.Sleep.String()
}
