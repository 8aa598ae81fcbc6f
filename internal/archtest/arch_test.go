package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// source is one Go file, of whatever system and build tag.
type source struct {
	path  string // below the module's directory
	dir   string // its package, "." for the root package
	test  bool
	lines int
	gen   bool // written by a program
	ast   *ast.File
	fset  *token.FileSet
}

func (s source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(n.Pos()).Line)
}

// load gives every Go file of the module.
func load(t *testing.T) []source {
	t.Helper()
	out, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 50 {
		t.Fatalf("only %d files were found", len(out))
	}
	return out
}

// parsed is the tree for all tests, which only look at it: to parse it takes longer than they do.
var parsed = sync.OnceValues(parse)

func parse() (out []source, err error) {
	const top = "../.."
	fset := token.NewFileSet()
	err = filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) {
				return nil // somebody's temporary file
			}
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if p != top && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "node_modules" || name == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, p, text, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		out = append(out, source{rel, path.Dir(rel), strings.HasSuffix(name, "_test.go"), bytes.Count(text, []byte("\n")), ast.IsGenerated(f), f, fset})
		return nil
	})
	return out, err
}

// covers reports whether a pattern of the rules means a package.
func covers(pattern, pkg string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == base || strings.HasPrefix(pkg, base+"/")
	}
	return pattern == pkg
}

func anyCovers(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return covers(p, pkg) })
}

// rule finds the line for a package; the longest pattern wins.
func rule(pkg string) (allowed string, ok bool) {
	best := ""
	for pattern, list := range imports {
		if covers(pattern, pkg) && len(pattern) > len(best) {
			best, allowed, ok = pattern, list, true
		}
	}
	return allowed, ok
}

// below gives the package within the module that an import means.
func below(imp string) (pkg string, ok bool) {
	if imp == module {
		return ".", true
	}
	return strings.CutPrefix(imp, module+"/")
}

func std(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

func importsOf(s source) map[string]ast.Node {
	out := map[string]ast.Node{}
	for _, i := range s.ast.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		out[p] = i
	}
	return out
}

func TestImports(t *testing.T) {
	unknown := map[string]bool{}
	for _, s := range load(t) {
		if s.test {
			continue
		}
		allowed, ok := rule(s.dir)
		if !ok {
			if !unknown[s.dir] {
				t.Errorf("package %s has no line in imports (rules_test.go): say who it may import", s.dir)
			}
			unknown[s.dir] = true
			continue
		}
		for imp, node := range importsOf(s) {
			pkg, ours := below(imp)
			switch {
			case allowed == "any":
			case allowed == "std" && !std(imp):
				t.Errorf("%s: the root package imports the standard library only, not %s", s.at(node), imp)
			case ours && pkg != s.dir && !anyCovers(strings.Fields(allowed), pkg):
				t.Errorf("%s: %s may not import %s", s.at(node), s.dir, pkg)
			}
			if one, other := role(pkg), role(s.dir); ours && one != "" && other != "" && one != other {
				t.Errorf("%s: roles never import each other", s.at(node))
			}
			if ours && forTests(pkg) && !forTests(s.dir) {
				t.Errorf("%s: only tests import %s", s.at(node), pkg)
			}
		}
	}
}

// role names the role that a package belongs to, or "".
func role(pkg string) string {
	if first, _, _ := strings.Cut(pkg, "/"); slices.Contains(roles, first) {
		return first
	}
	return ""
}

// forTests reports whether only tests, and what else is for them, may import a package.
func forTests(pkg string) bool {
	return pkg == "internal/testenv" || pkg == "internal/olddata" ||
		slices.Contains([]string{"storetest", "runtimetest", "kerneltest", "planetest"}, path.Base(pkg))
}

func TestPurePackages(t *testing.T) {
	for _, s := range load(t) {
		if s.test || !slices.Contains(pure, s.dir) {
			continue
		}
		for imp, node := range importsOf(s) {
			if anyCovers(impureImports, imp) {
				t.Errorf("%s: %s is pure and may not import %s", s.at(node), s.dir, imp)
			}
			if pkg, ours := below(imp); ours && !slices.Contains(pure, pkg) && !slices.Contains(vocabulary, pkg) {
				t.Errorf("%s: %s is pure and may not import %s, which is not", s.at(node), s.dir, pkg)
			}
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: %s is pure and starts no goroutine", s.at(n), s.dir)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && x.Obj == nil && slices.Contains(impureCalls, n.Sel.Name) {
					t.Errorf("%s: %s is pure and takes the time as an argument; it may not call time.%s", s.at(n), s.dir, n.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestPackageComments(t *testing.T) {
	has := map[string]bool{}
	where := map[string]string{}
	for _, s := range load(t) {
		if s.test {
			continue
		}
		where[s.dir] = s.path
		has[s.dir] = has[s.dir] || s.ast.Doc != nil && len(strings.Fields(s.ast.Doc.Text())) >= 4
		if name := s.ast.Name.Name; slices.Contains(badNames, name) {
			t.Errorf("%s: package name %s says nothing; name what it owns", s.path, name)
		}
	}
	for dir, file := range where {
		if !has[dir] {
			t.Errorf("package %s has no comment (as in %s): say what it owns, what it never does, who may import it", dir, file)
		}
	}
}

func TestNoInit(t *testing.T) {
	for _, s := range load(t) {
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: no func init; main puts things together", s.at(d))
			}
		}
	}
}

// Each role, each command and each helper beside an instance begins with all packages: what compiles an expression there has all of them
// wait for it, and keep it.
func TestExpressionsAreCompiledLater(t *testing.T) {
	for _, s := range load(t) {
		if s.test || strings.HasPrefix(s.path, "scripts/") {
			continue
		}
		for _, d := range s.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			ast.Inspect(g, func(n ast.Node) bool {
				if _, later := n.(*ast.FuncLit); later {
					return false
				}
				if sel, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(sel.Sel.Name, "MustCompile") {
					t.Errorf("%s: an expression is compiled at each start; use sync.OnceValue", s.at(n))
				}
				return true
			})
		}
	}
}

func TestFileSizes(t *testing.T) {
	for _, s := range load(t) {
		if s.lines > maxLines && !s.gen {
			t.Errorf("%s has %d lines; split files before %d", s.path, s.lines, maxLines)
		}
	}
}

// The program for small boards is the agent alone.
func TestSmallProgram(t *testing.T) {
	by := map[string][]string{} // imports of ours, by package
	for _, s := range load(t) {
		for imp := range importsOf(s) {
			if pkg, ours := below(imp); ours && !s.test {
				by[s.dir] = append(by[s.dir], pkg)
			}
		}
	}
	from := map[string]string{small: ""}
	for queue := []string{small}; len(queue) > 0; queue = queue[1:] {
		for _, pkg := range by[queue[0]] {
			if _, seen := from[pkg]; seen {
				continue
			}
			from[pkg] = queue[0]
			queue = append(queue, pkg)
			if anyCovers(heavy, pkg) {
				t.Errorf("%s imports %s, by way of %s", small, pkg, queue[0])
			}
		}
	}
	if len(from) < 20 {
		t.Errorf("%s imports %d packages; what is it made of?", small, len(from))
	}
}
