package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
)

// given is `skerry up` with flags.
func given(t *testing.T, args ...string) (*upFlags, *cobra.Command) {
	t.Helper()
	f := &upFlags{}
	cmd := upCommandWith(f)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return f, cmd
}

// What is given as flags is what the unit reads, as a shell and as the command itself read it, and files are found from any directory.
func TestSettingsOfAService(t *testing.T) {
	odd := "a \"b\" $HOME \\d 'e' #f"
	_, cmd := given(t, "--service", "--name", odd, "--label", "a=1,b=2", "--label", "c=x y", "--admission", "policy.yaml", "--cdi", "one,/two",
		"--cpu", "0.5", "--containerd-class", "kata=io.containerd.kata.v2,isolation=hardware")
	text, err := settingsOf(cmd.Flags())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"SKERRY_NAME": odd, "SKERRY_LABEL": "a=1,b=2,c=x y", "SKERRY_ADMISSION": dir + "/policy.yaml",
		"SKERRY_CDI": dir + "/one,/two", "SKERRY_CPU": "0.5", "SKERRY_CONTAINERD_CLASS": "kata=io.containerd.kata.v2,isolation=hardware"}
	for name, value := range want {
		shell := exec.Command("sh", "-c", "set -a; eval \"$(cat)\"; printenv "+name)
		shell.Stdin = bytes.NewReader(text)
		if got, err := shell.Output(); err != nil || string(got) != value+"\n" {
			t.Errorf("%s = %q for a shell, %v; want %q", name, got, err, value)
		}
		t.Setenv(name, "")
	}

	s := &service{root: t.TempDir()}
	if _, err := s.write(upSettings, text, 0o600); err != nil {
		t.Fatal(err)
	}
	f, cmd := given(t, "--service")
	if err := s.settled(cmd); err != nil {
		t.Fatal(err)
	}
	if f.worker.Join.Name != odd || f.admission != dir+"/policy.yaml" {
		t.Errorf("read again: name = %q, admission = %q; want %q, %q", f.worker.Join.Name, f.admission, odd, dir+"/policy.yaml")
	}

	_, cmd = given(t, "--name", "two\nlines")
	if text, err := settingsOf(cmd.Flags()); err == nil {
		t.Errorf("a line break made %q, want an error", text)
	}
	_, cmd = given(t, "--service", "--add-context", "other")
	if text, err := settingsOf(cmd.Flags()); err != nil || text != nil {
		t.Errorf("no flag of the service made %q, %v; want nothing, so that earlier ones stay", text, err)
	}
}

// A flag that names a file or a directory is known as one: relative to where the command is given, the service would not find it.
func TestFilesOfAServiceAreFound(t *testing.T) {
	_, cmd := given(t)
	names := regexp.MustCompile(`^(file|directory|data directory|socket|credentials|guest kernel)\b`)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if names.MatchString(f.Usage) != slices.Contains(pathFlags, f.Name) {
			t.Errorf("--%s (%s): in pathFlags: %v", f.Name, f.Usage, slices.Contains(pathFlags, f.Name))
		}
	})
}

// The program, its units and its flags are where systemd finds them, and are written once. Units of single roles, or of another program,
// are not put aside.
func TestUpAsAService(t *testing.T) {
	for _, program := range []string{"systemctl", "systemd-analyze"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(&testenv.Unsupported{What: "a service", Why: "there is no " + program})
		}
	}
	program := filepath.Join(t.TempDir(), "skerry")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	units := &service{root: t.TempDir(), out: &said}
	install := func(want bool, args ...string) {
		t.Helper()
		_, cmd := given(t, args...)
		changed, err := units.install(t.Context(), program, cmd.Flags())
		if err != nil || changed != want {
			t.Errorf("with %q: changed = %v, %v; want %v", args, changed, err, want)
		}
	}
	install(true, "--service", "--name", "w1")
	install(false, "--service", "--name", "w1")
	install(false, "--service")
	install(true, "--service", "--name", "w2")
	text, err := os.ReadFile(units.root + upSettings)
	if err != nil || !strings.Contains(string(text), "SKERRY_NAME=\"w2\"\n") {
		t.Errorf("%s = %q, %v", upSettings, text, err)
	}
	if st, err := os.Stat(units.root + upSettings); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v; want it for its owner alone", upSettings, st, err)
	}
	for _, file := range []string{localBinary, localUnits + "/skerry-workloads.service", localUnits + "/multi-user.target.wants/" + upUnit} {
		if _, err := os.Lstat(units.root + file); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(said.String(), program+" is copied to "+localBinary) {
		t.Errorf("said %q, and not where the program went", said.String())
	}
	// It also tells of units and programs of the machine, which are not below this root.
	out, _ := exec.Command("systemd-analyze", "verify", "--root="+units.root, "--man=no", localUnits+"/"+upUnit).CombinedOutput()
	if strings.Contains(string(out), "ignoring") || !strings.Contains(string(out), upUnit) {
		t.Errorf("systemd finds fault with the unit: %s", out)
	}

	if _, err := units.systemctl(t.Context(), "--quiet", "disable", upUnit); err != nil {
		t.Fatal(err)
	}
	role := []byte("[Service]\nExecStart=/usr/local/bin/skerry worker\n[Install]\nWantedBy=multi-user.target\n")
	if _, err := units.write(localUnits+"/skerry-worker.service", role, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := units.systemctl(t.Context(), "enable", "skerry-worker"); err != nil {
		t.Fatal(out, err)
	}
	_, cmd := given(t, "--service")
	var refused *skerry.Error
	if _, err := units.install(t.Context(), program, cmd.Flags()); !errors.As(err, &refused) || refused.Code != skerry.CodeConflict ||
		!strings.Contains(refused.Error(), "skerry-worker.service is enabled") {
		t.Errorf("beside a worker's unit: %v", err)
	}
	if _, err := units.systemctl(t.Context(), "--quiet", "disable", "skerry-worker"); err != nil {
		t.Fatal(err)
	}

	if _, err := units.write("/usr/lib/systemd/system/"+upUnit, []byte("[Service]\nExecStart=/usr/bin/skerry up\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := units.install(t.Context(), program, cmd.Flags()); !errors.As(err, &refused) || refused.Code != skerry.CodeConflict {
		t.Errorf("beside a package of another program: %v", err)
	}
	// A unit that was written for a copy goes before that of a package that came later.
	if _, err := units.write("/usr/lib/systemd/system/"+upUnit, []byte("[Service]\nExecStart="+program+" up\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := units.install(t.Context(), program, cmd.Flags()); !errors.As(err, &refused) || refused.Code != skerry.CodeConflict ||
		!strings.Contains(refused.Error(), localUnits) {
		t.Errorf("with a unit of %s before that of the package: %v", localBinary, err)
	}
}
