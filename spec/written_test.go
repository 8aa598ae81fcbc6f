package spec

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestWithoutDefaults: what is left of a manifest means the same, and is what a person wrote.
func TestWithoutDefaults(t *testing.T) {
	const written = `apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: front
    image: shop/front:1
    replicas: 3
    env: {A: b}
    ports: [{port: 8080}]
    probes: {readiness: {http: {port: 8080}}}
    placement: {rigidness: 0.5, labels: {a: b}}
    restart: {maxAttempts: 7}
  - name: nightly
    mode: cron
    cron: {schedule: "0 3 * * *"}
    image: shop/nightly:1
    egress: {}
`
	read := func(text string) *Application {
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		app, err := DecodeApplication(data)
		if err != nil {
			t.Fatal(err)
		}
		return app
	}
	full := read(written)
	full.SetDefaults()
	full.Spec.Services[0].Pinned = map[string]string{"shop/front:1": "sha256:aa"}
	before := full.text()
	want := read(strings.Replace(written, "rigidness: 0.5, ", "", 1))
	if got := full.WithoutDefaults(); !bytes.Equal(got.text(), want.text()) {
		t.Errorf("%s\nwant\n%s", got.text(), want.text())
	}
	if !bytes.Equal(full.text(), before) {
		t.Error("the application was changed")
	}
}

// TestExamplesWithoutDefaults: no example means another thing without its defaults, and nothing of it can be left out twice.
func TestExamplesWithoutDefaults(t *testing.T) {
	files, _ := filepath.Glob("../examples/*/*.yaml")
	seen := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for text := range strings.SplitSeq(string(data), "\n---\n") {
			doc, err := yaml.YAMLToJSON([]byte(text))
			if err != nil {
				continue
			}
			app, err := DecodeApplication(doc)
			if err != nil {
				continue
			}
			seen++
			app.SetDefaults()
			short := app.WithoutDefaults()
			if !bytes.Equal(short.filled(), app.text()) {
				t.Errorf("%s means another thing without its defaults:\n%s\n%s", file, short.filled(), app.text())
			}
			again := short.clone()
			again.SetDefaults()
			if twice := again.WithoutDefaults(); !bytes.Equal(twice.text(), short.text()) {
				t.Errorf("%s: %s, then %s", file, short.text(), twice.text())
			}
		}
	}
	if seen < 3 {
		t.Errorf("%d examples", seen)
	}
}
