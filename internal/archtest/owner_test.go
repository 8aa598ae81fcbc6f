package archtest

import (
	"go/ast"
	"slices"
	"testing"
)

// owned are fields that only one file of their package may change: of the type that the file is about, and of another one, where it is
// called by one name everywhere.
var owned = []struct {
	dir, file string
	fields    []string // of any variable
	of        string   // a variable, and
	its       []string // its fields
}{
	{"cluster", "cluster/ledger.go",
		[]string{"places", "byApp", "byWorker", "limits", "groups", "waiting", "making", "removing", "moving", "stranded", "originals", "watched", "astray", "asking", "grew", "notes"},
		"p", []string{"Worker", "Removing", "Next", "Original"}},
}

// TestOwners has state be changed only where its invariants are kept.
func TestOwners(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range load(t) {
		for _, o := range owned {
			if s.test || s.dir != o.dir {
				continue
			}
			change := func(e ast.Expr) {
				direct := true // the field itself, and nothing that it leads to
				for {
					switch x := e.(type) {
					case *ast.IndexExpr:
						e, direct = x.X, false
						continue
					case *ast.SelectorExpr:
						v, _ := x.X.(*ast.Ident)
						if slices.Contains(o.fields, x.Sel.Name) || direct && v != nil && v.Name == o.of && slices.Contains(o.its, x.Sel.Name) {
							if seen[o.file] = true; s.path != o.file {
								t.Errorf("%s: %s is changed; only %s changes it", s.at(x), x.Sel.Name, o.file)
							}
						}
					}
					return
				}
			}
			ast.Inspect(s.ast, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for _, e := range n.Lhs {
						change(e)
					}
				case *ast.IncDecStmt:
					change(n.X)
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") && len(n.Args) > 0 {
						change(n.Args[0])
					}
				}
				return true
			})
		}
	}
	for _, o := range owned {
		if !seen[o.file] {
			t.Errorf("%s changes nothing of what it owns", o.file)
		}
	}
}

// TestPartsWithoutCore has the parts of the cluster's core know what they name, and never the core: only the server
// beside it does, and what tells the core's own business on. A function that takes the core would be a part that can
// reach everything.
func TestPartsWithoutCore(t *testing.T) {
	core := func(e ast.Expr) bool {
		star, ok := e.(*ast.StarExpr)
		if !ok {
			return false
		}
		id, ok := star.X.(*ast.Ident)
		return ok && id.Name == "Core"
	}
	seen := false
	for _, s := range load(t) {
		if s.test || s.dir != "cluster" {
			continue
		}
		for _, d := range s.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				for _, f := range d.Type.Params.List {
					if core(f.Type) {
						t.Errorf("%s: %s takes the core; let a part of its own have what it needs", s.at(d), d.Name.Name)
					}
				}
			case *ast.GenDecl:
				for _, sp := range d.Specs {
					ts, ok := sp.(*ast.TypeSpec)
					if !ok {
						continue
					}
					st, ok := ts.Type.(*ast.StructType)
					if !ok {
						continue
					}
					for _, f := range st.Fields.List {
						if !core(f.Type) {
							continue
						}
						if seen = true; ts.Name.Name != "sequels" {
							t.Errorf("%s: %s has the core; let it have the parts that it asks", s.at(f), ts.Name.Name)
						}
					}
				}
			}
		}
	}
	if !seen {
		t.Error("nothing tells the core's business on: this test looks for the wrong names")
	}
}
