package spec

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"skerry.dev/skerry"
)

// namePattern is what CheckName accepts.
const namePattern = "^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$"

// schemaNode is one JSON Schema; the order of its fields is that of the text.
type schemaNode struct {
	Schema      string                 `json:"$schema,omitempty"`
	ID          string                 `json:"$id,omitempty"`
	Title       string                 `json:"title,omitempty"`
	Ref         string                 `json:"$ref,omitempty"`
	Description string                 `json:"description,omitempty"`
	ReadOnly    bool                   `json:"readOnly,omitempty"`
	Type        any                    `json:"type,omitempty"`
	Enum        []any                  `json:"enum,omitempty"`
	Pattern     string                 `json:"pattern,omitempty"`
	Minimum     *float64               `json:"minimum,omitempty"`
	Maximum     *float64               `json:"maximum,omitempty"`
	Items       *schemaNode            `json:"items,omitempty"`
	Properties  map[string]*schemaNode `json:"properties,omitempty"`
	Required    []string               `json:"required,omitempty"`
	Additional  any                    `json:"additionalProperties,omitempty"`
	Defs        map[string]*schemaNode `json:"$defs,omitempty"`
}

// ApplicationSchema gives the JSON Schema (2020-12) of a manifest, made from the types and their tags. Editors that know
// it complete and check manifests; the server's own checks go further.
func ApplicationSchema() []byte {
	g := schemaMaker{defs: map[string]*schemaNode{}}
	n := g.object(reflect.TypeFor[Application]())
	n.Schema, n.ID, n.Title = "https://json-schema.org/draft/2020-12/schema", "https://skerry.dev/schema/application.json",
		"Skerry application"
	n.Defs = g.defs
	out, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		panic("schemas always marshal: " + err.Error())
	}
	return append(out, '\n')
}

type schemaMaker struct{ defs map[string]*schemaNode }

func (g *schemaMaker) of(t reflect.Type) *schemaNode {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[skerry.Bytes](), reflect.TypeFor[skerry.MilliCPU]():
		return &schemaNode{Type: []string{"string", "number"}}
	case reflect.TypeFor[PortRef]():
		return &schemaNode{Type: []string{"string", "integer"}}
	case reflect.TypeFor[IngressTLS]():
		return &schemaNode{Type: []string{"string", "boolean"}}
	case reflect.TypeFor[OnDisconnect]():
		return &schemaNode{Type: []string{"string", "object"}}
	case addrType, prefixType:
		return &schemaNode{Type: "string"}
	case reflect.TypeFor[Duration]():
		return &schemaNode{Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$`}
	}
	switch t.Kind() {
	case reflect.Struct:
		if g.defs[t.Name()] == nil {
			g.defs[t.Name()] = &schemaNode{} // a type that contains itself ends here
			*g.defs[t.Name()] = *g.object(t)
		}
		return &schemaNode{Ref: "#/$defs/" + t.Name()}
	case reflect.Slice:
		return &schemaNode{Type: "array", Items: g.of(t.Elem())}
	case reflect.Map:
		return &schemaNode{Type: "object", Additional: g.of(t.Elem())}
	case reflect.String:
		return &schemaNode{Type: "string"}
	case reflect.Bool:
		return &schemaNode{Type: "boolean"}
	case reflect.Float32, reflect.Float64:
		return &schemaNode{Type: "number"}
	}
	return &schemaNode{Type: "integer"}
}

func (g *schemaMaker) object(t reflect.Type) *schemaNode {
	n := &schemaNode{Type: "object", Properties: map[string]*schemaNode{}, Additional: false}
	for _, f := range manifestFields(t) {
		s := g.of(f.Type)
		s.Description = f.Tag.Get("doc")
		s.ReadOnly = f.Tag.Get("readonly") == "true"
		for _, v := range fieldEnum(f) {
			s.Enum = append(s.Enum, v)
		}
		if p := f.Tag.Get("pattern"); p == "name" {
			s.Pattern = namePattern
		}
		s.Minimum, s.Maximum = tagNumber(f, "min"), tagNumber(f, "max")
		name := jsonName(f)
		n.Properties[name] = s
		if fieldRequired(f) {
			n.Required = append(n.Required, name)
		}
	}
	return n
}

// manifestFields lists the fields of a type that are part of the format, those of embedded types among them.
func manifestFields(t reflect.Type) []reflect.StructField {
	var out []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			out = append(out, manifestFields(f.Type)...)
		} else if jsonName(f) != "" {
			out = append(out, f)
		}
	}
	return out
}

// fieldEnum lists the values that a field may have; nil: any. An empty value is the default and may be left out.
func fieldEnum(f reflect.StructField) []string {
	e := f.Tag.Get("enum")
	if e == "" {
		return nil
	}
	return strings.Split(e, ",")
}

// fieldRequired reports whether a manifest must have the field.
func fieldRequired(f reflect.StructField) bool {
	_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero")
}

func tagNumber(f reflect.StructField, tag string) *float64 {
	s := f.Tag.Get(tag)
	if s == "" {
		return nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic("tag " + tag + " of " + f.Name + ": " + err.Error())
	}
	return &v
}
