package main

import (
	"bytes"
	"context"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMutationsApply: each mutation still fits the code, leaves Go that parses, and names tests that exist.
func TestMutationsApply(t *testing.T) {
	const top = "../.."
	list, err := readAll("mutations")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 12 {
		t.Errorf("%d mutations", len(list))
	}
	for _, m := range list {
		_, after, err := m.changed(top)
		if err != nil {
			t.Error(err)
			continue
		}
		for file, text := range after {
			if _, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
		first, _, _ := strings.Cut(m.run, "/")
		match := regexp.MustCompile(first)
		for _, pkg := range m.packages {
			found := false
			files, _ := filepath.Glob(filepath.Join(top, pkg, "*_test.go"))
			for _, f := range files {
				text, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				for _, fn := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(`).FindAllSubmatch(text, -1) {
					found = found || match.Match(fn[1])
				}
			}
			if !found {
				t.Errorf("%s: no test of %s matches %q", m.name, pkg, m.run)
			}
		}
	}
}

const header = "# It does something wrong.\n# packages: .\n"

func TestParse(t *testing.T) {
	m, err := parse("# It does\n# something wrong.\n# packages: ./a ./b\n# run: TestX\n" +
		"--- a/x.go\n+++ b/x.go\n@@ -1,3 +1,2 @@ func f()\n one\n-two\n+2\n\n@@\n-three\n--- a/y.go\n+++ b/y.go\n@@\n+new\n old\n")
	if err != nil {
		t.Fatal(err)
	}
	read := strings.Join([]string{m.sentence, strings.Join(m.packages, " "), m.run, strings.Join(m.files(), " ")}, "; ")
	if read != "It does something wrong.; ./a ./b; TestX; x.go y.go" {
		t.Errorf("read as %+v", m)
	}
	if got, err := m.change("x.go", "zero\none\ntwo\n\nthree\nfour\n"); err != nil || got != "zero\none\n2\n\nfour\n" {
		t.Errorf("%q, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                       "neither header nor diff",
		"# packages: .\n":        "no sentence",
		"# It does something.\n": "packages",
		header:                   "no hunk",
		header + "# run: (\n" + "--- a/x\n+++ b/x\n@@\n-a\n+b\n":      "run:",
		header + "--- a/x\n+++ b/../x\n@@\n-a\n":                      "outside",
		header + "--- a/x\n+++ b/x\n@@\n a\n":                         "changes nothing",
		header + "--- a/x\n+++ b/x\n@@\n+a\n":                         "no old text",
		header + "--- a/x\n+++ b/x\n@@\n-a\nwhat is this\n":           "not of a unified diff",
		header + "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@\n-a\n+b\n": "neither header nor diff",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v does not say %q", text, err, want)
		}
	}
}

func TestStale(t *testing.T) {
	m, err := parse(header + "--- a/x\n+++ b/x\n@@\n-a\n+b\n")
	if err != nil {
		t.Fatal(err)
	}
	m.name = "07-lost"
	for text, want := range map[string]string{"c\n": "07-lost: stale", "aa\n": "07-lost: stale", "a\nc\na\n": "07-lost: ambiguous"} {
		if _, err := m.change("x", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v does not say %q", text, err, want)
		}
	}
}

const testOne = `package m

import "testing"

func TestOne(t *testing.T) {
	if Twice(1) != 2 {
		t.Error("wrong")
	}
}
`

const testTwo = `package other

import (
	"testing"

	"example.com/m"
)

func TestTwo(t *testing.T) {
	if m.Twice(2) != 4 {
		t.Error("wrong")
	}
}
`

// tree makes a module under git with one function, whose tests see only some of what may be wrong with it.
func tree(t *testing.T, mutations map[string]string) (top, tmp string) {
	t.Helper()
	top, tmp = t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	files := map[string]string{
		"go.mod":             "module example.com/m\n\ngo 1.26\n",
		"m.go":               "package m\n\nfunc Twice(n int) int {\n\tif n == 7 {\n\t\treturn 14\n\t}\n\treturn n + n\n}\n",
		"m_test.go":          testOne,
		"other/o.go":         "package other\n",
		"other/o_test.go":    testTwo,
		"untracked.txt":      "x",
		"ignored/broken.go":  "package ?",
		".gitignore":         "/ignored/\n",
		dir + "/.keep":       "",
		"gone/uncommitted.t": "",
	}
	for name, diff := range mutations {
		files[dir+"/"+name+".patch"] = diff
	}
	for name, text := range files {
		p := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "m.go", "gone"}} {
		if out, err := exec.Command("git", append([]string{"-C", top}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	if err := os.RemoveAll(filepath.Join(top, "gone")); err != nil {
		t.Fatal(err)
	}
	return top, tmp
}

func patch(sentence, packages, old, new string) string {
	return "# " + sentence + "\n# packages: " + packages + "\n--- a/m.go\n+++ b/m.go\n@@\n-" + old + "\n+" + new + "\n"
}

// untouched fails unless the working tree is as it was and no copy of it is left.
func untouched(t *testing.T, top, tmp string) {
	t.Helper()
	if text, err := os.ReadFile(filepath.Join(top, "m.go")); err != nil || !bytes.Contains(text, []byte("return n + n")) {
		t.Errorf("the working tree was changed: %s %v", text, err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestVerdicts(t *testing.T) {
	top, tmp := tree(t, map[string]string{
		"01-killed":   patch("It is thrice.", ". ./other", "\treturn n + n", "\treturn n + n + n"),
		"02-survived": patch("Seven is special.", ".", "\t\treturn 14", "\t\treturn 15"),
		"03-missed":   patch("One is right.", ".", "\treturn n + n", "\treturn n + 1"),
		"04-broken":   patch("It is no Go.", ".", "\treturn n + n", "\treturn n +"),
	})
	var out bytes.Buffer
	bad, err := mutate(t.Context(), &out, top, "", []string{".", "./other"})
	if err != nil || bad != 3 {
		t.Errorf("%d are not killed, want 3: %v", bad, err)
	}
	for name, want := range map[string]string{
		"01-killed":   "killed by . TestOne",
		"02-survived": "SURVIVED",
		"03-missed":   "MISSED by the packages that it names, killed by ./other TestTwo",
		"04-broken":   "ERROR: does not compile",
	} {
		if !regexp.MustCompile("(?m)^" + name + " +" + regexp.QuoteMeta(want)).Match(out.Bytes()) {
			t.Errorf("%s: not %q in\n%s", name, want, out.String())
		}
	}
	if !strings.Contains(out.String(), "    Seven is special.\n") || !strings.Contains(out.String(), "1 killed, 3 not") {
		t.Errorf("it says\n%s", out.String())
	}
	untouched(t, top, tmp)

	out.Reset()
	if bad, err := mutate(t.Context(), &out, top, "^01", nil); bad != 0 || err != nil || strings.Contains(out.String(), "02") {
		t.Errorf("%d, %v:\n%s", bad, err, out.String())
	}
	if _, err := mutate(t.Context(), &out, top, "none", nil); err == nil {
		t.Error("a pattern that matches nothing is accepted")
	}
}

// What does not pass by itself cannot kill anything, and neither can a test that does not run.
func TestBaseline(t *testing.T) {
	thrice := patch("It is thrice.", ".", "\treturn n + n", "\treturn n + n + n")
	for want, edit := range map[string]func(top string) error{
		"fails without any mutation": func(top string) error {
			return os.WriteFile(filepath.Join(top, "a_test.go"), []byte("package m\n\nimport \"os\"\n\nfunc init() { os.Exit(1) }\n"), 0o644)
		},
		"matches \"TestGone\"": func(top string) error {
			return os.WriteFile(filepath.Join(top, dir, "01.patch"), []byte(strings.Replace(thrice, "---", "# run: TestGone\n---", 1)), 0o644)
		},
		"01: stale patch": func(top string) error {
			return os.WriteFile(filepath.Join(top, dir, "01.patch"), []byte(strings.Replace(thrice, "n + n", "n * 2", 1)), 0o644)
		},
	} {
		top, tmp := tree(t, map[string]string{"01": thrice})
		if err := edit(top); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		bad, err := mutate(t.Context(), &out, top, "", nil)
		told := out.String()
		if err != nil {
			told += err.Error()
		}
		if err == nil && bad != 1 || !strings.Contains(told, want) {
			t.Errorf("%q is not said: %d not killed, %s", want, bad, told)
		}
		untouched(t, top, tmp)
	}
}

func TestInterrupted(t *testing.T) {
	top, tmp := tree(t, map[string]string{"01": patch("It never ends.", ".", "\treturn n + n", "\tselect {}")})
	ctx, cancel := context.WithCancel(t.Context())
	out := &stopper{at: "passes", stop: cancel}
	if _, err := mutate(ctx, out, top, "", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	untouched(t, top, tmp)
}

// stopper interrupts when something is said.
type stopper struct {
	at   string
	stop func()
}

func (s *stopper) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.at) {
		s.stop()
	}
	return len(p), nil
}
