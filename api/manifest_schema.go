package api

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"skerry.dev/skerry/spec"
)

const (
	schemasPrefix  = "#/components/schemas/"
	manifestSchema = "Manifest" // names the schema of manifests, and begins the names of those that it refers to
)

// addManifestSchemas adds the schema of manifests, as JSON, to those of the OpenAPI document.
func addManifestSchemas(registry huma.Registry) {
	root, known := spec.ManifestSchema(), registry.Map()
	put := func(name string, s *spec.Schema) {
		if known[name] != nil {
			panic("api: two schemas have the name " + name)
		}
		known[name] = openAPISchema(s)
	}
	for name, s := range root.Defs {
		put(manifestPart(name), s)
	}
	root.Description = "A manifest. The server checks more than this schema can express."
	put(manifestSchema, root)
}

// manifestPart names the schema of a type that manifests have, apart from the types of answers.
func manifestPart(name string) string { return manifestSchema + strings.TrimSuffix(name, "Spec") }

// openAPISchema writes a schema in the terms of huma, whose Type holds one name.
func openAPISchema(s *spec.Schema) *huma.Schema {
	out := &huma.Schema{Description: s.Description, ReadOnly: s.ReadOnly, Enum: s.Enum, Pattern: s.Pattern, Minimum: s.Minimum,
		Maximum: s.Maximum, Required: s.Required}
	if s.Ref != "" {
		out.Ref = schemasPrefix + manifestPart(strings.TrimPrefix(s.Ref, spec.DefPrefix))
	}
	switch kind := s.Type.(type) {
	case string:
		out.Type = kind
	case []string:
		for _, k := range kind {
			out.AnyOf = append(out.AnyOf, &huma.Schema{Type: k})
		}
	}
	if s.Items != nil {
		out.Items = openAPISchema(s.Items)
	}
	switch more := s.Additional.(type) {
	case bool:
		out.AdditionalProperties = more
	case *spec.Schema:
		out.AdditionalProperties = openAPISchema(more)
	}
	for name, p := range s.Properties {
		if out.Properties == nil {
			out.Properties = map[string]*huma.Schema{}
		}
		out.Properties[name] = openAPISchema(p)
	}
	return out
}
