package report

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"skerry.dev/skerry/bench/quiet"
)

// The documents with tables of figures, and the reports that these are made of. `make bench-docs` is this test with -update.
var benchmarks = []string{"../../docs/BENCHMARKS.md", "../../docs/COMPARISON.md"}

const results = "../../docs/results"

// Marks of a part of a document that is written out of the newest report of a kind, and the heading below which tables may stand that no
// report is kept of.
var (
	partBegins = regexp.MustCompile(`^<!-- figures of ([a-z ]+) -->$`)
	partEnds   = "<!-- end of figures -->"
	unkept     = "## Taken before reports were kept"
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

// written gives a document with its marked parts as the reports have them. It refuses a table elsewhere that no report is kept of.
func written(text string, reports map[string]*Report) (string, error) {
	var out strings.Builder
	inside, old := false, false
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		begins := partBegins.FindStringSubmatch(line)
		switch {
		case line == partEnds:
			if !inside {
				return "", fmt.Errorf("line %d ends no part", n+1)
			}
			inside = false
		case begins != nil:
			if inside {
				return "", fmt.Errorf("line %d begins a part in another", n+1)
			}
			inside = true
			out.WriteString(line + "\n\n")
			if r := reports[begins[1]]; r == nil {
				fmt.Fprintf(&out, "Not measured in quiet yet: `docs/results` has no report of `skerry bench %s`.\n", begins[1])
			} else if err := r.WriteMarkdown(&out); err != nil {
				return "", err
			}
			out.WriteString("\n")
			continue
		case inside:
			continue
		case line == unkept:
			old = true
		case strings.HasPrefix(line, "## ") || strings.HasPrefix(line, "# "):
			old = false
		case strings.HasPrefix(strings.TrimSpace(line), "|") && !old:
			return "", fmt.Errorf("line %d is of a table that is made of no report: %.60s", n+1, line)
		}
		out.WriteString(line + "\n")
	}
	if inside {
		return "", fmt.Errorf("the last part has no %s", partEnds)
	}
	return out.String(), nil
}

// No figure of the documents is typed by hand.
func TestBenchmarksDocument(t *testing.T) {
	reports, err := published(os.DirFS(results))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range benchmarks {
		have, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := written(string(have), reports)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch {
		case want == string(have):
		case !*update:
			t.Errorf("%s is not what the reports in docs/results give: run make bench-docs", name)
		default:
			if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
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
	doc, err := written(head+partEnds+"\n\n"+unkept+"\n\n### Overlay\n\n| 1 |\n", reports)
	if err != nil || !strings.Contains(doc, "| agent.mem | 21.1 MiB | 21 to 24 |") || !strings.Contains(doc, "| 1 |") {
		t.Errorf("the document is %s, %v", doc, err)
	}
	if again, err := written(doc, reports); err != nil || again != doc {
		t.Errorf("written again it is %s, %v", again, err)
	}
	if changed, err := written(strings.Replace(doc, "21.1 MiB", "20.1 MiB", 1), reports); err != nil || changed != doc {
		t.Errorf("a figure changed by hand stays: %v\n%s", err, changed)
	}
	if none, err := written(doc, nil); err != nil || strings.Contains(none, "21.1") || !strings.Contains(none, "Not measured in quiet yet") {
		t.Errorf("without a report it is %s, %v", none, err)
	}
	for what, text := range map[string]string{"a table elsewhere": "| 1 |\n", "a table behind the old ones": unkept + "\n## New\n| 1 |\n",
		"a part without an end": head, "an end alone": partEnds + "\n", "a part in a part": head + head} {
		if _, err := written(text, reports); err == nil {
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
