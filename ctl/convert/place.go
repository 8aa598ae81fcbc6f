package convert

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Place finds where a field is in a file, as far as its path can be followed there: fields may have come from elsewhere, or be written in
// a short form. The zero value: nowhere.
func Place(doc *yaml.Node, path string) (line, column int) {
	node := doc
	if node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	for path != "" {
		if node.Kind == yaml.AliasNode {
			node = node.Alias
		}
		if node.Kind == yaml.SequenceNode {
			match := element.FindStringSubmatch(path)
			if match == nil {
				return line, column
			}
			i, err := strconv.Atoi(match[1])
			if err != nil || i >= len(node.Content) {
				return line, column
			}
			node, path = node.Content[i], path[len(match[0]):]
			line, column = node.Line, node.Column
			continue
		}
		// A key may have dots in it: the longest that fits is meant.
		var key, value *yaml.Node
		for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
			k := node.Content[i]
			rest, ok := strings.CutPrefix(path, k.Value)
			if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') && (key == nil || len(k.Value) > len(key.Value)) {
				key, value = k, node.Content[i+1]
			}
		}
		if key == nil {
			return line, column
		}
		line, column = key.Line, key.Column
		node, path = value, strings.TrimPrefix(strings.TrimPrefix(path, key.Value), ".")
	}
	return line, column
}

// locate says of each field on which line of the file it is, and sorts them by that.
func (r *Result) locate(data []byte) {
	var doc yaml.Node
	if yaml.Unmarshal(data, &doc) == nil {
		for i := range r.Fields {
			r.Fields[i].Line, _ = Place(&doc, r.Fields[i].Path)
		}
	}
	slices.SortStableFunc(r.Fields, func(a, b Field) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), strings.Compare(a.Path, b.Path))
	})
}

// element is an element of a list at the start of a path, as here or as the parser writes it.
var element = regexp.MustCompile(`^\[?(\d+)\]?(\.|$)`)

// What the parser says of fields that it does not know.
var (
	noField  = regexp.MustCompile(`^(\S+) false schema`)
	noFields = regexp.MustCompile(`^(\S+) additional properties '([^']+)'(, '[^']+')* not allowed`)
)

// explain says in a file's own terms what its parser said of it.
func explain(data []byte, file string, err error) string {
	text := strings.TrimPrefix(err.Error(), "validating "+file+": ")
	text = strings.TrimPrefix(text, "failed to parse "+file+": ")
	if match := noField.FindStringSubmatch(text); match != nil {
		text = match[1] + " is no field of Compose" + text[len(match[0]):]
	} else if match := noFields.FindStringSubmatch(text); match != nil {
		text = match[1] + "." + match[2] + " is no field of Compose" + text[len(match[0]):]
	}
	var doc yaml.Node
	path, _, _ := strings.Cut(text, " ")
	if yaml.Unmarshal(data, &doc) == nil {
		if line, column := Place(&doc, path); line > 0 {
			text = fmt.Sprintf("line %d, column %d: %s", line, column, text)
		}
	}
	return text
}
