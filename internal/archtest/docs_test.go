package archtest

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// top is the repository, as seen from this package.
const top = "../.."

const (
	// history says what was named at the time.
	history = "CHANGELOG.md"
	// cliReference is made from the program, by a test that compares them. Its text is code as a whole.
	cliReference = "docs/CLI.md"
)

// documentNames are names in documents that are right and are not in the code.
var documentNames = map[string][]string{
	// Flags of other programs: etcd, npm, rustc, curl, systemctl, runsc, the agent in Python, openapi-python-client.
	"flag": {"--max-request-bytes", "--max-txn-ops", "--ignore-scripts", "--target", "--cacert", "--json", "--now", "--network", "--cleanup", "--check", "--ignore-missing", "--signature", "--sbom",
		"--path", "--meta", "--output-path",
		// of every command, and of every skerry lab
		"--context", "--namespace", "--help", "--lab"},
	// Commands that no person calls, and so are not in the reference.
	"command": {"containerd-keep", "datapath", "shim", "vm-run", "wasm-run", "help", "completion"},
	"test":    {"TestName"}, // what a user puts in its place
	// A policy of placement, a site as an operand, and the two sides of a patch.
	"path": {"plugin/nearest", "cluster/harbour", "a/decide/reconcile/source.go", "b/decide/reconcile/source.go"},
	// The agent in Python.
	"metric": {"skerry_agent"},
}

// wideDocuments have lines of more than 120 columns outside of tables and examples: made by programs, or not rewritten yet. So may
// have those of docs/results.
var wideDocuments = []string{
	history, "docs/ATTACKS.md", "docs/BENCHMARKS.md", "docs/COMPARISON.md", cliReference, "docs/MANIFEST.md",
}

// document is a text for people.
type document struct {
	name  string
	lines []string
	code  []bool // whether the line is in a block of code
}

// prose gives the lines outside of code, each with its number.
func (d *document) prose(do func(n int, line string)) {
	for i, l := range d.lines {
		if !d.code[i] {
			do(i+1, l)
		}
	}
}

// spans gives what the document sets as code, within lines or as lines of their own.
func (d *document) spans(do func(n int, span string)) {
	text, last := "", 0
	flush := func() { // a span may go over the end of a line
		for _, m := range codeSpan.FindAllStringSubmatchIndex(text, -1) {
			do(last-strings.Count(text[m[0]:], "\n")+1, strings.ReplaceAll(text[m[2]:m[3]], "\n", " "))
		}
		text = ""
	}
	for i, l := range d.lines {
		switch {
		case d.code[i]:
			flush()
			do(i+1, l)
		case strings.TrimSpace(l) == "" || strings.HasPrefix(l, "|"):
			flush()
			text, last = l, i+1
			flush()
		default:
			text, last = text+l+"\n", i+1
		}
	}
	flush()
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// documents reads what is written for people, but for the history.
func documents(t *testing.T) []document {
	t.Helper()
	var out []document
	for _, name := range files(t, ".md") {
		if strings.Contains(name, "testdata/") || name == history {
			continue
		}
		text, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		d := document{name: name, lines: strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")}
		fenced, before := false, ""
		for _, l := range d.lines {
			fence := strings.HasPrefix(strings.TrimSpace(l), "```")
			indented := strings.HasPrefix(l, "    ") && (before == "" || len(d.code) > 0 && d.code[len(d.code)-1])
			d.code = append(d.code, fenced || fence || indented)
			if fence {
				fenced = !fenced
			}
			before = l
		}
		if fenced {
			t.Errorf("%s: a block of code does not end", name)
		}
		out = append(out, d)
	}
	if len(out) < 20 {
		t.Fatalf("only %d documents were found", len(out))
	}
	return out
}

// files lists files of the repository by the end of their names.
func files(t *testing.T, end string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // somebody's temporary file
		}
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && p != top && (name == ".git" || name == "node_modules" || name == "bin" || name == "dist") {
			return fs.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(name, end) {
			rel, _ := filepath.Rel(top, p)
			out = append(out, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func isDir(name string) bool {
	info, err := os.Stat(filepath.Join(top, name))
	return err == nil && info.IsDir()
}

func excepted(kind, name string) bool { return slices.Contains(documentNames[kind], name) }

var (
	aPath     = regexp.MustCompile(`^[A-Za-z.][\w.-]*(/[\w.*-]+)+/?$`)
	aPackage  = regexp.MustCompile(`^[a-z][a-z0-9]*(/[a-z0-9]+)*$`)
	aSymbol   = regexp.MustCompile(`\.[A-Z]\w*$`)
	aStandIn  = regexp.MustCompile(`/[A-Z]+$`)
	aPattern  = regexp.MustCompile(`(?:-run|RUN=)\s*['"]?[\w|^]*$`)
	aMake     = regexp.MustCompile(`(?:^|[^\w-])make ([a-z][a-z-]*)`)
	aTarget   = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	aFlag     = regexp.MustCompile(`(?:^|[\s"'(\[=])(--[a-z][a-z0-9-]*)`)
	aMetric   = regexp.MustCompile(`\bskerry_[a-z][a-z_]*`)
	aTest     = regexp.MustCompile("(?:`?([a-z][a-z0-9/]*)(?:` |\\.))?\\b((?:Test|Fuzz|Benchmark)[A-Z]\\w*)")
	aTestFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
	aCommand  = regexp.MustCompile(`(?:^|[#$;(|] *|sudo |-- |bin/|&& )skerry ([^|;)>&]+)`)
	aLink     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// Whatever path a document names, with a directory of the repository before its first slash, is there; so is every Go file. A table
// of packages, or a paragraph that begins so, names directories, and `skerry` is the root package.
func TestDocumentsNamePaths(t *testing.T) {
	found := 0
	check := func(d *document, n int, name string) {
		name = strings.TrimSuffix(name, "/")
		first, _, _ := strings.Cut(name, "/")
		if (!isDir(first) && path.Ext(name) != ".go") || first == "bin" || first == ".." || excepted("path", name) {
			return
		}
		found++
		if have, err := filepath.Glob(filepath.Join(top, filepath.FromSlash(strings.TrimSuffix(name, "/...")))); err != nil || len(have) == 0 {
			t.Errorf("%s:%d: there is no %s", d.name, n, name)
		}
	}
	for _, d := range documents(t) {
		packages := "" // where it names them: in a table, or in a paragraph
		d.prose(func(n int, line string) {
			cells := strings.Split(line, "|")
			switch {
			case strings.HasPrefix(line, "Packages"):
				packages = "paragraph"
			case strings.HasPrefix(line, "|") && strings.TrimSpace(cells[1]) == "package":
				packages = "table"
			case line == "" || packages == "table" && !strings.HasPrefix(line, "|"):
				packages = ""
			}
			if packages == "table" {
				line = cells[1]
			}
			for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
				if packages != "" && aPackage.MatchString(m[1]) && m[1] != "skerry" && !isDir(m[1]) {
					t.Errorf("%s:%d: there is no package %s", d.name, n, m[1])
				}
			}
		})
		d.spans(func(n int, span string) {
			for _, word := range strings.Fields(span) {
				word = aSymbol.ReplaceAllString(strings.TrimPrefix(strings.Trim(word, `"',:;()`), "./"), "")
				if aPath.MatchString(word) && !aStandIn.MatchString(word) {
					check(&d, n, word)
				}
			}
		})
	}
	if found < 200 {
		t.Errorf("only %d paths were found", found)
	}
}

func TestDocumentsNameTargets(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range aTarget.FindAllStringSubmatch(string(text), -1) {
		targets[m[1]] = true
	}
	found := 0
	for _, d := range documents(t) {
		if d.name == cliReference {
			continue
		}
		d.spans(func(n int, span string) {
			for _, m := range aMake.FindAllStringSubmatch(span, -1) {
				if found++; !targets[m[1]] {
					t.Errorf("%s:%d: there is no target %s", d.name, n, m[1])
				}
			}
		})
	}
	if found < 30 {
		t.Errorf("only %d targets were found", found)
	}
}

// make reads a recipe when its target is made, and not before: each is read here, and nothing of it is run.
func TestTargets(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range aTarget.FindAllStringSubmatch(string(text), -1) {
		cmd := exec.CommandContext(t.Context(), "make", "-n", m[1], "PKG=./lab", "NAME=name")
		cmd.Dir = top
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("make %s: %v\n%s", m[1], err, out)
		}
		if m[1] == "flaky" || m[1] == "olddata" { // they ask for what is named above
			continue
		}
		cmd = exec.CommandContext(t.Context(), "make", "-n", m[1])
		cmd.Dir = top
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("make %s without arguments: %v\n%s", m[1], err, out)
		}
	}
	long := exec.CommandContext(t.Context(), filepath.Join(top, "scripts/long"))
	if out, err := long.Output(); err != nil || !strings.Contains(string(out), "./e2e\n") || !strings.Contains(string(out), "./store\n") {
		t.Errorf("packages with long tests: %q, %v", out, err)
	}
}

func TestDocumentsNameTests(t *testing.T) {
	have := map[string]map[string]bool{} // by function: directories
	for _, name := range files(t, "_test.go") {
		text, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range aTestFunc.FindAllStringSubmatch(string(text), -1) {
			if have[m[1]] == nil {
				have[m[1]] = map[string]bool{}
			}
			have[m[1]][path.Dir(name)] = true
		}
	}
	names := slices.Collect(maps.Keys(have))
	found := 0
	for _, d := range documents(t) {
		for i, line := range d.lines {
			for _, at := range aTest.FindAllStringSubmatchIndex(line, -1) {
				dir, name := "", line[at[4]:at[5]]
				if at[2] >= 0 {
					dir = line[at[2]:at[3]]
				}
				pattern := aPattern.MatchString(line[:at[4]]) && slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, name) })
				if excepted("test", name) || pattern {
					continue
				}
				found++
				if dir == "skerry" {
					dir = "."
				}
				switch {
				case have[name] == nil:
					t.Errorf("%s:%d: there is no %s", d.name, i+1, name)
				case dir != "" && !have[name][dir]:
					t.Errorf("%s:%d: there is no %s in %s", d.name, i+1, name, dir)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d tests were found", found)
	}
}

// A metric is named in the program as a text, whole.
func TestDocumentsNameMetrics(t *testing.T) {
	have := map[string]bool{}
	for _, name := range files(t, ".go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range aMetric.FindAllString(string(text), -1) {
			have[m] = true
		}
	}
	found := 0
	for _, d := range documents(t) {
		for i, line := range d.lines {
			for _, m := range aMetric.FindAllString(line, -1) {
				if excepted("metric", m) {
					continue
				}
				if found++; !have[m] {
					t.Errorf("%s:%d: there is no metric %s", d.name, i+1, m)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no metric was found")
	}
}

// command is a command as the reference has it, which a test of cmd/skerry holds to the program.
type command struct {
	flags    map[string]bool
	usage    string // what follows its name; "" for one that only has others below it
	children bool
}

func reference(t *testing.T) map[string]*command {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, cliReference))
	if err != nil {
		t.Fatal(err)
	}
	heading, flag := regexp.MustCompile(`^##+ skerry (.+)$`), regexp.MustCompile(`^ +(?:-\w, )?(--[a-z][a-z0-9-]*)`)
	out := map[string]*command{}
	name := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if m := heading.FindStringSubmatch(line); m != nil {
			name = m[1]
			out[name] = &command{flags: map[string]bool{}}
			if above := path.Dir(strings.ReplaceAll(name, " ", "/")); above != "." {
				out[strings.ReplaceAll(above, "/", " ")].children = true
			}
		}
		if name == "" {
			continue
		}
		if usage, ok := strings.CutPrefix(line, "skerry "+name); ok {
			out[name].usage = strings.TrimSpace(usage)
		}
		if m := flag.FindStringSubmatch(line); m != nil {
			out[name].flags[m[1]] = true
		}
		if common, ok := strings.CutPrefix(line, "[Common flags](#common-flags): "); ok {
			for _, m := range aFlag.FindAllStringSubmatch(strings.ReplaceAll(common, "`", " "), -1) {
				out[name].flags[m[1]] = true
			}
		}
	}
	if len(out) < 80 {
		t.Fatalf("the reference has only %d commands; has its form changed?", len(out))
	}
	return out
}

// Commands that documents show are in the reference, with their flags; a flag that stands alone is one of some command.
func TestDocumentsNameFlags(t *testing.T) {
	commands := reference(t)
	flags := map[string]bool{}
	for _, c := range commands {
		for f := range c.flags {
			flags[f] = true
		}
	}
	found := 0
	for _, d := range documents(t) {
		if d.name == cliReference {
			continue
		}
		d.spans(func(n int, span string) {
			for _, m := range aFlag.FindAllStringSubmatch(span, -1) {
				if found++; !flags[m[1]] && !excepted("flag", m[1]) {
					t.Errorf("%s:%d: no command has the flag %s", d.name, n, m[1])
				}
			}
			for _, m := range aCommand.FindAllStringSubmatch(span, -1) {
				found++
				commandLine(t, d.name, n, m[1], commands)
			}
		})
	}
	if found < 300 {
		t.Errorf("only %d commands and flags were found", found)
	}
}

func commandLine(t *testing.T, doc string, n int, line string, commands map[string]*command) {
	t.Helper()
	line, _, _ = strings.Cut(line, " #")
	words := strings.Fields(line)
	for len(words) > 2 && (words[0] == "--context" || words[0] == "-n" || words[0] == "--lab") {
		words = words[2:]
	}
	if len(words) == 0 || excepted("command", words[0]) || !regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(words[0]) {
		return
	}
	name := words[0]
	for _, w := range words[1:] {
		if commands[name+" "+w] == nil {
			break
		}
		name += " " + w
	}
	c, rest := commands[name], words[min(len(words), strings.Count(name, " ")+1):]
	if c == nil {
		t.Errorf("%s:%d: there is no command skerry %s", doc, n, name)
		return
	}
	word := len(rest) > 0 && regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(rest[0])
	if word && c.children && (c.usage == "" || c.usage == "[flags]") {
		t.Errorf("%s:%d: there is no command skerry %s %s", doc, n, name, rest[0])
	}
	if strings.HasPrefix(name, "exec") || strings.HasPrefix(name, "lab exec") {
		return // what follows is another command's
	}
	for _, m := range aFlag.FindAllStringSubmatch(" "+strings.Join(rest, " "), -1) {
		if !c.flags[m[1]] && !excepted("flag", m[1]) {
			t.Errorf("%s:%d: skerry %s has no flag %s", doc, n, name, m[1])
		}
	}
}

// Links within the repository lead to one place each, at the heading as well. A heading that stands twice is most often a part of the
// document that does.
func TestDocumentsLink(t *testing.T) {
	all := documents(t)
	anchors := map[string]map[string]bool{}
	for _, d := range all {
		anchors[d.name] = map[string]bool{}
		d.prose(func(n int, line string) {
			if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
				if anchors[d.name][anchor(title)] {
					t.Errorf("%s:%d: the heading %q stands twice", d.name, n, title)
				}
				anchors[d.name][anchor(title)] = true
			}
		})
	}
	for _, d := range all {
		d.prose(func(n int, line string) {
			for _, m := range aLink.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, ""), -1) {
				to, at, _ := strings.Cut(m[1], "#")
				if strings.Contains(to, ":") {
					continue
				}
				name := d.name
				if to != "" {
					name = path.Join(path.Dir(d.name), to)
				}
				if _, err := os.Stat(filepath.Join(top, name)); err != nil {
					t.Errorf("%s:%d: there is no %s", d.name, n, name)
				} else if known := anchors[name]; at != "" && known != nil && !known[at] {
					t.Errorf("%s:%d: %s has no heading #%s", d.name, n, name, at)
				}
			}
		})
	}
}

// anchor is what GitHub makes of a heading.
func anchor(title string) string {
	keep := func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
			return r
		}
		return -1
	}
	return strings.Map(keep, strings.ToLower(title))
}

func TestDocumentsAreNarrow(t *testing.T) {
	for _, d := range documents(t) {
		if slices.Contains(wideDocuments, d.name) || strings.HasPrefix(d.name, "docs/results/") {
			continue
		}
		for i, line := range d.lines {
			if n := utf8.RuneCountInString(line); n > 120 && !strings.HasPrefix(line, "|") && !d.code[i] {
				t.Errorf("%s:%d: %d columns", d.name, i+1, n)
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(top, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > 100 {
		t.Errorf("README.md has %d lines; a stranger must find the door in 100", n)
	}
}
