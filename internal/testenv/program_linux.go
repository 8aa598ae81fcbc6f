package testenv

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// programVar names the program that scripts/test has built of these sources for all packages.
const programVar = "SKERRY_TEST_BINARY"

// Program gives the path of Skerry's own program, built as it is shipped. Linking it takes seconds of a processor, so that all tests
// share one: the one that scripts/test has built, or else one of this package's run. Nobody may change it.
func Program(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(programVar); path != "" {
		return path
	}
	dir := filepath.Join(os.TempDir(), "program") // Main makes that one of this run, and removes it
	if os.Getenv(runVar) == "" {
		dir = t.TempDir()
	}
	path := filepath.Join(dir, "skerry")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	Build(t, path+".new", "skerry.dev/skerry/cmd/skerry")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// programsVar names a directory where scripts/test has programs of its run kept, for all processes of tests.
const programsVar = "SKERRY_TEST_PROGRAMS"

// Build makes a static program of a package. With the same flags everywhere what it imports is compiled once, and in a run of scripts/test
// one that is named by its whole path is linked once, too: a dozen tests want the same.
func Build(t testing.TB, path, pkg string) {
	t.Helper()
	dir := os.Getenv(programsVar)
	if dir == "" || !strings.HasPrefix(pkg, "skerry.dev/") {
		build(t, path, pkg)
		return
	}
	kept := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "~"))
	if _, err := os.Stat(kept); err != nil {
		own, err := os.MkdirTemp(dir, "building-") // another test may make it at the same time
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(own)
		made := filepath.Join(own, "program")
		build(t, made, pkg)
		if err := os.Rename(made, kept); err != nil {
			t.Fatalf("keep %s: %v", pkg, err)
		}
	}
	// By a process of its own: what this one starts meanwhile would hold the new program open, so that it could not be executed.
	if out, err := exec.Command("cp", "--remove-destination", kept, path).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v\n%s", pkg, err, out)
	}
}

func build(t testing.TB, path, pkg string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
}

// Reversioned makes a copy of a program that says it is of another version, whose name is as long. The rest of the program has to hold
// the name nowhere else. Linking the whole program once more would take a processor ten seconds.
func Reversioned(t testing.TB, to, program, from, version string) {
	t.Helper()
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte(from)); n != 1 || len(from) != len(version) {
		t.Fatalf("%s holds %q %d times, and %q has to be as long: want once", program, from, n, version)
	}
	if err := os.WriteFile(to, bytes.Replace(b, []byte(from), []byte(version), 1), 0o755); err != nil {
		t.Fatal(err)
	}
}
