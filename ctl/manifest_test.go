package ctl

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/ctl/console"
)

func TestSplitDocuments(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"one", "a: 1\n", []string{"a: 1\n"}},
		{"two", "a: 1\n---\nb: 2\n", []string{"a: 1\n", "b: 2\n"}},
		{"leading separator and comment", "# head\n---\na: 1\n", []string{"a: 1\n"}},
		{"trailing separators", "a: 1\n---\n---\n# end\n", []string{"a: 1\n"}},
		{"windows line ends", "a: 1\r\n---\r\nb: 2\r\n", []string{"a: 1\r\n", "b: 2\r\n"}},
		{"content on the separator's line", "--- {a: 1}\n--- # comment\nb: 2", []string{"{a: 1}\n", "b: 2"}},
		{"end marker", "a: 1\n...\n---\nb: 2\n", []string{"a: 1\n", "b: 2\n"}},
		{"dashes inside", "a: |\n  ---\n  x\n----\n", []string{"a: |\n  ---\n  x\n----\n"}},
		{"directive", "%YAML 1.2\n---\na: 1\n", []string{"a: 1\n"}},
		{"byte order mark", "\ufeffa: 1\n", []string{"a: 1\n"}},
		{"nothing", "\n# only this\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			docs, err := splitDocuments("f", []byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range docs {
				got = append(got, string(d.yaml))
			}
			if strings.Join(got, "|") != strings.Join(c.want, "|") {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if _, err := splitDocuments("f", []byte("a: \xff\n")); err == nil {
		t.Error("broken UTF-8 was taken")
	}
}

func TestReadDocuments(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.yaml": "metadata: {name: b}\n---\nmetadata: {name: c}\n", "a.json": `{"metadata":{"name":"a"}}`, "notes.txt": "no"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	docs, err := readDocuments([]string{dir, "-"}, strings.NewReader("metadata: {name: d, namespace: other}"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range docs {
		k, err := d.key("here")
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, k.String())
	}
	if got := strings.Join(names, " "); got != "here/a here/b here/c other/d" {
		t.Errorf("got %s", got)
	}
	if w := docs[2].where(); w != filepath.Join(dir, "b.yaml")+", document 2" {
		t.Errorf("the third is at %q", w)
	}
	for _, names := range [][]string{nil, {"-"}, {filepath.Join(dir, "missing")}, {t.TempDir()}} {
		if _, err := readDocuments(names, strings.NewReader("# nothing")); err == nil {
			t.Errorf("%q was taken", names)
		}
	}
}

func TestInNamespace(t *testing.T) {
	d := document{yaml: []byte("metadata: {name: a}\nspec: {services: []}\n")}
	if got := string(d.inNamespace("default")); got != string(d.yaml) {
		t.Errorf("the default changed it: %s", got)
	}
	if got := string(d.inNamespace("x")); !strings.Contains(got, "namespace: x") || !strings.Contains(got, "services: []") {
		t.Errorf("got %s", got)
	}
	d.yaml = []byte("metadata: {name: a, namespace: own}\n")
	if got := string(d.inNamespace("x")); !strings.Contains(got, "own") {
		t.Errorf("got %s", got)
	}
}

func TestErrorsNameTheDocument(t *testing.T) {
	d := document{file: "shop.yaml", n: 2, of: 3}
	err := d.at(&skerry.Error{Code: skerry.CodeInvalid, Message: "the manifest is not valid", Hint: "read", Problems: []skerry.Problem{{Path: "spec", Message: "is missing", Hint: "add it"}}})
	var b bytes.Buffer
	console.PrintError(&b, err)
	want := "error: shop.yaml, document 2: the manifest is not valid\n  spec: is missing (add it)\nhint: read\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	b.Reset()
	console.PrintError(&b, errors.New("plain"))
	if b.String() != "error: plain\n" {
		t.Errorf("got %s", b.String())
	}
	b.Reset()
	console.PrintError(&b, skerry.Errorf(skerry.CodeConflict, "worker w1 keeps its program: \x1b]0;title\a\u202e").WithHint("a\rb"))
	if b.String() != "error: worker w1 keeps its program:  ]0;title  \nhint: a b\n" {
		t.Errorf("an error with control characters is shown as %q", b.String())
	}
}

func FuzzSplitDocuments(f *testing.F) {
	f.Add([]byte("a: 1\n---\nb: 2\n"))
	f.Add([]byte("--- x\n...\n---"))
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := splitDocuments("f", data)
		if err != nil {
			return
		}
		n := 0
		for _, d := range docs {
			n += len(d.yaml)
			d.key("default")
			d.inNamespace("other")
		}
		if n > len(data)+len(docs) {
			t.Errorf("%d bytes of documents of %d", n, len(data))
		}
	})
}

// TestAliasesOfFiles: a file that is small only because of its aliases is refused before it is read as another format.
func TestAliasesOfFiles(t *testing.T) {
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nx: &a " + strings.Repeat("x", 1<<20) + "\ny:\n" + strings.Repeat("- *a\n", 3000)
	_, err := readDocuments([]string{"-"}, strings.NewReader(text))
	if err == nil || skerry.AsError(err).Code != skerry.CodeTooLarge {
		t.Errorf("the file was read: %v", err)
	}
}
