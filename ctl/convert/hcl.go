package convert

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// hcl reads the part of HashiCorp's configuration language that states values: blocks, attributes, texts, numbers, lists and objects.
// What has to be computed (variables, functions, conditions) is an error. A file becomes mappings as JSON has them: a block is a list of
// mappings under its type, and its labels are in it under "".
type hcl struct {
	text  string
	at    int
	depth int
	lines map[string][2]int // of fields, by their paths
	seen  position
}

// position is how far lines have been counted: fields come one after the other.
type position struct{ at, line, column int }

// maxDepth bounds how deep blocks and values may be in each other.
const maxDepth = 100

// maxWord bounds names, which are in the paths of all that is below them.
const maxWord = 256

// readHCL reads a file, and says where each field is.
func readHCL(data []byte) (map[string]any, map[string][2]int, error) {
	in := &hcl{text: string(data), lines: map[string][2]int{}}
	body, err := in.body("", false)
	if err != nil {
		line, column := in.place(in.at)
		return nil, nil, fmt.Errorf("line %d, column %d: %w", line, column, err)
	}
	return body, in.lines, nil
}

func (in *hcl) place(at int) (line, column int) {
	if at < in.seen.at {
		in.seen = position{}
	}
	part := in.text[in.seen.at:min(at, len(in.text))]
	if end := strings.LastIndexByte(part, '\n'); end >= 0 {
		in.seen.line += strings.Count(part, "\n")
		in.seen.column, part = 0, part[end+1:]
	}
	in.seen.at, in.seen.column = min(at, len(in.text)), in.seen.column+utf8.RuneCountInString(part)
	return in.seen.line + 1, in.seen.column + 1
}

// space skips white space and comments; lines says whether ends of lines are white space, too.
func (in *hcl) space(lines bool) {
	for in.at < len(in.text) {
		rest := in.text[in.at:]
		switch {
		case rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\r' || lines && rest[0] == '\n':
			in.at++
		case rest[0] == '#' || strings.HasPrefix(rest, "//"):
			if end := strings.IndexByte(rest, '\n'); end >= 0 {
				in.at += end
			} else {
				in.at = len(in.text)
			}
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest, "*/")
			if end < 0 {
				in.at = len(in.text)
			} else {
				in.at += end + 2
			}
		default:
			return
		}
	}
}

func (in *hcl) next() byte {
	if in.at < len(in.text) {
		return in.text[in.at]
	}
	return 0
}

// body reads attributes and blocks up to the brace that ends them, or to the end of the file.
func (in *hcl) body(path string, braced bool) (map[string]any, error) {
	if in.depth++; in.depth > maxDepth {
		return nil, fmt.Errorf("more than %d blocks are in each other", maxDepth)
	}
	defer func() { in.depth-- }()
	out := map[string]any{}
	for {
		in.space(true)
		switch in.next() {
		case 0:
			if braced {
				return nil, fmt.Errorf("a } is missing")
			}
			return out, nil
		case '}':
			if !braced {
				return nil, fmt.Errorf("there is no { for this }")
			}
			in.at++
			return out, nil
		}
		start := in.at
		name, err := in.word()
		if err != nil {
			return nil, err
		}
		if in.space(false); in.next() == '=' {
			in.at++
			in.space(false)
			if out[name] != nil {
				return nil, fmt.Errorf("%s is there already", name)
			}
			in.note(path+"."+name, start)
			if out[name], err = in.value(path + "." + name); err != nil {
				return nil, err
			}
			continue
		}
		if err := in.block(out, name, path, start); err != nil {
			return nil, err
		}
	}
}

// block reads the labels of a block, and what is in it.
func (in *hcl) block(out map[string]any, name, path string, start int) error {
	var labels []any
	for in.space(false); in.next() == '"'; in.space(false) {
		label, err := in.quoted()
		if err != nil {
			return err
		}
		labels = append(labels, label)
	}
	if in.next() != '{' {
		return fmt.Errorf("after %s, = or { is needed", name)
	}
	in.at++
	list, ok := out[name].([]any)
	if out[name] != nil && !ok {
		return fmt.Errorf("%s is there already", name)
	}
	at := fmt.Sprintf("%s.%s[%d]", path, name, len(list))
	in.note(at, start)
	body, err := in.body(at, true)
	if err != nil {
		return err
	}
	if len(labels) > 0 {
		body[""] = labels
	}
	out[name] = append(list, body)
	return nil
}

func (in *hcl) note(path string, at int) {
	if len(path) > 4*maxWord {
		return // no field that anybody knows is so deep
	}
	line, column := in.place(at)
	in.lines[strings.TrimPrefix(path, ".")] = [2]int{line, column}
}

// word reads a name, which may be quoted.
func (in *hcl) word() (string, error) {
	start := in.at
	if in.next() == '"' {
		name, err := in.quoted()
		if err == nil && len(name) > maxWord {
			in.at, err = start, fmt.Errorf("a name of more than %d letters", maxWord)
		}
		return name, err
	}
	for in.at < len(in.text) && strings.IndexByte(nameLetters+".", in.text[in.at]) >= 0 {
		in.at++
	}
	if in.at == start {
		return "", fmt.Errorf("a name is needed")
	}
	if in.at-start > maxWord {
		return "", fmt.Errorf("a name of more than %d letters", maxWord)
	}
	return in.text[start:in.at], nil
}

// value reads a value that is stated.
func (in *hcl) value(path string) (any, error) {
	if in.depth++; in.depth > maxDepth {
		return nil, fmt.Errorf("more than %d values are in each other", maxDepth)
	}
	defer func() { in.depth-- }()
	switch first := in.next(); {
	case first == '"':
		return in.quoted()
	case strings.HasPrefix(in.text[in.at:], "<<"):
		return in.heredoc()
	case first == '[':
		in.at++
		list := []any{}
		for {
			if in.space(true); in.next() == ']' {
				in.at++
				return list, nil
			}
			one, err := in.value(fmt.Sprintf("%s[%d]", path, len(list)))
			if err != nil {
				return nil, err
			}
			list = append(list, one)
			if in.space(true); in.next() == ',' {
				in.at++
			} else if in.next() != ']' {
				return nil, fmt.Errorf("a , or ] is needed")
			}
		}
	case first == '{':
		in.at++
		return in.object(path)
	}
	start := in.at
	for in.at < len(in.text) && strings.IndexByte(nameLetters+".+", in.text[in.at]) >= 0 {
		in.at++
	}
	word := in.text[start:in.at]
	switch {
	case word == "true" || word == "false":
		return word == "true", nil
	case word == "null":
		return nil, nil
	case json.Valid([]byte(word)):
		return json.Number(word), nil
	}
	in.at = start
	return nil, fmt.Errorf("a value is needed: variables, functions and conditions are not computed; write what %q becomes", word)
}

func (in *hcl) object(path string) (any, error) {
	out := map[string]any{}
	for {
		if in.space(true); in.next() == '}' {
			in.at++
			return out, nil
		}
		start := in.at
		name, err := in.word()
		if err != nil {
			return nil, err
		}
		if in.space(false); in.next() != '=' && in.next() != ':' {
			return nil, fmt.Errorf("after %s, = is needed", name)
		}
		in.at++
		in.space(true)
		in.note(path+"."+name, start)
		if out[name], err = in.value(path + "." + name); err != nil {
			return nil, err
		}
		if in.space(false); in.next() == ',' {
			in.at++
		}
	}
}

// outside is what the language itself puts into a text.
var outside = late(`[$%]\{ *(var|local)\.[^}]*\}|%\{[^}]*\}|\$\{[a-z0-9_]+\([^}]*\}`)

// quoted reads a text in quotes. What is in ${} stays as it is: Nomad computes it on the machine.
func (in *hcl) quoted() (string, error) {
	start := in.at
	in.at++
	var out strings.Builder
	for in.at < len(in.text) {
		letter := in.text[in.at]
		in.at++
		switch {
		case letter == '"':
			if found := outside().FindString(out.String()); found != "" {
				in.at = start
				return "", fmt.Errorf("variables, functions and conditions are not computed; write what %q becomes", found)
			}
			return out.String(), nil
		case letter == '\n':
			in.at = start
			return "", fmt.Errorf("a text does not end on its line")
		case letter == '\\' && in.at < len(in.text):
			escaped := in.text[in.at]
			in.at++
			if plain, ok := map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', '"': '"', '\\': '\\'}[escaped]; ok {
				out.WriteByte(plain)
			} else {
				return "", fmt.Errorf("\\%c is not known", escaped)
			}
		default:
			out.WriteByte(letter)
		}
	}
	in.at = start
	return "", fmt.Errorf("a text does not end")
}

// heredoc reads lines up to one with a word alone; with <<- without the indent that all of them have.
func (in *hcl) heredoc() (string, error) {
	start := in.at
	in.at += 2
	indented := in.next() == '-'
	if indented {
		in.at++
	}
	head, rest, ok := strings.Cut(in.text[in.at:], "\n")
	word := strings.TrimSpace(head)
	if !ok || word == "" {
		in.at = start
		return "", fmt.Errorf("after <<, a word is needed")
	}
	in.at += len(head) + 1
	var lines []string
	for line := range strings.Lines(rest) {
		in.at += len(line)
		if strings.TrimSpace(line) != word {
			lines = append(lines, line)
			continue
		}
		in.at -= len(line) - len(strings.TrimRight(line, "\n")) // the end of the line ends the attribute
		indent := -1
		for _, line := range lines {
			if width := len(line) - len(strings.TrimLeft(line, " \t")); strings.TrimSpace(line) != "" && (indent < 0 || width < indent) {
				indent = width
			}
		}
		for i := range lines {
			if indented && indent > 0 {
				lines[i] = lines[i][min(indent, len(lines[i])-1):]
			}
		}
		return strings.Join(lines, ""), nil
	}
	in.at = start
	return "", fmt.Errorf("the text does not end: a line with %s alone is missing", word)
}
