package archtest

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// owned are fields that only one file of their package may change: of the type that the file is about, and of another one, where it is
// called by one name everywhere.
var owned = []struct {
	dir, file string
	fields    []string // of any variable
	of        []string // variables, and
	its       []string // its fields
}{
	{"cluster/core", "cluster/core/ledger.go",
		[]string{"places", "byApp", "byWorker", "limits", "groups", "groupsOf", "waiting", "making", "removing", "moving", "stranded",
			"originals", "watched", "orphan", "asking", "grew", "notes"},
		[]string{"p", "inst"}, []string{"Worker", "Removing", "Next", "Original"}},
	{dir: "root/core", file: "root/core/trust.go", fields: []string{"books", "slow"}},
	{dir: "root/core", file: "root/core/tokens.go", fields: []string{"seq"}},
	{dir: "worker/core", file: "worker/core/ledger.go", fields: []string{"insts", "ready"}},
	{dir: "worker/core", file: "worker/core/freeze.go", fields: []string{"record", "waits", "approved"}},
	{dir: "worker/core", file: "worker/core/pace.go",
		fields: []string{"facts", "factsNew", "refusing", "usage", "asked", "reportAt", "sentAt", "area", "apart", "gain", "gap"}},
	{dir: "worker/core", file: "worker/core/volumes.go", fields: []string{"claims", "awaited"}},
	{dir: "worker/core", file: "worker/core/snapshots.go", fields: []string{"gone", "unwanted"}},
	{dir: "worker/core", file: "worker/core/cutoff.go", fields: []string{"last", "leased"}},
	{dir: "worker/core", file: "worker/core/strays.go", fields: []string{"tasks", "lost"}},
	{dir: "decide/apps", file: "decide/apps/catalog.go", fields: []string{"apps", "targets", "shut", "dirty", "wake", "frozen"}},
	{dir: "decide/apps", file: "decide/apps/ledger.go", fields: []string{"counter", "inst", "byService", "unplaced", "stopping"}},
	{dir: "decide/apps", file: "decide/apps/claims.go", fields: []string{"claimed", "changed"}},
	{dir: "decide/apps", file: "decide/apps/quota.go", fields: []string{"orgs", "spaces"}},
	{dir: "decide/apps", file: "decide/apps/history.go", fields: []string{"earlier"}},
	{dir: "decide/apps", file: "decide/apps/certificates.go", fields: []string{"certs"}},
	{dir: "decide/apps", file: "decide/apps/network.go",
		fields: []string{"nets", "lastNet", "exporters", "importers", "unaddressed", "readdressed"}},
	{dir: "decide/apps", file: "decide/apps/secrets.go", fields: []string{"byName"}},
	{dir: "decide/apps", file: "decide/apps/autoscale.go", fields: []string{"scalers", "arrivals", "waits"}},
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
						if slices.Contains(o.fields, x.Sel.Name) || direct && v != nil && slices.Contains(o.of, v.Name) &&
							slices.Contains(o.its, x.Sel.Name) {
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

// cores are types that call parts in order, with the types that may have them: what tells a core's own business on.
var cores = []struct {
	dir, name string
	beside    []string
}{
	{"cluster/core", "Core", []string{"sequels"}},
	{"decide/apps", "Controller", nil},
}

// TestPartsWithoutCore has the parts of a core know what they name, and never the core: only the server beside it does. A function that
// takes the core, or a part that has it, could reach everything.
func TestPartsWithoutCore(t *testing.T) {
	files := load(t)
	for _, c := range cores {
		core := func(e ast.Expr) bool {
			star, ok := e.(*ast.StarExpr)
			if !ok {
				return false
			}
			id, ok := star.X.(*ast.Ident)
			return ok && id.Name == c.name
		}
		made, beside := false, 0
		for _, s := range files {
			if s.test || s.dir != c.dir {
				continue
			}
			for _, d := range s.ast.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					made = made || d.Name.Name == "New" && core(d.Type.Results.List[0].Type)
					for _, f := range d.Type.Params.List {
						if core(f.Type) {
							t.Errorf("%s: %s takes the %s; let a part of its own have what it needs", s.at(d), d.Name.Name, c.name)
						}
					}
				case *ast.GenDecl:
					for _, sp := range d.Specs {
						ts, _ := sp.(*ast.TypeSpec)
						if ts == nil {
							continue
						}
						st, _ := ts.Type.(*ast.StructType)
						if st == nil {
							continue
						}
						for _, f := range st.Fields.List {
							if core(f.Type) && slices.Contains(c.beside, ts.Name.Name) {
								beside++
							} else if core(f.Type) {
								t.Errorf("%s: %s has the %s; let it have the parts that it asks", s.at(f), ts.Name.Name, c.name)
							}
						}
					}
				}
			}
		}
		if !made || beside != len(c.beside) {
			t.Errorf("%s: no New makes a %s, or not all of %v have it: this test looks for the wrong names", c.dir, c.name, c.beside)
		}
	}
}

// reads are what a server may call of the exported parts of its core: they change nothing.
var reads = strings.Fields("Apps Certificates Get Hello ImageUses InstancesOf Namespaces Orgs Page Restricted Secret Secrets Usage")

// TestServersReadParts has servers change their core by messages alone. Apps, Children and Up are exported because
// servers look into them, and because the simulator and tests also damage them.
func TestServersReadParts(t *testing.T) {
	parts := strings.Fields("Apps Children Up")
	found := 0
	for _, s := range load(t) {
		if s.test || !slices.Contains(roles, s.dir) {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, _ := call.Fun.(*ast.SelectorExpr)
			if method == nil {
				return true
			}
			part, _ := method.X.(*ast.SelectorExpr)
			if part == nil || !slices.Contains(parts, part.Sel.Name) {
				return true
			}
			if found++; !slices.Contains(reads, method.Sel.Name) {
				t.Errorf("%s: a server calls %s.%s; it changes its core by a message to Step", s.at(call), part.Sel.Name, method.Sel.Name)
			}
			return true
		})
	}
	if found < 15 {
		t.Errorf("only %d looks into parts of cores were found; have they other names?", found)
	}
}
