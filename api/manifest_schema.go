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
func openAPISchema(from *spec.Schema) *huma.Schema {
	out := &huma.Schema{Description: from.Description, ReadOnly: from.ReadOnly, Enum: from.Enum, Pattern: from.Pattern,
		Minimum: from.Minimum, Maximum: from.Maximum, Required: from.Required}
	if from.Ref != "" {
		out.Ref = schemasPrefix + manifestPart(strings.TrimPrefix(from.Ref, spec.DefPrefix))
	}
	switch kind := from.Type.(type) {
	case string:
		out.Type = kind
	case []string:
		for _, k := range kind {
			out.AnyOf = append(out.AnyOf, &huma.Schema{Type: k})
		}
	}
	if from.Items != nil {
		out.Items = openAPISchema(from.Items)
	}
	switch more := from.Additional.(type) {
	case bool:
		out.AdditionalProperties = more
	case *spec.Schema:
		out.AdditionalProperties = openAPISchema(more)
	}
	for name, p := range from.Properties {
		if out.Properties == nil {
			out.Properties = map[string]*huma.Schema{}
		}
		out.Properties[name] = openAPISchema(p)
	}
	return out
}
