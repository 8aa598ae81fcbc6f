package report

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"skerry.dev/skerry/bench/quiet"
)

// The documents with figures, the reports that these are made of, and where plots go. `make bench-docs` is this test with -update.
var benchmarks = []string{"../../docs/BENCHMARKS.md", "../../docs/COMPARISON.md"}

const (
	results    = "../../docs/results"
	plots      = "../../docs/img"
	plotPrefix = "bench-" // how the names of plots begin
)

// Marks of a part of a document that is written out of the newest report of a kind: all of it, or, behind a colon, the figures whose
// group and name, with a slash between, match an expression, and those with a goal if it has "goals". The document has tables or plots of
// what is selected, and docs/results has a page with all.
var (
	partBegins = regexp.MustCompile(`^<!-- (figures|plots) of ([a-z ]+?)(?:: (.+))? -->$`)
	partEnds   = "<!-- end of figures -->"
)

// otherForms are files of results that are from before there was one form.
var otherForms = []string{"2026-11-25-hybrid-deploys.json"}

// published reads the newest report of each kind. Only what was measured in quiet, by a program of a commit, may be published.
func published(files fs.FS) (map[string]*Report, error) {
	names, err := fs.Glob(files, "*.json")
	out := map[string]*Report{}
	for _, name := range names {
		if slices.Contains(otherForms, name) {
			continue
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		r, err := Read(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		switch {
		case r.Unfinished:
			return nil, fmt.Errorf("%s was interrupted: its figures may not be published", name)
		case r.Quiet == nil || r.Quiet.NotQuiet != "":
			return nil, fmt.Errorf("%s was not measured in quiet: its figures may not be published", name)
		case !regexp.MustCompile(`^[0-9a-f]{12,}$`).MatchString(r.Version):
			return nil, fmt.Errorf("%s is of %q, which is no commit", name, r.Version)
		case path.Base(name) != fileName(r):
			return nil, fmt.Errorf("%s has another name than its date and kind, %s", name, fileName(r))
		}
		if was := out[r.Kind]; was == nil || r.Began.After(was.Began) {
			out[r.Kind] = r
		}
	}
	return out, err
}

// fileName is that of a report in docs/results.
func fileName(r *Report) string {
	return r.Began.Format("2006-01-02") + "-" + strings.ReplaceAll(r.Kind, " ", "-") + ".json"
}

// written gives a document with its marked parts as the reports have them, and by their paths below docs the plots and pages that it leads
// to. It refuses a table elsewhere.
func written(text string, reports map[string]*Report) (string, map[string]string, error) {
	var out strings.Builder
	files, inside := map[string]string{}, false
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		begins := partBegins.FindStringSubmatch(line)
		switch {
		case line == partEnds:
			if !inside {
				return "", nil, fmt.Errorf("line %d ends no part", n+1)
			}
			inside = false
		case begins != nil:
			if inside {
				return "", nil, fmt.Errorf("line %d begins a part in another", n+1)
			}
			inside = true
			part, err := partOf(begins[1], begins[2], begins[3], reports[begins[2]], files)
			if err != nil {
				return "", nil, fmt.Errorf("line %d: %w", n+1, err)
			}
			out.WriteString(line + "\n\n" + part + "\n")
			continue
		case inside:
			continue
		case strings.HasPrefix(strings.TrimSpace(line), "|"):
			return "", nil, fmt.Errorf("line %d is of a table that is made of no report: %.60s", n+1, line)
		}
		out.WriteString(line + "\n")
	}
	if inside {
		return "", nil, fmt.Errorf("the last part has no %s", partEnds)
	}
	return out.String(), files, nil
}

// partOf gives what stands between the marks of a part, and adds the files that it leads to.
func partOf(what, kind, which string, r *Report, files map[string]string) (string, error) {
	if r == nil {
		return fmt.Sprintf("Not measured in quiet yet: `docs/results` has no report of `skerry bench %s`.\n", kind), nil
	}
	var text strings.Builder
	if which == "" {
		err := r.WriteMarkdown(&text)
		return text.String(), err
	}
	name := strings.ReplaceAll(kind, " ", "-")
	some, err := selected(r, which)
	if err != nil {
		return "", err
	}
	if what == "plots" {
		drawings := some.Drawings()
		if len(drawings) == 0 {
			return "", fmt.Errorf("figures %q of %s give no plot", which, kind)
		}
		for i, title := range slices.Sorted(maps.Keys(drawings)) {
			file := fmt.Sprintf("img/%s%s-%d.svg", plotPrefix, name, i+1)
			files[file] = drawings[title]
			fmt.Fprintf(&text, "![%s](%s)\n", strings.ReplaceAll(title, "-", " "), file)
		}
		return text.String(), nil
	}
	var page strings.Builder
	fmt.Fprintf(&page, "# skerry bench %s\n\nAll figures of [the newest report](%s), written by `make bench-docs`.\n\n", kind, fileName(r))
	if err := errors.Join(some.WriteTables(&text), r.WriteMarkdown(&page)); err != nil {
		return "", err
	}
	files["results/"+name+".md"] = page.String()
	fmt.Fprintf(&text, "\n[All figures](results/%s.md)\n", name)
	return text.String(), nil
}

// selected gives some figures of a report. None is an error.
func selected(r *Report, which string) (*Report, error) {
	names := map[string]bool{}
	match, err := regexp.Compile(which)
	if err != nil {
		return nil, err
	}
	for _, f := range r.Figures {
		name := f.Group + "/" + f.Name
		names[name] = names[name] || f.Goal != nil && slices.Contains(strings.Split(which, "|"), "goals") || match.MatchString(name)
	}
	some := *r
	some.Figures = slices.DeleteFunc(slices.Clone(r.Figures), func(f *Figure) bool { return !names[f.Group+"/"+f.Name] })
	if len(some.Figures) == 0 {
		return nil, fmt.Errorf("the report of %s has no figure %q", r.Kind, which)
	}
	return &some, nil
}

// No figure of the documents is typed by hand, and neither is a plot or a page that they lead to.
func TestBenchmarksDocument(t *testing.T) {
	reports, err := published(os.DirFS(results))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, name := range benchmarks {
		have, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text, files, err := written(string(have), reports)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want[name] = text
		for file, text := range files {
			want["../../docs/"+file] = text
		}
	}
	for name, text := range want {
		have, err := os.ReadFile(name)
		switch {
		case err == nil && string(have) == text:
		case !*update:
			t.Errorf("%s is not what the reports in docs/results give: run make bench-docs", name)
		default:
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	drawn, err := filepath.Glob(plots + "/" + plotPrefix + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range drawn {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is shown nowhere: remove it", name)
		}
	}
}

// What is published follows from the reports, and nothing else: a figure that is changed by hand, or stands elsewhere, is noticed.
func TestWritten(t *testing.T) {
	older, newer := sample(), sample()
	for i, r := range []*Report{older, newer} {
		r.Kind, r.Version, r.Began = "budget", "0123456789abcdef", r.Began.AddDate(0, 0, i)
	}
	newer.Find("", "agent.mem", "").Samples[0] = 24
	file := func(r *Report) *fstest.MapFile {
		var b bytes.Buffer
		if err := r.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		return &fstest.MapFile{Data: b.Bytes()}
	}
	reports, err := published(fstest.MapFS{fileName(older): file(older), fileName(newer): file(newer), otherForms[0]: {Data: []byte("[]")}})
	if err != nil || len(reports) != 1 || !reports["budget"].Began.Equal(newer.Began) {
		t.Fatalf("the newest are %v, %v", reports, err)
	}
	const head = "# Benchmarks\n\n<!-- figures of budget -->\n"
	doc, files, err := written(head+partEnds+"\n", reports)
	if err != nil || !strings.Contains(doc, "| agent.mem | 21.1 MiB | 21 to 24 |") || len(files) != 0 {
		t.Errorf("the document is %s, %v, with %v", doc, err, files)
	}
	if again, _, err := written(doc, reports); err != nil || again != doc {
		t.Errorf("written again it is %s, %v", again, err)
	}
	if changed, _, err := written(strings.Replace(doc, "21.1 MiB", "20.1 MiB", 1), reports); err != nil || changed != doc {
		t.Errorf("a figure changed by hand stays: %v\n%s", err, changed)
	}
	none, _, err := written(doc, nil)
	if err != nil || strings.Contains(none, "21.1") || !strings.Contains(none, "Not measured in quiet yet") {
		t.Errorf("without a report it is %s, %v", none, err)
	}
	some, files, err := written("<!-- figures of budget: ^/agent.mem$ -->\n"+partEnds+"\n", reports)
	page := files["results/budget.md"]
	rows, all := strings.Count(some, "\n| "), strings.Count(page, "\n| ") // with the heads of tables
	if err != nil || rows != 2 || all <= 2 || !strings.Contains(some, "| 21 to 24 |") || !strings.Contains(page, "| 21 to 24 |") {
		t.Errorf("of some figures there are %s, %v, and the page %s", some, err, page)
	}
	for what, text := range map[string]string{
		"a table elsewhere":     "| 1 |\n",
		"a part without an end": head,
		"an end alone":          partEnds + "\n",
		"a part in a part":      head + head,
		"no figures":            "<!-- figures of budget: ^/none$ -->\n" + partEnds + "\n",
		"no expression":         "<!-- figures of budget: ( -->\n" + partEnds + "\n",
		"no plots":              "<!-- plots of budget: goals -->\n" + partEnds + "\n",
	} {
		if _, _, err := written(text, reports); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
	for what, change := range map[string]func(*Report){"noise": func(r *Report) { r.Quiet.NotQuiet = "it was not to wait" },
		"a report from before": func(r *Report) { r.Quiet = nil }, "a changed program": func(r *Report) { r.Version += ", changed" },
		"a program without a commit": func(r *Report) { r.Version = "(devel)" },
		"an interrupted run":         func(r *Report) { r.Unfinished = true }} {
		r := sample()
		r.Kind, r.Version = "budget", "0123456789abcdef"
		r.Quiet = &quiet.Record{Limit: 0.3}
		change(r)
		if _, err := published(fstest.MapFS{fileName(r): file(r)}); err == nil {
			t.Errorf("%s is published", what)
		}
	}
	if _, err := published(fstest.MapFS{"best.json": file(newer)}); err == nil {
		t.Error("a report of any name is published")
	}
	if _, err := published(fstest.MapFS{"2026-01-01-budget.json": {Data: []byte("[]")}}); err == nil {
		t.Error("what is no report is published")
	}
}
