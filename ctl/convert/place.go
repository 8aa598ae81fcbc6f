package convert

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

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
			match := element().FindStringSubmatch(path)
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

// source is a part of a file in which fields are: all below a path.
type source struct {
	at     string
	node   *yaml.Node
	places map[string][2]int // or the line and column of each path, of a file that is not YAML
	file   string            // empty where there is only one
	line   int               // of the file on which the document begins; 0 is the first
}

// find gives the line of a path below the source, or that of what it is in; 0: it is not known.
func (src source) find(path string) int {
	if src.node != nil {
		line, _ := Place(src.node, path)
		return line
	}
	for path != "" && src.places[path][0] == 0 {
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return src.places[path][0]
}

// locate says of each field on which line of which file it is, and sorts them by that.
func (r *Result) locate() {
	order, byPath := map[string]int{}, map[string]int{}
	for n, src := range slices.Backward(r.sources) {
		byPath[src.at] = n // the first of several
	}
	for i := range r.Fields {
		field := &r.Fields[i]
		at := field.Path
		best, ok := byPath[at]
		for !ok && at != "" { // the longest path that the field is below
			at = at[:max(0, strings.LastIndexByte(at, '.'))]
			best, ok = byPath[at]
		}
		if !ok {
			continue
		}
		src := r.sources[best]
		field.File = src.file
		field.Line = src.find(strings.TrimPrefix(strings.TrimPrefix(field.Path, src.at), "."))
		if field.Line == 0 && src.at != "" {
			field.Line = src.node.Line
		}
		if field.Line > 0 {
			field.Line += max(src.line-1, 0)
		}
		if _, there := order[src.file]; !there {
			order[src.file] = len(order)
		}
	}
	slices.SortStableFunc(r.Fields, func(a, b Field) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line), strings.Compare(a.Path, b.Path))
	})
	r.Fields = slices.Compact(r.Fields) // what two workloads use is said once
}

// late compiles an expression when it is first used: every process of Skerry starts with this package, and few convert anything.
func late(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// lineNumber is what the parser of YAML says of a place.
var lineNumber = late(`line (\d+)`)

// Shifted gives what a parser of YAML said of a document that begins on a line of its file: parsers count from the document's first line.
func Shifted(err error, line int) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
	return lineNumber().ReplaceAllStringFunc(text, func(text string) string {
		n, _ := strconv.Atoi(strings.TrimPrefix(text, "line "))
		return fmt.Sprintf("line %d", n+max(line-1, 0))
	})
}

// element is an element of a list at the start of a path, as here or as the parser writes it.
var element = late(`^\[?(\d+)\]?(\.|$)`)

// What the parser says of fields that it does not know.
var (
	noField  = late(`^(\S+) false schema`)
	noFields = late(`^(\S+) additional properties '([^']+)'(, '[^']+')* not allowed`)
)

// explain says in a file's own terms what its parser said of it.
func explain(data []byte, file string, err error) string {
	text := strings.TrimPrefix(err.Error(), "validating "+file+": ")
	text = strings.TrimPrefix(text, "failed to parse "+file+": ")
	if match := noField().FindStringSubmatch(text); match != nil {
		text = match[1] + " is no field of Compose" + text[len(match[0]):]
	} else if match := noFields().FindStringSubmatch(text); match != nil {
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
