//go:build linux

package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/wire"
)

// TestFleetFromTheRoot has an operator of the root look into a site that grants it, and drain that site, with processes and commands alone:
// a root, two sites and a worker at each. No file of the root holds the name of a worker that was asked for, nor its address.
func TestFleetFromTheRoot(t *testing.T) {
	p := newProcesses(t, "keeper-of-harbour", "keeper-of-hill")
	const rootURL = "https://127.0.0.1:7480"
	sites := map[string]string{"harbour": "748", "hill": "749"} // the beginnings of their ports
	url := func(site string) string { return "https://127.0.0.1:" + sites[site] + "1" }
	for d := p.dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) { // users of user namespaces enter it
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.start(&role{name: "root", args: []string{"root", "--data", p.data("root"), "--link", "127.0.0.1:7443", "--api", "127.0.0.1:7480"}})
	for _, site := range []string{"harbour", "hill"} {
		token := joinToken(t, rootURL, p.data("root"), wire.TierCluster)
		p.start(&role{name: site, args: []string{"cluster", "--name", site, "--data", p.data(site), "--root", "127.0.0.1:7443", "--join", token,
			"--link", "127.0.0.1:" + sites[site] + "4", "--api", "127.0.0.1:" + sites[site] + "1", "--relay", "", "--admission", p.admission()}})
		token = joinToken(t, url(site), p.data(site), wire.TierWorker)
		name := "keeper-of-" + site
		p.start(&role{name: name, args: []string{"worker", "--name", name, "--data", p.data(name), "--cluster", "127.0.0.1:" + sites[site] + "4",
			"--join", token, "--run-dir", p.data("run-" + name), "--cgroup-parent", p.cgroup() + "-" + site, "--address", "127.0.0.1",
			"--http", "", "--no-network"}})
	}
	try, run := p.commands()
	refused := func(context, part string, args ...string) {
		t.Helper()
		if out, err := try(context, args...); err == nil || !strings.Contains(out, part) {
			t.Errorf("skerry %s: %v, without %q:\n%s", strings.Join(args, " "), err, part, out)
		}
	}
	for context, at := range map[string]string{"root": rootURL, "harbour": url("harbour")} {
		run(context, "login", "--trust", "-u", "admin", "--password-file", filepath.Join(p.data(context), parents.AdminPasswordFile), at)
	}
	root := login(t, rootURL, p.data("root"))
	pushProgram(t, root, p.dir, "test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	await(t, "both sites have a worker", func() bool {
		list, err := root.Clusters(t.Context())
		return err == nil && len(list) == 2 && len(list[0].Report.Classes) == 1 && len(list[1].Report.Classes) == 1
	})

	refused("root", "skerry cluster grant workers", "get", "workers", "--cluster", "harbour")
	refused("root", "--cluster goes with workers", "get", "apps", "--cluster", "harbour")
	run("harbour", "cluster", "grant", "workers")
	for _, args := range [][]string{{"get", "workers"}, {"top", "workers"}, {"describe", "worker", "keeper-of-harbour"}} {
		if args[0] == "describe" { // after which the audit has what its user typed
			holdNot(t, p.data("root"), "keeper-of-")
		}
		out := run("root", append(args, "--cluster", "harbour")...)
		if !strings.Contains(out, "keeper-of-harbour") || strings.Contains(out, "hill") {
			t.Errorf("skerry %s shows\n%s", strings.Join(args, " "), out)
		}
	}
	refused("root", "skerry cluster grant drain", "cordon", "keeper-of-harbour", "--cluster", "harbour")
	run("harbour", "cluster", "grant", "drain")
	run("root", "cordon", "keeper-of-harbour", "--cluster", "harbour", "--reason", "paint")
	if out := run("harbour", "describe", "worker", "keeper-of-harbour"); !strings.Contains(out, "paint") {
		t.Errorf("the site does not show the reason:\n%s", out)
	}
	run("root", "uncordon", "keeper-of-harbour", "--cluster", "harbour")
	if out := run("harbour", "get", "audit", "-o", "wide"); !strings.Contains(out, "root/admin") || !strings.Contains(out, "hold-worker") {
		t.Errorf("the site's audit shows\n%s", out)
	}
	await(t, "the root shows the grants", func() bool {
		return strings.Contains(run("root", "get", "clusters", "-o", "wide"), "workers,drain")
	})

	// All of the root's leaves a site for the other one, and not for none.
	run("root", "cordon", "cluster", "hill")
	applied(t, root, "stable", []byte(manifestOf("stable", 2)), 2)
	at := func() (names string) {
		list, err := root.Instances(t.Context(), api.InstanceFilter{App: "stable"})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			if !i.Stopping {
				names += " " + string(i.Cluster)
			}
		}
		return names
	}
	if got := at(); got != " harbour harbour" {
		t.Errorf("with hill cordoned they are at%s", got)
	}
	refused("root", "no other cluster can take it", "drain", "cluster", "harbour", "--timeout", "1s")
	run("root", "uncordon", "cluster", "hill")
	if out := run("root", "drain", "cluster", "harbour", "--parallel", "2"); !strings.Contains(out, "cluster/harbour: drained") {
		t.Errorf("the drain shows\n%s", out)
	}
	if n := readyOf(t.Context(), root, "stable"); n != 2 || at() != " hill hill" {
		t.Errorf("%d are ready, at%s", n, at())
	}
}

// holdNot reports the files of a directory that have a text.
func holdNot(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil // it has gone meanwhile
		}
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(text)) {
			t.Errorf("%s holds %q", path, text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestUpgradeInWaves has the root upgrade two sites, one after the other, with processes and commands alone. The new program does not start
// at the second one: the first has it, the second one's worker goes on with its old program, the upgrade stops and says why, and the root
// learns the name of no worker. A site that grants nothing is left out.
func TestUpgradeInWaves(t *testing.T) {
	p := newProcesses(t, "keeper-of-harbour", "keeper-of-hill")
	p.small = p.data("skerry-worker")
	testenv.Build(t, p.small, "skerry.dev/skerry/cmd/skerry-worker")
	const rootURL = "https://127.0.0.1:7480"
	sites := map[string]string{"harbour": "748", "hill": "749"} // the beginnings of their ports
	p.start(&role{name: "root", args: []string{"root", "--data", p.data("root"), "--link", "127.0.0.1:7443", "--api", "127.0.0.1:7480"}})
	try, run := p.commands()
	enter := func(context, url string) {
		run(context, "login", "--trust", "-u", "admin", "--password-file", filepath.Join(p.data(context), parents.AdminPasswordFile), url)
	}
	for _, site := range []string{"harbour", "hill"} {
		token := joinToken(t, rootURL, p.data("root"), wire.TierCluster)
		url := "https://127.0.0.1:" + sites[site] + "1"
		p.start(&role{name: site, args: []string{"cluster", "--name", site, "--data", p.data(site), "--root", "127.0.0.1:7443", "--join", token,
			"--link", "127.0.0.1:" + sites[site] + "4", "--api", "127.0.0.1:" + sites[site] + "1", "--relay", "", "--admission", p.admission()}})
		token = joinToken(t, url, p.data(site), wire.TierWorker)
		name := "keeper-of-" + site
		worker := &role{name: name, args: []string{"worker", "--name", name, "--data", p.data(name),
			"--cluster", "127.0.0.1:" + sites[site] + "4",
			"--join", token, "--run-dir", p.data("run-" + name), "--cgroup-parent", p.cgroup() + "-" + site, "--address", "127.0.0.1",
			"--http", "", "--no-network"}}
		if p.all = append(p.all, worker); site == "hill" { // the agent alone, which takes another file of the image
			worker.args = worker.args[1:]
			worker.start(t, p.small, p.log)
		} else {
			worker.start(t, p.program, p.log)
		}
		enter(site, url)
	}
	enter("root", rootURL)
	root := login(t, rootURL, p.data("root"))
	await(t, "both sites have a worker", func() bool {
		list, err := root.Clusters(t.Context())
		return err == nil && len(list) == 2 && len(list[0].Report.Classes) == 1 && len(list[1].Report.Classes) == 1
	})

	// The program for the second wave's worker tells a version, and does not start.
	image := t.TempDir()
	if err := copyFile(p.program, filepath.Join(image, "skerry")); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n[ \"$1\" = version ] && exec echo '{\"client\": \"v-broken\"}'\nexit 7\n"
	if err := os.WriteFile(filepath.Join(image, "skerry-worker"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	pushFile(t, root, t.TempDir(), "ops/agent:v2", image)
	upgrade := []string{"upgrade", "clusters", "--all", "--name", "v2", "--image", "ops/agent:v2", "--steady", "2s"}
	if out, err := try("root", upgrade...); err == nil || !strings.Contains(out, "skerry cluster grant waves") {
		t.Fatalf("without a grant: %v\n%s", err, out)
	}
	run("harbour", "cluster", "grant", "waves")
	await(t, "the root knows the grant", func() bool { return strings.Contains(run("root", "get", "clusters", "-o", "wide"), "waves") })
	if out := run("root", append(upgrade, "--name", "harbour-alone")...); !strings.Contains(out, "cluster/hill: skipped: it does not grant") ||
		!strings.Contains(out, "cluster/harbour: done") {
		t.Errorf("the upgrade of harbour shows\n%s", out)
	}
	agent := func(site, want string) {
		t.Helper()
		if out := run(site, "describe", "worker", "keeper-of-"+site); !strings.Contains(out, want) {
			t.Errorf("the worker of %s is not shown with %q:\n%s", site, want, out)
		}
	}
	agent("harbour", "upgraded from")

	run("hill", "cluster", "grant", "waves")
	await(t, "the root knows both grants", func() bool {
		return strings.Count(run("root", "get", "clusters", "-o", "wide"), "waves") == 2
	})
	out, err := try("root", upgrade...)
	for _, part := range []string{"cluster/harbour: done", "upgrade v2 has stopped: cluster hill: a worker keeps its program",
		"exit status 7"} {
		if err == nil || !strings.Contains(out, part) {
			t.Errorf("the upgrade shows, with error %v and without %q,\n%s", err, part, out)
		}
	}
	agent("harbour", "upgraded from")
	agent("hill", "failed its trial")
	if out := run("root", "describe", "upgrade", "v2"); !strings.Contains(out, "Stopped") || !strings.Contains(out, "exit status 7") {
		t.Errorf("the root describes\n%s", out)
	}
	if out := run("root", "get", "upgrades"); !strings.Contains(out, "Stopped") || !strings.Contains(out, "1/2") {
		t.Errorf("the root lists\n%s", out)
	}
	for context, operation := range map[string]string{"root": "start-upgrade", "harbour": "upgrade-site", "hill": "upgrade-site"} {
		if out := run(context, "get", "audit", "-o", "wide"); !strings.Contains(out, operation) {
			t.Errorf("the audit of %s does not have %s:\n%s", context, operation, out)
		}
	}
	if out := run("hill", "get", "audit"); !strings.Contains(out, "root/admin") {
		t.Errorf("the audit of hill does not have who it was:\n%s", out)
	}
	holdNot(t, p.data("root"), "keeper-of-")

	run("root", "upgrade", "abort", "v2")
	run("root", "delete", "upgrade", "v2")
	if out, err := try("root", "describe", "upgrade", "v2"); err == nil {
		t.Errorf("deleted, it is shown as\n%s", out)
	}
}
