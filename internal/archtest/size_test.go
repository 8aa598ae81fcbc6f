package archtest

import (
	"go/ast"
	"slices"
	"testing"
)

// A type with more fields or methods than these has too many jobs: nobody owns an invariant, and no part of it can be read alone.
const (
	goalFields  = 25
	goalMethods = 60
)

// size is how large a type is.
type size struct{ fields, methods int }

// owners had more fields or methods than that, and were divided. Fields count for them alone: records and options have as many as there is to say.
var owners = []string{"overlay/tunnel.Engine", "overlay/tunnel.peer", "sim.World", "worker.Server", "worker.overlayNet"}

// heads call their parts in order and do nothing else, so they grow by a field for each part alone.
var heads = map[string]size{
	"cluster/core.Core":      {17, 14},
	"decide/apps.Controller": {13, 6},
}

// wide types have a method for each operation of the API, and little state.
var wide = []string{"api.Client", "ctl.app"}

// sizes counts fields and methods of every struct outside tests, by package and name.
func sizes(t *testing.T) map[string]size {
	t.Helper()
	out := map[string]size{}
	counted := map[string]map[string]bool{} // a method for each system counts once
	for _, s := range load(t) {
		if s.test || s.gen {
			continue
		}
		for _, d := range s.ast.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					ts, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					if st, ok := ts.Type.(*ast.StructType); ok {
						k := s.dir + "." + ts.Name.Name
						z := out[k]
						z.fields = max(z.fields, st.Fields.NumFields())
						out[k] = z
					}
				}
			case *ast.FuncDecl:
				if d.Recv == nil {
					continue
				}
				k := s.dir + "." + receiver(d.Recv.List[0].Type)
				if counted[k] == nil {
					counted[k] = map[string]bool{}
				}
				if !counted[k][d.Name.Name] {
					counted[k][d.Name.Name] = true
					z := out[k]
					z.methods++
					out[k] = z
				}
			}
		}
	}
	return out
}

// receiver names the type that a method belongs to.
func receiver(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// TestTypeSizes holds types to the goals, and those that call parts in order to what they have.
func TestTypeSizes(t *testing.T) {
	now := sizes(t)
	for name, is := range now {
		head, isHead := heads[name]
		switch {
		case slices.Contains(wide, name):
		case isHead && (is.fields > head.fields || is.methods > head.methods):
			t.Errorf("%s grew to %d fields and %d methods, from %d and %d", name, is.fields, is.methods, head.fields, head.methods)
		case isHead && is != head:
			t.Errorf("%s has come down to %d fields and %d methods: write that in place of %d and %d", name, is.fields, is.methods, head.fields, head.methods)
		case is.methods > goalMethods:
			t.Errorf("%s has %d methods; at most %d: give a part of its state, with the methods on it, to a type of its own", name, is.methods, goalMethods)
		}
	}
	for _, name := range owners {
		if is, ok := now[name]; !ok {
			t.Errorf("%s is gone: take its name away", name)
		} else if is.fields > goalFields {
			t.Errorf("%s has %d fields; at most %d: give some of them, with the methods on them, to a type of its own", name, is.fields, goalFields)
		}
	}
}
