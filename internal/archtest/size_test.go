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

// grown lists the types beyond the goal, with what each has come down to. The numbers only ever fall: take state and the methods on it out
// into a part (cluster/detect is one), and write the new numbers here.
var grown = map[string]size{
	"overlay/tunnel.Engine": {35, 57},
	"overlay/tunnel.peer":   {31, 4},
	"sim.World":             {30, 85},
	"worker.Server":         {32, 102},
	"worker.overlayNet":     {30, 40},
}

// heads call their parts in order and do nothing else, so they grow by a field for each part alone.
var heads = map[string]size{
	"cluster/core.Core":      {17, 15},
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

// TestTypeSizes is a ratchet: the listed types may not grow, and what shrank is written down.
func TestTypeSizes(t *testing.T) {
	for name, is := range sizes(t) {
		was, listed := grown[name] // fields count for these alone: records and options have as many as there is to say
		if head, ok := heads[name]; ok {
			was, listed = head, true
		}
		switch {
		case slices.Contains(wide, name):
		case !listed && is.methods > goalMethods:
			t.Errorf("%s has %d methods; at most %d: give a part of its state, with the methods on it, to a type of its own", name, is.methods, goalMethods)
		case !listed:
		case is.fields > was.fields || is.methods > was.methods:
			t.Errorf("%s grew to %d fields and %d methods, from %d and %d; the goal is %d and %d", name, is.fields, is.methods, was.fields, was.methods, goalFields, goalMethods)
		case is != was:
			t.Errorf("%s has come down to %d fields and %d methods: write that in place of %d and %d", name, is.fields, is.methods, was.fields, was.methods)
		}
	}
	now := sizes(t)
	for name, was := range grown {
		if _, ok := now[name]; !ok {
			t.Errorf("%s is gone: take its line away", name)
		} else if was.fields <= goalFields && was.methods <= goalMethods {
			t.Errorf("%s has reached the goal: take its line away", name)
		}
	}
}
