package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with a file, or rewrites it.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the code gives; look at what changed, then run the test with -update", file)
	}
}

// TestTable writes down which role may do what, for a person to read.
func TestTable(t *testing.T) {
	s := newRoot(t)
	var out bytes.Buffer
	fmt.Fprintln(&out, "Every operation of the API: the scope that it asks, of what, and the roles that have it.")
	fmt.Fprintln(&out, "Written by TestTable -update.")
	fmt.Fprintln(&out)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "OPERATION\tMETHOD\tPATH\tSCOPE\tASKED OF\tADMIN\tOPERATOR\tDEVELOPER\tVIEWER")
	for _, o := range s.API.Handler().Operations() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s", o.ID, o.Method, o.Path, o.Scope, o.Object)
		for _, r := range auth.Roles() {
			p := &auth.Principal{User: "x", Grants: []auth.Grant{{Role: r, Org: auth.Any, Cluster: auth.Any}}}
			mark := "-"
			if p.Somewhere(o.Scope) {
				mark = "yes"
			}
			fmt.Fprintf(w, "\t%s", mark)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	lines := strings.Split(out.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	golden(t, "testdata/operations.txt", []byte(strings.Join(lines, "\n")))
}

var pathParam = regexp.MustCompile(`\{[a-z]+\}`)

// raw sends a request as it is.
func (s *site) raw(method, path, bearer, contentType string, body io.Reader) (*http.Response, []byte) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.URL+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	res, err := s.http().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	data, _ := io.ReadAll(res.Body)
	return res, data
}

// TestScopesAreEnforced asks every operation as every role, over HTTPS.
func TestScopesAreEnforced(t *testing.T) {
	t.Run("root", func(t *testing.T) { scopesAreEnforced(t, newRoot(t), wire.TierRoot) })
	t.Run("cluster", func(t *testing.T) { scopesAreEnforced(t, newCluster(t), wire.TierCluster) })
}

func scopesAreEnforced(t *testing.T, s *site, tier wire.Tier) {
	admin := s.admin()
	tokens := map[auth.Role]string{}
	for _, r := range auth.Roles() {
		name := "some-" + string(r)
		if _, err := admin.CreateUser(t.Context(), name, "a long password", []auth.Grant{{Role: r, Org: auth.Any, Cluster: auth.Any}}); err != nil {
			t.Fatal(err)
		}
		c := s.client("", "")
		tk, err := c.Login(t.Context(), name, "a long password")
		if err != nil {
			t.Fatal(err)
		}
		tokens[r] = tk.Access
	}
	for _, o := range s.API.Handler().Operations() {
		path := pathParam.ReplaceAllString(o.Path, "nothing")
		if o.ID == "watch" || o.ID == "logout" {
			path += "?kinds=nothing"
		}
		ask := func(bearer string) int {
			res, _ := s.raw(o.Method, path, bearer, "application/json", strings.NewReader("{}"))
			return res.StatusCode
		}
		if got := ask(""); (got == 401) != (o.Scope != auth.ScopePublic) && o.ID != "registry" {
			t.Errorf("%s without a login: %d", o.ID, got)
		}
		if o.Scope == auth.ScopePublic {
			continue
		}
		for _, r := range auth.Roles() {
			got := ask(tokens[r])
			allowed := o.Scope == auth.ScopeSelf || r.Has(o.Scope)
			switch {
			case o.At != "" && o.At != tier:
				if got != 421 {
					t.Errorf("%s as %s at the wrong tier: %d", o.ID, r, got)
				}
			case allowed && (got == 401 || got == 403), !allowed && got != 403:
				t.Errorf("%s as %s: %d", o.ID, r, got)
			}
		}
	}
}

// TestNoRouteOutsideTheTable reads the package: only register and raw may register routes, and unknown gets the rest.
func TestNoRouteOutsideTheTable(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				switch sel.Sel.Name {
				case "Handle", "HandleFunc", "Register", "AddOperation":
				default:
					return true
				}
				if name == "operation.go" && (fn.Name.Name == "register" || fn.Name.Name == "raw") {
					return true
				}
				if lit, ok := call.Args[0].(*ast.BasicLit); ok && lit.Value == `"/"` {
					return true
				}
				t.Errorf("%s: %s registers a route outside of the table", fset.Position(call.Pos()), fn.Name.Name)
				return true
			})
		}
	}
}

// TestOtherOrganisationsAreNotThere shows that a developer sees nothing of another organisation, not even that it exists.
func TestOtherOrganisationsAreNotThere(t *testing.T) {
	s := newRoot(t)
	admin := s.admin()
	ctx := t.Context()
	for _, org := range []string{"acme", "umbra"} {
		_, err := admin.CreateOrg(ctx, orgNamed(org))
		must(t, err)
		_, err = admin.CreateNamespace(ctx, spaceOf(org+"-space", org))
		must(t, err)
		_, err = admin.CreateUser(ctx, "dev-"+org, "a long password", []auth.Grant{{Role: auth.RoleDeveloper, Org: org, Cluster: auth.Any}})
		must(t, err)
	}
	a, u := s.client("dev-acme", "a long password"), s.client("dev-umbra", "a long password")
	res, err := a.Apply(ctx, []byte(strings.Replace(shop, "{name: shop}", "{name: shop, namespace: acme-space}", 1)), api.ApplyOptions{})
	must(t, err)
	inst, err := a.Instances(ctx, api.InstanceFilter{})
	must(t, err)
	if len(inst) != 1 {
		t.Fatalf("%+v", inst)
	}
	want := func(what string, err error, code skerry.Code) {
		t.Helper()
		if err == nil || skerry.AsError(err).Code != code {
			t.Errorf("%s: %v, want %s", what, err, code)
		}
	}
	_, err = u.App(ctx, res.Key)
	want("get", err, skerry.CodeNotFound)
	_, missing := u.App(ctx, skerry.AppKey{Namespace: "acme-space", Name: "no-such"})
	if strings.Replace(err.Error(), "shop", "x", 1) != strings.Replace(missing.Error(), "no-such", "x", 1) {
		t.Errorf("the answers tell apart what exists: %q %q", err, missing)
	}
	want("delete", u.DeleteApp(ctx, res.Key), skerry.CodeNotFound)
	_, err = u.Instance(ctx, inst[0].ID)
	want("instance", err, skerry.CodeNotFound)
	want("logs", u.Logs(ctx, inst[0].ID, api.LogOptions{}, nil), skerry.CodeNotFound)
	_, err = u.PortForward(ctx, inst[0].ID, 80)
	want("forward", err, skerry.CodeNotFound)
	_, err = u.Usage(ctx, "acme")
	want("usage", err, skerry.CodeNotFound)
	_, err = u.Apply(ctx, []byte(strings.Replace(shop, "{name: shop}", "{name: mine, namespace: acme-space}", 1)), api.ApplyOptions{})
	want("apply into another's namespace", err, skerry.CodeNotFound)
	if list, err := u.Apps(ctx, ""); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
	if list, err := u.Instances(ctx, api.InstanceFilter{}); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
	if list, err := u.Events(ctx, api.EventFilter{}); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
	if list, err := a.Events(ctx, api.EventFilter{}); err != nil || len(list) == 0 {
		t.Errorf("%+v %v", list, err)
	}
	if list, err := u.Orgs(ctx); err != nil || len(list) != 1 || list[0].Name != "umbra" {
		t.Errorf("%+v %v", list, err)
	}
	if list, err := u.Namespaces(ctx); err != nil || len(list) != 1 {
		t.Errorf("%+v %v", list, err)
	}
	// A watch tells what each may see.
	for who, c := range map[string]*api.Client{"acme": a, "umbra": u} {
		n := 0
		err := c.Watch(ctx, api.WatchFilter{}, func(m api.WatchMessage) error {
			if m.Type == api.WatchSynced {
				return io.EOF
			}
			n++
			return nil
		})
		if err != io.EOF || (n > 0) != (who == "acme") {
			t.Errorf("watch of %s: %d things, %v", who, n, err)
		}
	}
	_, err = a.CreateOrg(ctx, orgNamed("mine"))
	want("create an organisation", err, skerry.CodeForbidden)
	// Operators do not touch applications that they see.
	_, err = admin.CreateUser(ctx, "op", "a long password", []auth.Grant{{Role: auth.RoleOperator, Org: auth.Any, Cluster: auth.Any}})
	must(t, err)
	want("an operator deletes", s.client("op", "a long password").DeleteApp(ctx, res.Key), skerry.CodeForbidden)
}

// TestGrantsForOneCluster shows a developer who has a role at one cluster only.
func TestGrantsForOneCluster(t *testing.T) {
	s := newCluster(t)
	admin := s.admin()
	for name, cluster := range map[string]string{"here": "harbour", "there": "hill", "anywhere": auth.Any} {
		_, err := admin.CreateUser(t.Context(), name, "a long password", []auth.Grant{
			{Role: auth.RoleDeveloper, Org: parents.DefaultOrg, Cluster: cluster}})
		must(t, err)
		c := s.client(name, "a long password")
		_, err = c.Apply(t.Context(), []byte(shop), api.ApplyOptions{DryRun: true})
		if allowed := name != "there"; (err == nil) != allowed || err != nil && skerry.AsError(err).Code != skerry.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := c.Workers(t.Context()); skerry.AsError(err).Code != skerry.CodeForbidden {
			t.Errorf("%s sees workers: %v", name, err)
		}
	}
	if list, err := admin.Apps(t.Context(), ""); err != nil || len(list) != 0 {
		t.Errorf("a dry run left something: %+v %v", list, err)
	}
}

// To name the worker that an instance is to move to asks more than to move it.
func TestMigrateNamesNoWorkersToDevelopers(t *testing.T) {
	s := newCluster(t)
	admin := s.admin()
	_, err := admin.CreateUser(t.Context(), "ada", "a long password", []auth.Grant{
		{Role: auth.RoleDeveloper, Org: parents.DefaultOrg, Cluster: auth.Any}})
	must(t, err)
	ada := s.client("ada", "a long password")
	_, err = ada.Apply(t.Context(), []byte(shop), api.ApplyOptions{})
	must(t, err)
	list, err := ada.Instances(t.Context(), api.InstanceFilter{})
	must(t, err)
	if len(list) == 0 {
		t.Fatal("there is no instance")
	}
	for _, c := range []struct {
		by   *api.Client
		to   string
		want skerry.Code
	}{{ada, "w1", skerry.CodeForbidden}, {ada, "", skerry.CodeConflict}, {admin, "w1", skerry.CodeConflict}} {
		if _, err := c.by.MigrateInstance(t.Context(), list[0].ID, view.MigrateRequest{To: c.to}); skerry.AsError(err).Code != c.want {
			t.Errorf("to %q: %v, want %s", c.to, err, c.want)
		}
	}
}

func TestOpenAPIDocument(t *testing.T) {
	s := newRoot(t)
	h := s.API.Handler()
	golden(t, "../docs/openapi.json", h.OpenAPI())
	res, served := s.raw("GET", "/openapi.json", "", "", nil)
	if res.StatusCode != 200 || !bytes.Equal(served, h.OpenAPI()) {
		t.Errorf("served: %s", res.Status)
	}
	if res, data := s.raw("GET", "/openapi.yaml", "", "", nil); res.StatusCode != 200 || !strings.Contains(string(data), "openapi: 3.1.0") {
		t.Errorf("yaml: %s", res.Status)
	}
	var doc struct {
		OpenAPI string `json:"openapi"`
		Info    struct{ Title, Version string }
		Paths   map[string]map[string]struct {
			OperationID string
			Parameters  []struct {
				Name, In string
				Required bool
				Schema   any
			}
			RequestBody *struct {
				Content map[string]struct{ Schema any }
			}
			Responses map[string]struct {
				Ref         string `json:"$ref"`
				Description string
				Content     map[string]any
			}
			Security []map[string][]string
		}
		Components struct{ Schemas, Responses map[string]any }
	}
	if err := json.Unmarshal(h.OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" || doc.Info.Title == "" || doc.Info.Version == "" {
		t.Errorf("%+v", doc.Info)
	}
	seen := map[string]bool{}
	for _, o := range h.Operations() {
		op, ok := doc.Paths[o.Path][strings.ToLower(o.Method)]
		if !ok || op.OperationID != o.ID || seen[o.ID] {
			t.Errorf("%s %s is not in the document, or twice", o.Method, o.Path)
			continue
		}
		seen[o.ID] = true
		if (len(op.Security) > 0) != (o.Scope != auth.ScopePublic) {
			t.Errorf("%s: security %v", o.ID, op.Security)
		}
		for _, name := range pathParam.FindAllString(o.Path, -1) {
			found := false
			for _, p := range op.Parameters {
				found = found || p.In == "path" && "{"+p.Name+"}" == name && p.Required && p.Schema != nil
			}
			if !found {
				t.Errorf("%s does not describe %s", o.ID, name)
			}
		}
		good := false
		for code, r := range op.Responses {
			good = good || code[0] == '2'
			if r.Description == "" && r.Ref == "" {
				t.Errorf("%s: response %s has no description", o.ID, code)
			}
		}
		if !good {
			t.Errorf("%s has no response of success", o.ID)
		}
	}
	for path, methods := range doc.Paths {
		for m, op := range methods {
			if !seen[op.OperationID] {
				t.Errorf("%s %s is in the document but not in the table", m, path)
			}
		}
	}
	for _, ref := range regexp.MustCompile(`"\$ref": "([^"]+)"`).FindAllStringSubmatch(string(h.OpenAPI()), -1) {
		schema, _ := strings.CutPrefix(ref[1], "#/components/schemas/")
		response, _ := strings.CutPrefix(ref[1], "#/components/responses/")
		if doc.Components.Schemas[schema] == nil && doc.Components.Responses[response] == nil {
			t.Errorf("%s leads nowhere", ref[1])
		}
	}
	if p, ok := doc.Components.Schemas["Problem"].(map[string]any); !ok || p["properties"].(map[string]any)["hint"] == nil {
		t.Error("problems are not described")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
