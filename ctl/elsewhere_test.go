package ctl

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/spec"
)

// TestElsewhere: what is explained as a word of others is none of ours.
func TestElsewhere(t *testing.T) {
	root := New(Options{Roles: []*cobra.Command{{Use: "worker"}}})
	for name := range commandsElsewhere {
		for _, cmd := range root.Commands() {
			if cmd.Name() == name || cmd.HasAlias(name) {
				t.Errorf("%s is a command", name)
			}
		}
	}
	for name := range kindsElsewhere {
		if _, err := findResource(name); err == nil {
			t.Errorf("%s is a kind", name)
		}
	}
}

// TestExplainField: every field that the schema has is explained.
func TestExplainField(t *testing.T) {
	var walk func(path string, depth int)
	seen := 0
	walk = func(path string, depth int) {
		var out strings.Builder
		if err := explainField(&out, path); err != nil {
			t.Fatal(err)
		}
		seen++
		if parts := strings.Split(out.String(), "\n\n"); len(parts) < 2 || strings.TrimSpace(parts[1]) == "" {
			t.Errorf("%s is not explained:\n%s", path, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if name, _, ok := strings.Cut(strings.TrimPrefix(line, "  "), " <"); ok && strings.HasPrefix(line, "  ") && line[2] != ' ' && depth < 5 {
				walk(path+"."+name, depth+1)
			}
		}
	}
	walk("spec", 0)
	walk("metadata", 0)
	if schema := string(spec.ApplicationSchema()); seen < strings.Count(schema, `"description"`) {
		t.Errorf("%d fields are explained, %d described", seen, strings.Count(schema, `"description"`))
	}
}
