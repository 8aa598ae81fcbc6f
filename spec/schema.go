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

// Schema is one JSON Schema; the order of its fields is that of the text. Type is a name or a list of names, Additional a bool or a
// *Schema.
type Schema struct {
	Dialect     string             `json:"$schema,omitempty"`
	ID          string             `json:"$id,omitempty"`
	Title       string             `json:"title,omitempty"`
	Ref         string             `json:"$ref,omitempty"`
	Description string             `json:"description,omitempty"`
	ReadOnly    bool               `json:"readOnly,omitempty"`
	Type        any                `json:"type,omitempty"`
	Enum        []any              `json:"enum,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	Minimum     *float64           `json:"minimum,omitempty"`
	Maximum     *float64           `json:"maximum,omitempty"`
	Items       *Schema            `json:"items,omitempty"`
	Properties  map[string]*Schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Additional  any                `json:"additionalProperties,omitempty"`
	Defs        map[string]*Schema `json:"$defs,omitempty"`
}

// ManifestSchema gives the JSON Schema of a manifest, made from the types and their tags, with the schemas that it refers to in Defs.
func ManifestSchema() *Schema {
	g := schemaMaker{defs: map[string]*Schema{}}
	n := g.object(reflect.TypeFor[Application]())
	n.Defs = g.defs
	return n
}

// DefPrefix stands before the name of one of Defs where a Ref leads to it.
const DefPrefix = "#/$defs/"

// ApplicationSchema gives ManifestSchema as text (JSON Schema 2020-12). Editors that know it complete and check manifests; the server's own
// checks go further.
func ApplicationSchema() []byte {
	n := ManifestSchema()
	n.Dialect, n.ID, n.Title = "https://json-schema.org/draft/2020-12/schema", "https://skerry.dev/schema/application.json",
		"Skerry application"
	out, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		panic("schemas always marshal: " + err.Error())
	}
	return append(out, '\n')
}

type schemaMaker struct{ defs map[string]*Schema }

func (g *schemaMaker) of(t reflect.Type) *Schema {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[skerry.Bytes](), reflect.TypeFor[skerry.MilliCPU]():
		return &Schema{Type: []string{"string", "number"}}
	case reflect.TypeFor[PortRef]():
		return &Schema{Type: []string{"string", "integer"}}
	case reflect.TypeFor[IngressTLS]():
		return &Schema{Type: []string{"string", "boolean"}}
	case reflect.TypeFor[OnDisconnect]():
		return &Schema{Type: []string{"string", "object"}}
	case addrType, prefixType:
		return &Schema{Type: "string"}
	case reflect.TypeFor[Duration]():
		return &Schema{Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$`}
	}
	switch t.Kind() {
	case reflect.Struct:
		if g.defs[t.Name()] == nil {
			g.defs[t.Name()] = &Schema{} // a type that contains itself ends here
			*g.defs[t.Name()] = *g.object(t)
		}
		return &Schema{Ref: DefPrefix + t.Name()}
	case reflect.Slice:
		return &Schema{Type: "array", Items: g.of(t.Elem())}
	case reflect.Map:
		return &Schema{Type: "object", Additional: g.of(t.Elem())}
	case reflect.String:
		return &Schema{Type: "string"}
	case reflect.Bool:
		return &Schema{Type: "boolean"}
	case reflect.Float32, reflect.Float64:
		return &Schema{Type: "number"}
	}
	return &Schema{Type: "integer"}
}

func (g *schemaMaker) object(t reflect.Type) *Schema {
	n := &Schema{Type: "object", Properties: map[string]*Schema{}, Additional: false}
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
