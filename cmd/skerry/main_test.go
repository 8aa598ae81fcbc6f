package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"skerry.dev/skerry/cmd/internal/agent"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/ctl/console"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/root"
	"skerry.dev/skerry/spec"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// inNetNS runs the tests in a network of their own, for they listen on the ports that people use.
type inNetNS struct{ run func() int }

func (n inNetNS) Run() int { return n.run() }

func TestMain(m *testing.M) {
	if status, ok := agent.Helper(version, os.Args[1:]); ok { // a worker of these tests starts it
		os.Exit(status)
	}
	testscript.Main(inNetNS{func() int { return runTests(m) }}, map[string]func(){"skerry": main})
}

// scripts runs the scripts of a folder with a root in this process, which has no worker, and its admin's password.
func scripts(t *testing.T, dir string) {
	bin := plain(t)
	testscript.Run(t, testscript.Params{Dir: dir, UpdateScripts: *update, Cmds: scriptCommands(), Setup: func(env *testscript.Env) error {
		setHome(env, bin)
		return startTestRoot(env)
	}})
}

// setHome gives a script a home of its own, and has it find skerry in a directory first.
func setHome(env *testscript.Env, bin string) {
	env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
	env.Setenv("HOME", env.WorkDir)
	env.Setenv("SKERRY_CONFIG", filepath.Join(env.WorkDir, "config.yaml"))
	env.Setenv("SKERRY_IMAGES", filepath.Join(env.WorkDir, "images"))
	env.Setenv("NO_COLOR", "1")
	env.Setenv("TZ", "UTC")
	env.Setenv("GORACE", "atexit_sleep_ms=0") // else each command sleeps for a second under the race detector
}

// startTestRoot starts a root over a memory store and tells the script where it is.
func startTestRoot(env *testscript.Env) error {
	ctx, cancel := context.WithCancel(context.Background())
	env.Defer(cancel)
	f := apiFlags{listen: "127.0.0.1:0"}
	c := role.CommonFlags{Data: filepath.Join(env.WorkDir, "root"), Store: "memory:", LogFormat: "text", LogLevel: "error"}
	cfg := parents.RootConfig{Server: root.ServerOptions{Name: "root"}}
	if err := rootConfig(&cfg, &c, &parentFlags{link: "127.0.0.1:0"}); err != nil {
		return err
	}
	s := role.NewService(cfg.Log)
	r, err := startRoot(ctx, s, cfg, &f)
	if err != nil {
		s.Stop()
		return err
	}
	env.Defer(func() { s.Stop() })
	env.Setenv("SERVER", f.served)
	env.Setenv("CA_PIN", r.Authority().CAPin())
	env.Setenv("PASSWORD_FILE", filepath.Join(c.Data, parents.AdminPasswordFile))
	return nil
}

// The commands over a root without workers: what people read is kept as they read it.
func TestScripts(t *testing.T) { scripts(t, "testdata/script") }

// Every command has help, an example of a flag that exists only, and no two share a name.
func TestCommands(t *testing.T) {
	root := commands()
	for _, cmd := range allCommands(root) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short help %q", cmd.CommandPath(), cmd.Short)
		}
		seen := map[string]bool{}
		for _, sub := range cmd.Commands() {
			for _, n := range append([]string{sub.Name()}, sub.Aliases...) {
				if seen[n] {
					t.Errorf("%s has two commands %s", cmd.CommandPath(), n)
				}
				seen[n] = true
			}
		}
	}
}

// A command that its group does not have is an error, and never taken for a request for help.
func TestUnknownCommands(t *testing.T) {
	run := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		code := console.Main(t.Context(), commands(), args, console.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		return code, errs.String()
	}
	groups := 0
	for _, cmd := range allCommands(commands()) {
		if !cmd.HasSubCommands() || !cmd.HasParent() || cmd.Name() == "help" || cmd.Name() == "completion" || cmd.Name() == "upgrade" {
			continue // upgrade also takes the names of workers
		}
		groups++
		path := strings.Fields(cmd.CommandPath())[1:]
		if code, text := run(append(path, "--context", "x", "nosuch")...); code != 1 || !strings.Contains(text, "nosuch") {
			t.Errorf("%s nosuch: exit status %d: %s", cmd.CommandPath(), code, text)
		}
		if code, text := run(append(path, "--help")...); code != 0 || text != "" {
			t.Errorf("%s --help: exit status %d: %s", cmd.CommandPath(), code, text)
		}
	}
	for _, args := range []string{"secret help", "help secret", "secret", "--context x secret --help", "secret rotat --help"} {
		if code, text := run(strings.Fields(args)...); code != 0 {
			t.Errorf("%s: exit status %d: %s", args, code, text)
		}
	}
	if groups < 10 {
		t.Errorf("%d groups of commands", groups)
	}
	if _, text := run("secret", "rotat", "db"); !strings.Contains(text, "hint: did you mean rotate?") {
		t.Error(text)
	}
}

func TestReadAdmission(t *testing.T) {
	write := func(s string) string {
		f := filepath.Join(t.TempDir(), "a.yaml")
		if err := os.WriteFile(f, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	a, err := readAdmission(write("trusted: [shop]\nhostPaths: [/srv, {path: /srv/up, writable: true}]\nmaxPerInstance: {cpu: 2, memory: 1Gi}\nquotas: {guests: {cpu: 8, serviceAddresses: 60}}\n"))
	if err != nil || a.Trusted[0] != "shop" || !slices.Equal(a.HostPaths, []spec.HostPath{{Path: "/srv"}, {Path: "/srv/up", Writable: true}}) || a.MaxPerInstance.CPU != 2000 || a.Quotas["guests"].CPU != 8000 || a.Quotas["guests"].ServiceAddresses != 60 {
		t.Errorf("%+v %v", a, err)
	}
	a, err = readAdmission(write("measureNetworks: [10.0.0.0/8]\negress: {guests: {}, \"*\": {allow: [{cidr: 0.0.0.0/0, except: [10.0.0.0/8], ports: [{port: 443}]}]}}\n"))
	any, guests := a.Egress["*"], a.Egress["guests"]
	if err != nil || len(a.MeasureNetworks) != 1 || guests.String() != "nothing" || any.String() != "0.0.0.0/0 except 10.0.0.0/8 ports 443/tcp" {
		t.Errorf("%+v %v", a, err)
	}
	for _, s := range []string{"trustd: [a]", "trusted: a", "native: maybe", "hostPaths: [srv]", "hostPaths: [{path: /srv, write: true}]", "native: true\nnative: true", "a: [",
		"egress: {guests: {deny: all}}", "egress: {guests: {allow: [{cidr: 203.0.113.1/24}]}}", "measureNetworks: [10.0.0.0]", "signers: {guests: [key]}", "signers: [key]"} {
		if _, err := readAdmission(write(s)); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}
