//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/testenv"
)

// oak runs oak-cli, the client of Oakestra, as it is published.
type oak struct {
	t      *testing.T
	python string
	home   string
}

// newOak installs the client, and has it speak to this machine. The port is its own: 10000.
func newOak(t *testing.T) *oak {
	t.Helper()
	o := &oak{t, pythonOf(t, "oak-cli", "testdata/oakestra/requirements.txt"), t.TempDir()}
	o.must("configuration", "key-vars", "configure", "system_manager_ip", "--value", "127.0.0.1")
	return o
}

// run gives what a command printed, without colours.
func (o *oak) run(args ...string) (string, error) {
	o.t.Helper()
	cmd := exec.CommandContext(o.t.Context(), o.python, append([]string{"-m", "oak_cli.main"}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+o.home, "COLUMNS=240", "TERM=dumb", "PYTHONDONTWRITEBYTECODE=")
	out, err := cmd.CombinedOutput()
	return regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(string(out), ""), err
}

func (o *oak) must(args ...string) string {
	o.t.Helper()
	out, err := o.run(args...)
	if err != nil {
		o.t.Fatalf("oak %q: %v\n%s", args, err, out)
	}
	return out
}

// fails expects a command to fail; what of the answer the client shows is its business.
func (o *oak) fails(args ...string) string {
	o.t.Helper()
	out, err := o.run(args...)
	if err == nil {
		o.t.Errorf("oak %q did what cannot be done:\n%s", args, out)
	}
	return out
}

// shows expects a command to print all of these.
func (o *oak) shows(args []string, want ...string) {
	o.t.Helper()
	out := o.must(args...)
	for _, w := range want {
		if !strings.Contains(out, w) {
			o.t.Errorf("oak %q does not show %q:\n%s", args, w, out)
		}
	}
}

// sla writes an SLA to where the client looks for it.
func (o *oak) sla(name, text string) {
	o.t.Helper()
	if err := os.WriteFile(filepath.Join(o.home, "oak_cli/SLAs", name+".json"), []byte(text), 0o644); err != nil {
		o.t.Fatalf("write an SLA: %v", err)
	}
}

// TestOakCLI has the client of Oakestra, unchanged, use a real root with a site and a worker.
func TestOakCLI(t *testing.T) {
	o := newOak(t)
	p := newProcesses(t, "up/worker")
	const password = "an oak by the sea"
	if err := os.WriteFile(p.data("oak"), []byte("user: oak\npassword: "+password+"\n"), 0o600); err != nil {
		t.Fatalf("say as whom the client logs in: %v", err)
	}
	p.start(&role{name: "up", args: []string{"up", "--data", p.data("up"), "--name", "w1", "--run-dir", p.data("run"),
		"--cgroup-parent", p.cgroup(), "--add-context", "", "--address", "127.0.0.1", "--http", "",
		"--oakestra-api", "127.0.0.1:10000", "--oakestra-api-admin", p.data("oak")}})
	root := login(t, "https://127.0.0.1:7480", p.data("up/root"))
	grants := []auth.Grant{{Role: auth.RoleDeveloper, Org: "default", Cluster: auth.Any},
		{Role: auth.RoleOperator, Org: auth.Any, Cluster: auth.Any}}
	if _, err := root.CreateUser(t.Context(), "oak", password, grants); err != nil {
		t.Fatalf("create the user: %v", err)
	}
	if _, err := root.CreateNamespace(t.Context(), apps.Namespace{Name: "test", Org: "default"}); err != nil {
		t.Fatalf("create the namespace: %v", err)
	}
	pushProgram(t, root, p.dir, "test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	await(t, "the site works", func() bool {
		list, err := root.Clusters(t.Context())
		return err == nil && len(list) == 1 && len(list[0].Report.Classes) == 1
	})

	o.shows([]string{"cluster", "list"}, "local", "oci")
	o.shows([]string{"cluster", "info", "local"}, "Connected", "Available Memory")
	const sla = `{"sla_version": "v2.0", "customerID": "Admin", "applications": [{"applicationID": "", "application_name": "Shop",
"application_namespace": "test", "application_desc": "what the shop sells", "microservices": [{"microserviceID": "",
"microservice_name": "catalog", "microservice_namespace": "test", "virtualization": "container", "cmd": [], "memory": 32, "vcpus": %s,
"code": "test/catalog:1", "port": "", "state": "", "added_files": []}]}]}`
	o.sla("broken", fmt.Sprintf(sla, `"many"`))
	o.fails("application", "create", "--sla-file-name", "broken")
	o.shows([]string{"application", "show"}, "No applications exist yet")

	o.sla("shop", fmt.Sprintf(sla, "0"))
	o.must("application", "create", "--sla-file-name", "shop", "-d") // and deploys an instance of each service
	numbers := func() (of string) {
		list, err := root.Instances(t.Context(), api.InstanceFilter{Namespace: "test", App: "shop"})
		for _, i := range list {
			if err == nil && i.State == skerry.Running && !i.Stopping {
				of += fmt.Sprint(i.Ordinal)
			}
		}
		return of
	}
	await(t, "an instance runs", func() bool { return numbers() == "0" })
	o.shows([]string{"service", "show", "-v", "detailed"}, "catalog", "RUNNING", "test/catalog:1")
	app, service := o.ids()
	o.shows([]string{"service", "inspect", service}, "RUNNING", "app name: shop", "listens on :8080")
	o.fails("application", "create", "--sla-file-name", "shop") // it is there

	o.must("service", "deploy", service)
	await(t, "another instance runs", func() bool { return numbers() == "01" || numbers() == "10" })
	o.must("service", "undeploy", "--service-id", service, "--instance-id", "0")
	await(t, "the first one ends, and no other", func() bool { return numbers() == "1" })
	o.fails("service", "undeploy", "--service-id", service, "--instance-id", "7")
	o.must("service", "undeploy", "--service-id", service)
	await(t, "nothing runs", func() bool {
		list, err := root.Instances(t.Context(), api.InstanceFilter{App: "shop"})
		return err == nil && len(list) == 0
	})
	o.shows([]string{"application", "show", "-v", "detailed"}, "shop", app)
	o.fails("application", "delete", "0123456789abcdef01234567")
	o.fails("service", "deploy", "0123456789abcdef01234567")
	o.must("application", "delete", app)
	await(t, "the application is gone", func() bool {
		list, err := root.Apps(t.Context(), "test")
		return err == nil && len(list) == 0
	})

	other := "another oak by the sea"
	if _, err := root.ChangeUser(t.Context(), "oak", api.UserPatch{Password: &other}); err != nil {
		t.Fatalf("change the password: %v", err)
	}
	if out := o.fails("application", "show"); !strings.Contains(out, "Unable to log in") {
		t.Errorf("with a wrong password the client says:\n%s", out)
	}
}

// ids asks for the application and its one service what oak-cli shows of them in a table, whose lines it breaks.
func (o *oak) ids() (app, service string) {
	o.t.Helper()
	ask := func(method, path, token, body string, into any) {
		o.t.Helper()
		r, err := http.NewRequestWithContext(o.t.Context(), method, "http://127.0.0.1:10000"+path, strings.NewReader(body))
		if err != nil {
			o.t.Fatalf("%s: %v", path, err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			o.t.Fatalf("%s: %v", path, err)
		}
		defer res.Body.Close()
		if err := json.NewDecoder(res.Body).Decode(into); err != nil || res.StatusCode != http.StatusOK {
			o.t.Fatalf("%s: %s: %v", path, res.Status, err)
		}
	}
	var login struct{ Token string }
	ask("POST", "/api/auth/login", "", `{"username":"Admin","password":"Admin"}`, &login)
	var list []struct {
		App     string `json:"applicationID"`
		Service string `json:"microserviceID"`
	}
	ask("GET", "/api/services", login.Token, "", &list)
	if len(list) != 1 {
		o.t.Fatalf("%d services, want one", len(list))
	}
	return list[0].App, list[0].Service
}

// TestOakestraAddresses: passwords are not sent over a network in the clear unless the operator says so.
func TestOakestraAddresses(t *testing.T) {
	p := newProcesses(t)
	secret := p.data("oak")
	if err := os.WriteFile(secret, []byte("user: oak\npassword: x\n"), 0o644); err != nil {
		t.Fatalf("write a login: %v", err)
	}
	for _, tt := range []struct{ flags, want string }{
		{"--oakestra-api 0.0.0.0:10000", "is not a loopback address"},
		{"--oakestra-api-insecure", "are of --oakestra-api"},
		{"--oakestra-api 127.0.0.1:10000 --api=", "which is disabled"},
		{"--oakestra-api 127.0.0.1:10000 --oakestra-api-insecure --oakestra-api-admin " + secret, "leave out one of them"},
		{"--oakestra-api 127.0.0.1:10000 --oakestra-api-admin " + secret, "others may read it"},
	} {
		args := []string{"root", "--data", p.data("root"), "--link", "127.0.0.1:0", "--api", "127.0.0.1:0"}
		out, err := exec.CommandContext(t.Context(), testenv.Program(t), append(args, strings.Fields(tt.flags)...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("skerry root %s: %v: it does not say %q:\n%s", tt.flags, err, tt.want, out)
		}
	}
}
