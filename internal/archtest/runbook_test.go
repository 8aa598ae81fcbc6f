package archtest

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const runbook = "docs/RUNBOOK.md"

// reasonAt are the functions and methods that take an event's reason, and which argument it is.
var reasonAt = map[string]int{".appEvent": 4, ".NotCopied": 2, "leave": 1}

// computed are reasons that are put together when they are needed.
var computed = map[string][]string{
	"Job": {"JobSucceeded", "JobFailed"}, // decide/apps, of the result of a run
}

// event is where one of a reason is made, and whether one is that warns.
type event struct {
	at      string
	warning bool
}

// reasons gives the reasons of all events that a role may make.
func reasons(t *testing.T) map[string]event {
	found := map[string]event{"StoreRepaired": {"wire/instance.go", true}} // a constant
	for _, s := range load(t) {
		if s.test {
			continue
		}
		for _, decl := range s.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				e, warning := reasonIn(n)
				if e == nil {
					return true
				}
				for _, reason := range textsOf(fn, e) {
					if !found[reason].warning {
						found[reason] = event{s.at(e), warning}
					}
				}
				return true
			})
		}
	}
	return found
}

// reasonIn gives the reason of an event that a node makes, nil if it makes none, and whether it warns.
func reasonIn(n ast.Node) (reason ast.Expr, warning bool) {
	switch n := n.(type) {
	case *ast.CompositeLit:
		if text(n.Type) != "wire.Event" && text(n.Type) != "Event" {
			return nil, false
		}
		for _, e := range n.Elts {
			kv, ok := e.(*ast.KeyValueExpr)
			if ok && text(kv.Key) == "Reason" {
				reason = kv.Value
			}
			warning = warning || ok && text(kv.Value) == "wire.EventWarning"
		}
	case *ast.CallExpr:
		name := text(n.Fun)
		if dot := strings.LastIndex(name, "."); dot > 0 {
			name = name[dot:] // of a method
		}
		at, named := reasonAt[name]
		for i, arg := range n.Args {
			if how := text(arg); how == "wire.EventWarning" || how == "wire.EventNormal" {
				at, named, warning = i+1, true, how == "wire.EventWarning"
			}
		}
		if named && at < len(n.Args) {
			return n.Args[at], warning
		}
	}
	return reason, warning
}

// textsOf gives the texts that an expression can be: its own, or those that the function gives to the variable.
func textsOf(fn *ast.FuncDecl, e ast.Expr) (list []string) {
	if b, ok := e.(*ast.BinaryExpr); ok {
		for _, begin := range literals(b.X) {
			list = append(list, computed[begin]...)
		}
		return list
	}
	if list = literals(e); len(list) > 0 {
		return list
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		if set, ok := n.(*ast.AssignStmt); ok && len(set.Lhs) == len(set.Rhs) {
			for i, left := range set.Lhs {
				if text(left) == text(e) {
					list = append(list, literals(set.Rhs[i])...)
				}
			}
		}
		return true
	})
	return list
}

func literals(e ast.Expr) (list []string) {
	ast.Inspect(e, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil && s != "" {
				list = append(list, s)
			}
		}
		return true
	})
	return list
}

// cells gives the names in the first column of the tables of a section, which ends at the next of its level.
func cells(page, section string) (names []string) {
	_, rest, _ := strings.Cut(page, "\n## "+section+"\n")
	part, _, _ := strings.Cut(rest, "\n## ")
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*) \|`).FindAllStringSubmatch(part, -1) {
		for _, name := range strings.Split(row[1], ",") {
			names = append(names, strings.Trim(name, " `"))
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains([]string{"alert", "reason", "event", "code"}, name) })
}

// The runbook has a row for each alert, each reason of an instance, each event that is a warning and each code of a refusal; it names the
// other events; and it has none that does not exist.
func TestRunbook(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(top, runbook))
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	rules, err := os.ReadFile(filepath.Join(top, "docs/prometheus/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var alerts []string
	for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1) {
		alerts = append(alerts, m[1])
	}
	same(t, "Alerts", cells(page, "Alerts"), alerts)
	var codes []string
	troubles := map[string]bool{}
	for _, s := range load(t) {
		if s.path != "errors.go" && s.path != "wire/trouble.go" {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			switch {
			case ok && v.Type != nil && text(v.Type) == "Code":
				codes = append(codes, literals(v.Values[0])...)
			case ok && v.Names[0].Name == "troubles":
				for _, code := range literals(v.Values[0]) {
					troubles[code] = true
				}
			}
			return true
		})
	}
	same(t, "Refusals", cells(page, "Refusals"), codes)
	same(t, "Reasons of instances", cells(page, "Reasons of instances"), slices.Collect(maps.Keys(troubles)))

	warnings := cells(page, "Events that are warnings")
	_, rest, _ := strings.Cut(page, "\n## Events that report\n")
	reports, _, _ := strings.Cut(rest, "\n## ")
	all := reasons(t)
	if len(all) < 100 {
		t.Fatalf("only %d reasons were found", len(all))
	}
	for reason, made := range all {
		row := slices.Contains(warnings, reason)
		if named := regexp.MustCompile(`\b` + reason + `\b`).MatchString(reports); made.warning && !row {
			t.Errorf("%s: %s has no row for the warning %s", made.at, runbook, reason)
		} else if !row && !named {
			t.Errorf("%s: %s does not name the event %s", made.at, runbook, reason)
		}
	}
	for _, reason := range append(warnings, regexp.MustCompile(`\b[A-Z]\w*[a-z]`).FindAllString(reports, -1)...) {
		if _, ok := all[reason]; !ok && !slices.Contains([]string{"They", "Applications", "Instances", "Workers", "Data"}, reason) {
			t.Errorf("%s has the event %s, which nothing makes", runbook, reason)
		}
	}
}

// same compares the rows of a section with what there is.
func same(t *testing.T, section string, rows, want []string) {
	t.Helper()
	if len(want) == 0 {
		t.Errorf("%s: nothing was found that should have a row", section)
	}
	for _, name := range want {
		if !slices.Contains(rows, name) {
			t.Errorf("%s has no row for %s in %q", runbook, name, section)
		}
	}
	for _, name := range rows {
		if !slices.Contains(want, name) {
			t.Errorf("%s has a row for %s in %q, which does not exist", runbook, name, section)
		}
	}
}
