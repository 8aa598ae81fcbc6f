package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"skerry.dev/skerry/spec"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run([]string{"primes", "100"}, &out); err != nil || out.String() != "there are 25 primes below 100\n" {
		t.Error(out.String(), err)
	}
	for n, want := range map[int]int{0: 0, 2: 0, 3: 1, 1000: 168} {
		if got := primes(n); got != want {
			t.Error(n, got)
		}
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := run([]string{"write", file, "text"}, &out); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "text\n" {
		t.Error(string(b), err)
	}
	t.Setenv("SKERRY_ENDPOINTS", file)
	out.Reset()
	if err := run([]string{"endpoints"}, &out); err != nil || out.String() != "text\n" {
		t.Error(out.String(), err)
	}
	for _, bad := range [][]string{nil, {"primes"}, {"primes", "-1"}, {"dance"}, {"get", "http://x/", "0"}, {"get", "http://x/", "1", "soon"}} {
		if err := run(bad, &out); err == nil {
			t.Error(bad)
		}
	}
}

// TestManifests holds every example to what this version accepts.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("../apps/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, f := range append(files, "../shop/shop.yaml") {
		data, err := os.ReadFile(f)
		if err == nil {
			data, err = yaml.YAMLToJSONStrict(data)
		}
		if err != nil {
			t.Fatal(err)
		}
		app, err := spec.DecodeApplication(data)
		if err == nil {
			app.SetDefaults()
			err = app.Validate()
		}
		if err != nil {
			t.Errorf("%s: %+v", f, err)
		}
	}
}
