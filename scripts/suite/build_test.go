package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// What is built without the race detector starts no goroutine. The simulator does, to run several fleets side by side that share nothing.
func TestPureStartNoGoroutine(t *testing.T) {
	const top = "../.."
	seen := 0
	err := filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		dir, err := filepath.Rel(top, filepath.Dir(file))
		if err != nil || dir == "sim" || !pure.MatchString(path.Join(module, filepath.ToSlash(dir))) {
			return err
		}
		seen++
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s: a goroutine in a package that the race detector does not see", files.Position(g.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 20 {
		t.Errorf("only %d files were looked at", seen)
	}
}
