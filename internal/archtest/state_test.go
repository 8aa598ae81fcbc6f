package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// stateful types make no sense at package level but as state.
var stateful = []string{"Mutex", "RWMutex", "Once", "Map", "WaitGroup", "Cond", "Int32", "Int64", "Uint32", "Uint64", "Bool", "Pointer", "Value"}

// TestNoPackageState lets variables at package level be errors, assertions and tables that say what they are and never
// change.
func TestNoPackageState(t *testing.T) {
	vars := map[string]map[string]bool{} // package -> name
	files := load(t)
	for _, s := range files {
		if s.test {
			continue
		}
		for _, d := range s.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				documented := g.Doc != nil || v.Doc != nil || v.Comment != nil
				for _, name := range v.Names {
					if name.Name == "_" {
						continue
					}
					if vars[s.dir] == nil {
						vars[s.dir] = map[string]bool{}
					}
					vars[s.dir][name.Name] = true
					isErr := strings.HasPrefix(name.Name, "Err") || strings.HasPrefix(name.Name, "err")
					// What the linker sets is a variable because it cannot be a constant.
					linked := s.ast.Name.Name == "main" && name.Name == "version"
					if !isErr && !documented && !linked {
						t.Errorf("%s: variable %s at package level: make it a field or a constant, or say in a comment which table it is", s.at(name), name.Name)
					}
					if sel, ok := v.Type.(*ast.SelectorExpr); ok && slices.Contains(stateful, sel.Sel.Name) {
						t.Errorf("%s: variable %s is state at package level; make it a field", s.at(name), name.Name)
					}
				}
			}
		}
	}
	for _, s := range files {
		if s.test || vars[s.dir] == nil {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					for _, e := range n.Lhs {
						changed(t, s, vars[s.dir], e)
					}
				}
			case *ast.IncDecStmt:
				changed(t, s, vars[s.dir], n.X)
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") && f.Obj == nil && len(n.Args) > 0 {
					changed(t, s, vars[s.dir], n.Args[0])
				}
			}
			return true
		})
	}
}

// changed reports an expression that changes a variable of the package, or what it holds.
func changed(t *testing.T, s source, vars map[string]bool, e ast.Expr) {
	t.Helper()
	for {
		switch x := e.(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.Ident:
			// An object of the file that is no declaration at package level is a local variable of that name.
			if x.Obj != nil {
				if spec, ok := x.Obj.Decl.(*ast.ValueSpec); !ok || s.ast.Scope.Lookup(x.Name) == nil || s.ast.Scope.Lookup(x.Name).Decl != spec {
					return
				}
			}
			if vars[x.Name] {
				t.Errorf("%s: %s is changed; a variable at package level is a table that never changes", s.at(x), x.Name)
			}
			return
		default:
			return
		}
	}
}
