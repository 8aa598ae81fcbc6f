package api_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
)

// TestManifestSchema holds manifests against their schema in the OpenAPI document, and what that refuses against the server.
func TestManifestSchema(t *testing.T) {
	s := newRoot(t)
	h := s.API.Handler()
	problems := func(text string) []string {
		t.Helper()
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("read %.80q: %v", text, err)
		}
		return h.ManifestProblems(v)
	}
	examples, err := filepath.Glob("../examples/*/*.yaml")
	must(t, err)
	held := 0
	for _, file := range examples {
		text, err := os.ReadFile(file)
		must(t, err)
		for part := range strings.SplitSeq(string(text), "\n---\n") {
			if !strings.Contains(part, "kind: Application") {
				continue
			}
			held++
			if got := problems(part); len(got) > 0 {
				t.Errorf("%s does not fit the schema: got %q, want nothing", file, got)
			}
		}
	}
	if held < 10 {
		t.Errorf("examples that were held against the schema: got %d, want 10 at least", held)
	}
	admin := s.admin()
	for _, c := range []struct{ from, to string }{ // changes of shop
		{"apiVersion: skerry/v1", "apiVersion: skerry/v2"},
		{"kind: Application\n", ""},
		{"{name: shop}", "{name: A B}"},
		{"{name: shop}", "{}"},
		{"runtime: native", "runtime: native\n    replica: 1"},
		{"runtime: native", "runtime: 1"},
		{"runtime: native", "runtime: native\n    replicas: -1"},
		{"runtime: native", "runtime: native\n    mode: daemon"},
		{"runtime: native", "runtime: native\n    terminationGrace: soon"},
		{"runtime: native", "runtime: native\n    ports: [{port: 65536}]"},
		{"runtime: native", "runtime: native\n    resources: {cpu: true}"},
	} {
		text := strings.Replace(shop, c.from, c.to, 1)
		if got := problems(text); len(got) == 0 {
			t.Errorf("%q in place of %q: the schema found nothing", c.to, c.from)
		}
		if _, err := admin.Apply(t.Context(), []byte(text), api.ApplyOptions{DryRun: true}); err == nil {
			t.Errorf("%q in place of %q: the server took what the schema refuses", c.to, c.from)
		}
	}
}

// TestManifestSchemaIsTheOne compares the schema in the OpenAPI document with the one that editors use, field by field.
func TestManifestSchemaIsTheOne(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct{ Schema map[string]any }
			}
		}
		Components struct{ Schemas map[string]map[string]any }
	}
	must(t, json.Unmarshal(newRoot(t).API.Handler().OpenAPI(), &doc))
	for _, path := range []string{"/v1/apps", "/v1/plan"} {
		for _, kind := range []string{"application/json", "application/yaml"} {
			if got := doc.Paths[path]["post"].RequestBody.Content[kind].Schema["$ref"]; got != "#/components/schemas/Manifest" {
				t.Errorf("%s as %s: got the schema %v, want that of manifests", path, kind, got)
			}
		}
	}
	var editors map[string]any
	must(t, json.Unmarshal(spec.ApplicationSchema(), &editors))
	fields := 0
	compare := func(name string, want map[string]any) {
		got := doc.Components.Schemas[name]
		asText := func(v any) string { data, _ := json.Marshal(v); return string(data) }
		if asText(got["required"]) != asText(want["required"]) {
			t.Errorf("%s requires %v, want %v", name, got["required"], want["required"])
		}
		properties, _ := got["properties"].(map[string]any)
		for field, v := range want["properties"].(map[string]any) {
			fields++
			is, _ := properties[field].(map[string]any)
			for _, word := range []string{"description", "enum", "pattern", "minimum", "maximum", "readOnly"} {
				if asText(is[word]) != asText(v.(map[string]any)[word]) {
					t.Errorf("%s.%s: %s: got %v, want %v", name, field, word, is[word], v.(map[string]any)[word])
				}
			}
		}
	}
	compare("Manifest", editors)
	for name, def := range editors["$defs"].(map[string]any) {
		compare("Manifest"+strings.TrimSuffix(name, "Spec"), def.(map[string]any))
	}
	if fields < 200 {
		t.Errorf("fields that were compared: got %d, want 200 at least", fields)
	}
}
