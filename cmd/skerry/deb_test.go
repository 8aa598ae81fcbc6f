//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

// A Debian package is installed, upgraded, removed and purged in a root that has nothing but dpkg's records. That it starts, upgrades
// and stops roles under systemd is for the guest of e2e/guest to tell.
func TestDebianPackage(t *testing.T) {
	for _, program := range []string{"dpkg", "dpkg-deb", "systemctl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(&testenv.Unsupported{What: "Debian packages", Why: "there is no " + program})
		}
	}
	root, packages := t.TempDir(), t.TempDir()
	for _, dir := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	made := func(version string) string {
		cmd := exec.Command("../../scripts/deb", testenv.Program(t), runtime.GOARCH, version, packages)
		cmd.Env = append(os.Environ(), "COMPRESSION=none", "SOURCE_DATE_EPOCH=1700000000")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", cmd.Args, err)
		}
		return filepath.Join(packages, strings.TrimSpace(string(out)))
	}
	dpkg := func(args ...string) string {
		t.Helper()
		args = append([]string{"--root=" + root, "--force-script-chrootless", "--force-not-root", "--log=/dev/null"}, args...)
		cmd := exec.Command("dpkg", args...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
		return string(out)
	}
	has := func(want bool, names ...string) {
		t.Helper()
		for _, name := range names {
			if _, err := os.Lstat(filepath.Join(root, name)); (err == nil) != want {
				t.Errorf("%s: %v; want it there: %v", name, err, want)
			}
		}
	}

	older, newer := made("v1.2-rc1"), made("v1.2-5-gabc")
	if err := exec.Command("dpkg", "--compare-versions", "0~20231114221320.deadbee", "lt", "1.2~rc1").Run(); err != nil {
		t.Errorf("a version without a tag does not come before one with a tag: %v", err)
	}
	dpkg("--install", older)
	has(true, "usr/bin/skerry", "etc/skerry", "usr/lib/systemd/system/skerry-worker.service", "usr/lib/systemd/system/skerry.slice",
		"usr/share/man/man1/skerry-apply.1.gz", "usr/share/bash-completion/completions/skerry", "usr/share/doc/skerry/copyright")
	const enabled = "etc/systemd/system/multi-user.target.wants/skerry-worker.service"
	has(false, enabled) // nobody said which role this machine has
	units, err := filepath.Glob(filepath.Join(root, "usr/lib/systemd/system/*.service"))
	if err != nil || len(units) != 4 {
		t.Errorf("units %q: %v", units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil || strings.Contains(string(text), "/usr/local") {
			t.Errorf("%s names a program that is not there: %v\n%s", unit, err, text)
		}
	}

	kept := filepath.Join(root, "var/lib/skerry/worker/volumes/kept")
	for name, text := range map[string]string{filepath.Join(root, "etc/skerry/worker.env"): "SKERRY_NAME=w1\n", kept: "data"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("systemctl", "--root="+root, "enable", "skerry-worker").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dpkg("--install", newer)
	for _, line := range []string{"Version: 1.2+5.gabc", "Status: install ok installed"} {
		if out := dpkg("--status", "skerry"); !strings.Contains(out, "\n"+line+"\n") {
			t.Errorf("after the upgrade there is no %q in %s", line, out)
		}
	}
	has(true, "usr/bin/skerry", enabled, "etc/skerry/worker.env")

	dpkg("--remove", "skerry")
	has(false, "usr/bin/skerry", "usr/lib/systemd/system/skerry-worker.service", enabled)
	has(true, "etc/skerry/worker.env")
	if out := dpkg("--purge", "skerry"); !strings.Contains(out, "/var/lib/skerry is kept") {
		t.Errorf("a purge does not tell of the data: %s", out)
	}
	has(false, "etc/skerry")
	if got, err := os.ReadFile(kept); string(got) != "data" {
		t.Errorf("a volume after a purge: %q, %v", got, err)
	}
}
