package ctl

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// manifestSchema is what is read of the JSON Schema of manifests.
type manifestSchema struct {
	Ref         string                     `json:"$ref"`
	Description string                     `json:"description"`
	Type        any                        `json:"type"`
	Enum        []any                      `json:"enum"`
	Items       *manifestSchema            `json:"items"`
	Properties  map[string]*manifestSchema `json:"properties"`
	Required    []string                   `json:"required"`
	Additional  json.RawMessage            `json:"additionalProperties"`
	Defs        map[string]*manifestSchema `json:"$defs"`
}

// isField tells whether a name is that of a field of manifests, as in spec.services.image.
func isField(name string) bool {
	first, _, _ := strings.Cut(name, ".")
	return slices.Contains([]string{"spec", "metadata", "apiVersion", "kind"}, first) && !strings.Contains(name, "/")
}

// explainField tells what a field of manifests means, and which fields are in it.
func explainField(out io.Writer, name string) error {
	var root manifestSchema
	if err := json.Unmarshal(spec.ApplicationSchema(), &root); err != nil {
		return err
	}
	node, described, path := &root, root.Description, "the manifest"
	for part := range strings.SplitSeq(name, ".") {
		part, _, _ = strings.Cut(part, "[")
		inner := root.resolve(node)
		next := inner.Properties[part]
		if next == nil {
			return skerry.Errorf(skerry.CodeNotFound, "%s has no field %q", path, part).
				WithHint("%s", spec.Suggest(part, slices.Collect(maps.Keys(inner.Properties))))
		}
		node, described = next, next.Description
		path = strings.TrimPrefix(path+"."+part, "the manifest.")
	}
	fmt.Fprintf(out, "FIELD:  %s <%s>\n\n%s\n", path, root.kindOf(node), wrapText(described, 100))
	if len(node.Enum) > 0 {
		var values []string
		for _, v := range node.Enum {
			values = append(values, fmt.Sprint(v))
		}
		fmt.Fprintf(out, "\nVALUES: %s\n", strings.Join(values, ", "))
	}
	inner := root.resolve(node)
	if len(inner.Properties) == 0 {
		return nil
	}
	fmt.Fprintln(out, "\nFIELDS:")
	for _, field := range slices.Sorted(maps.Keys(inner.Properties)) {
		of := inner.Properties[field]
		must := ""
		if slices.Contains(inner.Required, field) {
			must = ", required"
		}
		fmt.Fprintf(out, "  %s <%s%s>\n", field, root.kindOf(of), must)
		for line := range strings.Lines(wrapText(of.Description, 96)) {
			fmt.Fprint(out, "      "+line)
		}
		fmt.Fprintln(out)
	}
	return nil
}

// resolve gives the schema of what is in a field: of a list, that of its elements; of a map, that of its values.
func (root *manifestSchema) resolve(n *manifestSchema) *manifestSchema {
	for {
		var values manifestSchema
		switch {
		case n.Ref != "":
			n = root.Defs[strings.TrimPrefix(n.Ref, "#/$defs/")]
		case n.Items != nil:
			n = n.Items
		case len(n.Properties) == 0 && json.Unmarshal(n.Additional, &values) == nil && len(n.Additional) > 0 && n.Additional[0] == '{':
			n = &values
		default:
			return n
		}
	}
}

// kindOf names the type of a field.
func (root *manifestSchema) kindOf(n *manifestSchema) string {
	switch t := n.Type.(type) {
	case string:
		if n.Items != nil {
			return "list of " + root.kindOf(n.Items)
		}
		if t == "object" && len(n.Additional) > 0 && n.Additional[0] == '{' {
			return "map"
		}
		return t
	case []any:
		var names []string
		for _, x := range t {
			names = append(names, fmt.Sprint(x))
		}
		return strings.Join(names, " or ")
	}
	return "object"
}

// wrapText breaks a text between words.
func wrapText(text string, width int) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		if column > 0 && column+1+len(word) > width {
			b.WriteByte('\n')
			column = 0
		} else if column > 0 {
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
