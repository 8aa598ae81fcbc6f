package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// dir is where the mutations are, below the module's directory.
const dir = "scripts/mutate/mutations"

// mutation is one small wrong change and the tests that are expected to notice it.
type mutation struct {
	name     string   // of the file, without .patch
	sentence string   // what the change does wrong
	packages []string // expected to notice, in the order in which they run
	run      string   // only these of their tests, as in go test -run; empty: all
	hunks    []hunk
}

// hunk replaces one text in a file by another. Line numbers of the patch are ignored: the old text must occur exactly once.
type hunk struct {
	file     string
	old, new string
}

// readAll reads all mutations of a directory, in the order of their names.
func readAll(dir string) ([]*mutation, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var out []*mutation
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		m, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(f), err)
		}
		m.name = strings.TrimSuffix(filepath.Base(f), ".patch")
		out = append(out, m)
	}
	return out, nil
}

// parse reads the header, lines that begin with "# ", and the unified diff after it.
func parse(text string) (*mutation, error) {
	m := &mutation{}
	var file string
	var cur *hunk
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		comment, header := strings.CutPrefix(line, "# ")
		switch {
		case header && file == "":
			if list, ok := strings.CutPrefix(comment, "packages:"); ok {
				m.packages = strings.Fields(list)
			} else if run, ok := strings.CutPrefix(comment, "run:"); ok {
				m.run = strings.TrimSpace(run)
			} else {
				m.sentence = strings.TrimSpace(m.sentence + " " + comment)
			}
		case strings.HasPrefix(line, "--- ") && (cur == nil || strings.HasPrefix(line, "--- a/")):
			cur = nil
		case strings.HasPrefix(line, "+++ b/") && cur == nil:
			if file = strings.TrimPrefix(line, "+++ b/"); !filepath.IsLocal(file) {
				return nil, fmt.Errorf("%q is outside of the tree", file)
			}
		case strings.HasPrefix(line, "@@") && file != "":
			m.hunks = append(m.hunks, hunk{file: file})
			cur = &m.hunks[len(m.hunks)-1]
		case cur == nil:
			return nil, fmt.Errorf("line %d is neither header nor diff: %q", n+1, line)
		case strings.HasPrefix(line, "-"):
			cur.old += line[1:] + "\n"
		case strings.HasPrefix(line, "+"):
			cur.new += line[1:] + "\n"
		case strings.HasPrefix(line, " "), line == "": // editors cut trailing blanks
			both := strings.TrimPrefix(line, " ") + "\n"
			cur.old += both
			cur.new += both
		default:
			return nil, fmt.Errorf("line %d is not of a unified diff: %q", n+1, line)
		}
	}
	switch {
	case m.sentence == "":
		return nil, errors.New("no sentence says what the mutation does wrong")
	case len(m.packages) == 0:
		return nil, errors.New(`no line "# packages:" names the packages that are expected to notice`)
	case len(m.hunks) == 0:
		return nil, errors.New("there is no hunk")
	}
	if _, err := regexp.Compile(m.run); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	for _, h := range m.hunks {
		if h.old == h.new || strings.TrimSpace(h.old) == "" {
			return nil, fmt.Errorf("a hunk of %s changes nothing, or has no old text", h.file)
		}
	}
	return m, nil
}

// files lists what the mutation changes.
func (m *mutation) files() (out []string) {
	for _, h := range m.hunks {
		if !slices.Contains(out, h.file) {
			out = append(out, h.file)
		}
	}
	return out
}

// changedPackages lists the packages of these files.
func (m *mutation) changedPackages() (out []string) {
	for _, f := range m.files() {
		if pkg := "./" + filepath.Dir(f); !slices.Contains(out, pkg) {
			out = append(out, pkg)
		}
	}
	return out
}

// change gives the text of a file with the mutation.
func (m *mutation) change(file, text string) (string, error) {
	for _, h := range m.hunks {
		if h.file != file {
			continue
		}
		// Whole lines only: the text begins one.
		switch n := strings.Count("\n"+text, "\n"+h.old); n {
		case 1:
			text = strings.Replace("\n"+text, "\n"+h.old, "\n"+h.new, 1)[1:]
		case 0:
			return "", fmt.Errorf("%s: stale patch: %s does not have the text\n%s", m.name, file, h.old)
		default:
			return "", fmt.Errorf("%s: ambiguous patch: %s has this text %d times:\n%s", m.name, file, n, h.old)
		}
	}
	return text, nil
}

// changed gives the mutated text of each file of a tree that the mutation changes, and what was there before.
func (m *mutation) changed(tree string) (before, after map[string]string, err error) {
	before, after = map[string]string{}, map[string]string{}
	for _, f := range m.files() {
		text, err := os.ReadFile(filepath.Join(tree, f))
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", m.name, err)
		}
		before[f] = string(text)
		if after[f], err = m.change(f, before[f]); err != nil {
			return nil, nil, err
		}
	}
	return before, after, nil
}

// applyTo writes the mutation into a tree. undo takes it back; it may be called more than once.
func (m *mutation) applyTo(tree string) (undo func(), err error) {
	before, after, err := m.changed(tree)
	if err != nil {
		return nil, err
	}
	undo = func() {
		for f, text := range before {
			if err := os.WriteFile(filepath.Join(tree, f), []byte(text), 0o644); err != nil {
				panic("the copy of the tree cannot be written: " + err.Error())
			}
		}
	}
	for f, text := range after {
		if err := os.WriteFile(filepath.Join(tree, f), []byte(text), 0o644); err != nil {
			undo()
			return nil, err
		}
	}
	return undo, nil
}
