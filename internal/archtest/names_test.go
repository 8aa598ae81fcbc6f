package archtest

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// A name of one letter is read at a glance where all of its uses are in view: as a receiver, in a short function, in a short loop.
const inView = 20 // lines from where it is declared to the end of its scope

// How many there are of each. The numbers only ever fall: give what you touch a name, or say what was expected, and
// write the new number here.
const (
	oneLetter    = 1522
	bareFailures = 841
)

// usual are one-letter names that Go programs have for values of these types.
var usual = map[string]string{
	"t": "testing.T testing.TB", "b": "testing.B", "f": "testing.F", "m": "testing.M", "w": "http.ResponseWriter", "r": "http.Request",
}

// TestNames is a ratchet on what a reader has to keep in mind, and on failures that only the one who wrote the test understands.
func TestNames(t *testing.T) {
	names, bare := 0, 0
	for _, s := range load(t) {
		if s.gen {
			continue
		}
		if s.test {
			bare += bareIn(s)
		} else {
			names += lettersIn(s)
		}
	}
	for what, n := range map[string][2]int{
		"names of one letter that live longer than 20 lines": {names, oneLetter}, "failures that print a bare value": {bare, bareFailures},
	} {
		switch {
		case n[0] > n[1]:
			t.Errorf("there are %d %s, %d more than before: change those that you have added", n[0], what, n[0]-n[1])
		case n[0] < n[1]-20:
			t.Errorf("there are only %d %s left: write that number into this file", n[0], what)
		}
	}
}

// lettersIn counts the names of one letter in a file that are not in view.
func lettersIn(s source) (n int) {
	line := func(p token.Pos) int { return s.fset.Position(p).Line }
	long := func(id *ast.Ident, end token.Pos) {
		if len(id.Name) == 1 && id.Name != "_" && line(end)-line(id.Pos()) > inView {
			n++
		}
	}
	fields := func(list *ast.FieldList, end token.Pos) {
		if list == nil {
			return
		}
		for _, f := range list.List {
			for _, id := range f.Names {
				if kind := strings.TrimPrefix(text(f.Type), "*"); kind == "" || !slices.Contains(strings.Fields(usual[id.Name]), kind) {
					long(id, end)
				}
			}
		}
	}
	// What is declared in a statement lives to the end of the block, loop or branch around it.
	var walk func(node ast.Node, end token.Pos)
	walk = func(node ast.Node, end token.Pos) {
		ast.Inspect(node, func(c ast.Node) bool {
			if c == nil || c == node {
				return true
			}
			switch c := c.(type) {
			case *ast.BlockStmt, *ast.IfStmt, *ast.ForStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt, *ast.CaseClause, *ast.CommClause:
				walk(c, c.End())
				return false
			case *ast.FuncLit:
				fields(c.Type.Params, c.End())
				fields(c.Type.Results, c.End())
				walk(c.Body, c.End())
				return false
			case *ast.RangeStmt:
				if c.Tok == token.DEFINE {
					for _, e := range []ast.Expr{c.Key, c.Value} {
						if id, ok := e.(*ast.Ident); ok {
							long(id, c.End())
						}
					}
				}
				walk(c.X, c.End())
				walk(c.Body, c.End())
				return false
			case *ast.AssignStmt:
				if c.Tok == token.DEFINE {
					for _, e := range c.Lhs {
						if id, ok := e.(*ast.Ident); ok && id.Obj != nil && id.Obj.Decl == c {
							long(id, end)
						}
					}
				}
			case *ast.ValueSpec:
				for _, id := range c.Names {
					long(id, end)
				}
			}
			return true
		})
	}
	for _, d := range s.ast.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			fields(f.Type.Params, f.End())
			fields(f.Type.Results, f.End())
			walk(f.Body, f.End())
		}
	}
	return n
}

// text gives a type as it is written, if it is a name.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return "*" + text(e.X)
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// bareIn counts the failures in a file of tests that print values, and not a word of what was expected. An error speaks for itself.
func bareIn(s source) (n int) {
	speaks := func(e ast.Expr) bool {
		found := false
		ast.Inspect(e, func(c ast.Node) bool {
			switch c := c.(type) {
			case *ast.Ident:
				found = found || strings.HasSuffix(strings.ToLower(c.Name), "err") || c.Name == "why" || c.Name == "faults"
			case *ast.BasicLit:
				found = found || c.Kind == token.STRING && hasWord(c.Value)
			}
			return !found
		})
		return found
	}
	ast.Inspect(s.ast, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		fails := ok && slices.Contains(strings.Fields("Error Errorf Fatal Fatalf"), sel.Sel.Name) &&
			slices.Contains(strings.Fields("t b f tb"), text(sel.X))
		if fails && !slices.ContainsFunc(call.Args, speaks) {
			n++
		}
		return true
	})
	return n
}

// hasWord reports whether a format says something beside the values in it.
func hasWord(s string) bool {
	letters := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '%':
			for i+1 < len(s) && strings.IndexByte("+-# 0123456789.", s[i+1]) >= 0 {
				i++
			}
			i++ // the verb
		case c == '\\':
			i++
		case c|0x20 >= 'a' && c|0x20 <= 'z':
			letters++
		}
	}
	return letters > 1
}

// arrowsUp are how many references between files of a package run against the order in which the files use each other, one for each pair.
// Files that use each other in a circle are one file to whoever reads them. The numbers only ever fall.
var arrowsUp = map[string]int{
	"cluster":         9,
	"cluster/core":    5,
	"cluster/moves":   1,
	"cluster/volumes": 3,
	"decide/apps":     20,
	"decide/sched":    14,
	"root/core":       17,
	"worker":          47,
	"worker/core":     22,
}

// TestArrowsUp is a ratchet on circles among the files of a package. Parts of the cluster that are not listed have none.
func TestArrowsUp(t *testing.T) {
	c := checker{dirs: map[string][]source{}, done: map[string]*types.Package{}}
	for _, s := range load(t) {
		if !s.test && !s.gen {
			c.dirs[s.dir] = append(c.dirs[s.dir], s)
		}
	}
	for dir := range c.dirs {
		was, listed := arrowsUp[dir]
		if !listed && !covers("cluster/...", dir) {
			continue
		}
		up := c.up(dir)
		switch {
		case len(up) > was:
			t.Errorf("%d arrows run up between the files of %s, %d more than before:\n%s", len(up), dir, len(up)-was, strings.Join(up, "\n"))
		case len(up) < was:
			t.Errorf("only %d arrows run up between the files of %s: write that number into this file", len(up), dir)
		}
	}
}

// checker finds out what names mean, as far as the module goes: packages of others are empty to it, and whatever comes of them unknown.
type checker struct {
	dirs map[string][]source
	done map[string]*types.Package
}

// Import implements types.Importer.
func (c *checker) Import(name string) (*types.Package, error) {
	if c.done[name] == nil {
		c.done[name] = types.NewPackage(name, path.Base(name))
		c.done[name].MarkComplete()
		if dir, ours := below(name); ours {
			c.done[name] = c.check(dir, nil)
		}
	}
	return c.done[name], nil
}

func (c *checker) check(dir string, info *types.Info) *types.Package {
	var files []*ast.File
	for _, s := range c.dirs[dir] {
		files = append(files, s.ast)
	}
	conf := types.Config{Importer: c, IgnoreFuncBodies: info == nil, Error: func(error) {}}
	p, _ := conf.Check(path.Join(module, dir), c.dirs[dir][0].fset, files, info)
	return p
}

// up lists the arrows between files of a package that run up in an order that has few such.
func (c *checker) up(dir string) (up []string) {
	fset := c.dirs[dir][0].fset
	at := func(p token.Pos) string { return path.Base(fset.Position(p).Filename) }
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg := c.check(dir, info)
	arrows := map[string]map[string]bool{}
	left := map[string]bool{}
	for _, s := range c.dirs[dir] {
		name := path.Base(s.path)
		arrows[name], left[name] = map[string]bool{}, true
	}
	for id, o := range info.Uses {
		_, method := o.(*types.Func)
		if from, to := at(id.Pos()), at(o.Pos()); o.Pkg() == pkg && (method || o.Parent() == pkg.Scope()) && from != to {
			arrows[from][to] = true
		}
	}
	// Eades, Lin and Smyth, A fast and effective heuristic for the feedback arc set problem, 1993: take what nobody uses first, what uses
	// nobody last, and else what uses most more than it is used.
	var first, last []string
	degree := func(f string) (out, in int) {
		for g := range left {
			if g != f && arrows[f][g] {
				out++
			}
			if g != f && arrows[g][f] {
				in++
			}
		}
		return out, in
	}
	for len(left) > 0 {
		list := slices.Sorted(maps.Keys(left))
		if i := slices.IndexFunc(list, func(f string) bool { out, _ := degree(f); return out == 0 }); i >= 0 {
			last = append(last, list[i])
			delete(left, list[i])
			continue
		}
		if i := slices.IndexFunc(list, func(f string) bool { _, in := degree(f); return in == 0 }); i >= 0 {
			first = append(first, list[i])
			delete(left, list[i])
			continue
		}
		best := slices.MaxFunc(list, func(a, b string) int {
			outA, inA := degree(a)
			outB, inB := degree(b)
			return cmp.Compare(outA-inA, outB-inB)
		})
		first = append(first, best)
		delete(left, best)
	}
	slices.Reverse(last)
	order := map[string]int{}
	for i, f := range append(first, last...) {
		order[f] = i
	}
	for f, to := range arrows {
		for g := range to {
			if order[g] < order[f] {
				up = append(up, f+" uses "+g)
			}
		}
	}
	slices.Sort(up)
	return up
}
