package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// What runs with other settings than those that were written, or of a file that another has taken the place of, is to be started anew, also
// if the command that wrote them did not come to that.
func TestServiceIsOutdated(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{root: t.TempDir()}
	program := filepath.Join(t.TempDir(), "sleep")
	put := func() {
		t.Helper()
		if err := os.WriteFile(program+".new", data, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(program+".new", program); err != nil {
			t.Fatal(err)
		}
	}
	put()
	cmd := exec.Command(program, "1000")
	cmd.Env = []string{"SKERRY_NAME=a b", "OTHER=x"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	check := func(what string, want bool) {
		t.Helper()
		if got := s.outdated(strconv.Itoa(cmd.Process.Pid)); got != want {
			t.Errorf("%s: outdated = %v, want %v", what, got, want)
		}
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if link, _ := os.Readlink("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/exe"); link == program {
			break
		}
	}
	settings := func(text string) {
		t.Helper()
		if _, err := s.write(upSettings, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check("without settings", false)
	settings("# comment\nSKERRY_NAME=\"a b\"\n")
	check("with its settings", false)
	settings("SKERRY_NAME=\"b\"\n")
	check("with other settings", true)
	settings("SKERRY_NAME=\"a b\"\nSKERRY_LABEL=\"x=1\"\n")
	check("with more settings", true)
	settings("SKERRY_NAME=\"a b\"\n")
	put()
	check("of an older program", true)
	if s.outdated("0") {
		t.Error("what does not run is outdated")
	}
}
