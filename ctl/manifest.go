package ctl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/yamlsize"
	"skerry.dev/skerry/spec"
)

// document is one manifest of a file.
type document struct {
	file string
	n    int // of the documents in the file, from 1
	of   int
	line int // of the file on which it begins, from 1; 0: it was made from what the file has
	yaml []byte
}

// where names the document in messages.
func (d *document) where() string {
	if d.of > 1 {
		return fmt.Sprintf("%s, document %d", d.file, d.n)
	}
	return d.file
}

// stdinName names the standard input among files.
const stdinName = "standard input"

// maxFile bounds what is read of one file: several manifests.
const maxFile = 64 << 20

// readDocuments reads the manifests of files, folders (their *.yaml, *.yml and *.json, in order of name) and the standard
// input, which is "-".
func readDocuments(names []string, stdin io.Reader) ([]document, error) {
	if len(names) == 0 {
		return nil, skerry.Errorf(skerry.CodeInvalid, "no manifest is given").
			WithHint("give a file or directory with -f; -f - reads standard input")
	}
	var out []document
	for _, name := range names {
		if name == "-" {
			data, err := readLimited(stdin, stdinName)
			if err != nil {
				return nil, err
			}
			docs, err := splitDocuments(stdinName, data)
			if err != nil {
				return nil, err
			}
			out = append(out, docs...)
			continue
		}
		files, err := manifestFiles(name)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			docs, err := readFile(file)
			if err != nil {
				return nil, err
			}
			out = append(out, docs...)
		}
	}
	if len(out) == 0 {
		return nil, skerry.Errorf(skerry.CodeInvalid, "%s contains no manifest", strings.Join(names, ", "))
	}
	for i := range out {
		if err := yamlsize.Check(out[i].yaml, maxFile); err != nil {
			return nil, out[i].at(err)
		}
	}
	return unwrap(out)
}

func readFile(file string) ([]document, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := readLimited(f, file)
	if err != nil {
		return nil, err
	}
	return splitDocuments(file, data)
}

func readLimited(r io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(data) > maxFile {
		return nil, skerry.Errorf(skerry.CodeTooLarge, "%s is larger than %s", name, skerry.Bytes(maxFile)).
			WithHint("the limit is %s; put large files into an image", skerry.Bytes(spec.MaxManifest))
	}
	return data, nil
}

func manifestFiles(name string) ([]string, error) {
	fi, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, skerry.Errorf(skerry.CodeNotFound, "there is no file %s", name)
	}
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) && !e.IsDir() {
			out = append(out, filepath.Join(name, e.Name()))
		}
	}
	if len(out) == 0 {
		return nil, skerry.Errorf(skerry.CodeNotFound, "directory %s contains no .yaml, .yml or .json file", name)
	}
	return out, nil
}

// splitDocuments splits YAML at lines of "---". Documents that hold nothing but comments do not count.
func splitDocuments(file string, data []byte) ([]document, error) {
	if !utf8.Valid(data) {
		return nil, skerry.Errorf(skerry.CodeInvalid, "%s is not valid UTF-8", file).WithHint("save the file as UTF-8")
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	var out []document
	var cur []byte
	number, begin := 0, 1 // lines: this one, and the first of cur
	flush := func() {
		if !blank(cur) {
			out = append(out, document{file: file, n: len(out) + 1, line: begin, yaml: cur})
		}
		cur, begin = nil, number+1
	}
	for line := range bytes.Lines(data) {
		number++
		if rest, ok := bytes.CutPrefix(line, []byte("---")); ok && (len(bytes.TrimSpace(rest)) == 0 || rest[0] == ' ' || rest[0] == '\t') {
			flush()
			if rest = bytes.TrimSpace(rest); len(rest) > 0 && rest[0] != '#' {
				begin = number
				cur = append(append(cur, rest...), '\n')
			}
			continue
		}
		if t := bytes.TrimRight(line, " \t\r\n"); string(t) == "..." {
			flush()
			continue
		}
		cur = append(cur, line...)
	}
	flush()
	for i := range out {
		out[i].of = len(out)
	}
	return out, nil
}

// blank tells whether a document holds only comments, directives and white space.
func blank(data []byte) bool {
	for line := range bytes.Lines(data) {
		t := bytes.TrimSpace(line)
		if len(t) > 0 && t[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// key reads the name of a document's application, as far as it can be read.
func (d *document) key(namespace string) (skerry.AppKey, error) {
	var m struct {
		Metadata struct{ Name, Namespace string }
	}
	if err := yaml.Unmarshal(d.yaml, &m); err != nil {
		return skerry.AppKey{}, d.syntax(err)
	}
	if m.Metadata.Namespace == "" {
		m.Metadata.Namespace = namespace
	}
	k := skerry.AppKey{Namespace: m.Metadata.Namespace, Name: m.Metadata.Name}
	if k.Name == "" {
		return k, skerry.Errorf(skerry.CodeInvalid, "%s: metadata.name is missing", d.where())
	}
	return k, nil
}

// inNamespace gives the document with a namespace, if it names none and another than the default is wanted. A document
// that is no mapping is given as it is: the server says what is wrong with it.
func (d *document) inNamespace(ns string) []byte {
	if ns == spec.DefaultNamespace {
		return d.yaml
	}
	var m map[string]any
	if yaml.UnmarshalStrict(d.yaml, &m) != nil {
		return d.yaml
	}
	meta, ok := m["metadata"].(map[string]any)
	if !ok || meta["namespace"] != nil {
		return d.yaml
	}
	meta["namespace"] = ns
	out, err := yaml.Marshal(m)
	if err != nil {
		return d.yaml
	}
	return out
}
