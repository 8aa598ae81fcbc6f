package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"skerry.dev/skerry/ctl"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/root"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// inNetNS runs the tests in a network of their own, for they listen on the ports that people use.
type inNetNS struct{ run func() int }

func (n inNetNS) Run() int { return n.run() }

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == shimCommand {
		os.Exit(shim(os.Args[2:])) // a worker of these tests starts it
	}
	if len(os.Args) > 1 && os.Args[1] == datapathCommand {
		os.Exit(datapath(os.Args[2:]))
	}
	testscript.Main(inNetNS{func() int { return runTests(m) }}, map[string]func(){"skerry": main})
}

// scripts runs the scripts of a folder with a root in this process, which has no worker, and its admin's password.
func scripts(t *testing.T, dir string) {
	testscript.Run(t, testscript.Params{Dir: dir, UpdateScripts: *update, Cmds: scriptCommands(), Setup: func(env *testscript.Env) error {
		setHome(env)
		return startTestRoot(env)
	}})
}

// setHome gives a script a home of its own.
func setHome(env *testscript.Env) {
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
	c := commonFlags{data: filepath.Join(env.WorkDir, "root"), store: "memory:", logFormat: "text", logLevel: "error"}
	cfg := node.RootConfig{Server: root.ServerOptions{Name: "root"}}
	if err := rootConfig(&cfg, &c, &parentFlags{link: "127.0.0.1:0"}); err != nil {
		return err
	}
	s := newService(cfg.Log)
	r, err := startRoot(ctx, s, cfg, &f)
	if err != nil {
		s.stop()
		return err
	}
	env.Defer(func() { s.stop() })
	env.Setenv("SERVER", f.served)
	env.Setenv("CA_PIN", r.Authority().CAPin())
	env.Setenv("PASSWORD_FILE", filepath.Join(c.data, node.AdminPasswordFile))
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
		code := ctl.Main(t.Context(), commands(), args, ctl.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		return code, errs.String()
	}
	groups := 0
	for _, cmd := range allCommands(commands()) {
		if !cmd.HasSubCommands() || !cmd.HasParent() || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
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

// A flag that is not given comes from the environment.
func TestFlagsFromEnvironment(t *testing.T) {
	t.Setenv("SKERRY_LOG_LEVEL", "debug")
	t.Setenv("SKERRY_LABEL", "a=1,b=2")
	t.Setenv("SKERRY_MEMORY", "64Mi")
	t.Setenv("SKERRY_AREA", "east")
	cmd := workerCommand()
	cmd.SetOut(io.Discard)
	if err := cmd.ParseFlags([]string{"--area", "west"}); err != nil {
		t.Fatal(err)
	}
	if err := fromEnv(cmd); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"log-level": "debug", "label": "[a=1,b=2]", "memory": "64Mi", "area": "west"} {
		if got := cmd.Flag(name).Value.String(); got != want {
			t.Errorf("--%s is %s, want %s", name, got, want)
		}
	}
	t.Setenv("SKERRY_CPU", "many")
	if err := fromEnv(cmd); err == nil || !strings.Contains(err.Error(), "SKERRY_CPU") {
		t.Errorf("got %v", err)
	}
}

func TestParseLocation(t *testing.T) {
	for in, want := range map[string]wire.Power{"2.5, 6": {Idle: 2.5, Busy: 6}, "0,0": {}} {
		if p, err := parsePower(in); err != nil || *p != want {
			t.Errorf("--power %s: %+v, %v", in, p, err)
		}
	}
	for _, in := range []string{"3", "6,2", "-1,5", "NaN,5", "1,Inf", "a,b"} {
		if _, err := parsePower(in); err == nil {
			t.Errorf("--power %s is accepted", in)
		}
	}
	if err := checkKeys("--taint", []string{"=x"}); err == nil {
		t.Error("a taint without a key is accepted")
	}
	if l, err := parseLocation("53.87, 10.69"); err != nil || l.Lat != 53.87 || l.Lon != 10.69 {
		t.Errorf("%v %v", l, err)
	}
	for _, s := range []string{"1", "91,0", "0,181", "x,y"} {
		if _, err := parseLocation(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

func TestSocketPath(t *testing.T) {
	short, err := socketPath("/var/lib/skerry/root")
	if err != nil || short != "/var/lib/skerry/root/control.sock" {
		t.Errorf("%s %v", short, err)
	}
	long, err := socketPath("/" + strings.Repeat("x", 200))
	if err != nil || len(long) > 107 {
		t.Errorf("%s %v", long, err)
	}
}

// A join token comes from a file, or from an argument, and not from both.
func TestJoinFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("skt1.worker.x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		f    joinFlags
		want string
	}{
		{joinFlags{tokenFile: file}, "skt1.worker.x"}, {joinFlags{token: "@" + file}, "skt1.worker.x"}, {joinFlags{token: "skt1.worker.y"}, "skt1.worker.y"},
		{joinFlags{}, ""}, {joinFlags{token: "skt1.worker.y", tokenFile: file}, "!"}, {joinFlags{tokenFile: file + "x"}, "!"},
	} {
		if got, err := c.f.text(); (err != nil) != (c.want == "!") || err == nil && got != c.want {
			t.Errorf("%+v: %q, %v", c.f, got, err)
		}
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
