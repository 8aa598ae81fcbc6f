package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// What is too long to be read at a glance: lines of more columns, and functions of more lines.
const (
	goalColumns  = 140
	goalFunction = 80
)

// How many there are of each. The numbers only ever fall: shorten what you touch, and write the new number here.
const (
	longLines     = 2039
	longFunctions = 58
)

func TestLengths(t *testing.T) {
	lines, functions := 0, 0
	for _, s := range load(t) {
		if s.gen {
			continue
		}
		text, err := os.ReadFile(filepath.Join(top, s.path))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > goalColumns {
				lines++
			}
		}
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && !s.test && s.fset.Position(f.End()).Line-s.fset.Position(f.Pos()).Line >= goalFunction {
				functions++
			}
		}
	}
	for what, n := range map[string][2]int{"lines of more than 140 columns": {lines, longLines}, "functions of more than 80 lines": {functions, longFunctions}} {
		switch {
		case n[0] > n[1]:
			t.Errorf("there are %d %s, %d more than before: break up those that you have added", n[0], what, n[0]-n[1])
		case n[0] < n[1]-20:
			t.Errorf("there are only %d %s left: write that number into this file", n[0], what)
		}
	}
}
