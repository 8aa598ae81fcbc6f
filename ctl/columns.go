package ctl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"skerry.dev/skerry"
)

// valuePath is a JSONPath template, as kubectl has them: {.items[*].id}, or .id for short.
type valuePath struct{ path *jsonpath.JSONPath }

// newPath reads a template.
func newPath(text string) (*valuePath, error) {
	full := text
	if !strings.Contains(text, "{") {
		full = "{." + strings.TrimPrefix(strings.TrimPrefix(text, "$"), ".") + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(full); err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "%q is not a JSONPath: %w", text, err).WithHint("such as {.items[*].id}, or .id")
	}
	return &valuePath{path}, nil
}

// parsePath reads the format jsonpath=TEMPLATE; nil: it is another.
func parsePath(format string) (*valuePath, error) {
	text, ok := strings.CutPrefix(format, formatJSONPath)
	if !ok {
		return nil, nil
	}
	return newPath(text)
}

// print writes what a template makes of a value.
func (p *valuePath) print(w io.Writer, v any) error {
	data, err := plainValue(v)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := p.path.Execute(&out, data); err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "the JSONPath does not fit: %w", err)
	}
	if b := out.Bytes(); len(b) > 0 && b[len(b)-1] != '\n' {
		out.WriteByte('\n')
	}
	_, err = w.Write(out.Bytes())
	return err
}

// find gives what a value has there.
func (p *valuePath) find(v any) ([]any, error) {
	lists, err := p.path.FindResults(v)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "the JSONPath does not fit: %w", err)
	}
	var out []any
	for _, list := range lists {
		for _, x := range list {
			if x.IsValid() && x.CanInterface() && !(x.Kind() == reflect.Interface && x.IsNil()) {
				out = append(out, x.Interface())
			}
		}
	}
	return out, nil
}

// plainValue gives a value as its JSON has it, in maps and lists.
func plainValue(v any) (out any, err error) {
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	return out, err
}

// valueColumn is a column that people asked for.
type valueColumn struct {
	head string
	path *valuePath
}

// parseColumns reads the format custom-columns=NAME:PATH,...; nil: it is another.
func parseColumns(format string) ([]valueColumn, error) {
	text, ok := strings.CutPrefix(format, formatColumns)
	if !ok {
		return nil, nil
	}
	var out []valueColumn
	for part := range strings.SplitSeq(text, ",") {
		head, expr, ok := strings.Cut(part, ":")
		if !ok || head == "" || expr == "" {
			return nil, skerry.Errorf(skerry.CodeInvalid, "%q is no column", part).WithHint("such as custom-columns=ID:.id,WHERE:.worker")
		}
		path, err := newPath(expr)
		if err != nil {
			return nil, err
		}
		out = append(out, valueColumn{head, path})
	}
	return out, nil
}

// printColumns prints items by the columns of a format, and reports whether it has any.
func printColumns[T any](w io.Writer, format string, items []T, header bool) (bool, error) {
	columns, err := parseColumns(format)
	if columns == nil || err != nil {
		return false, err
	}
	t, err := tableOfColumns(columns, items)
	if err == nil {
		t.print(w, false, header)
	}
	return true, err
}

// tableOfColumns shows items by the columns that people asked for.
func tableOfColumns[T any](columns []valueColumn, items []T) (*table, error) {
	shown := &table{}
	for _, c := range columns {
		shown.head = append(shown.head, c.head)
	}
	for _, item := range items {
		data, err := plainValue(item)
		if err != nil {
			return nil, err
		}
		var cells []string
		for _, c := range columns {
			found, err := c.path.find(data)
			if err != nil {
				return nil, err
			}
			var texts []string
			for _, x := range found {
				texts = append(texts, valueText(x))
			}
			cells = append(cells, strings.Join(texts, ","))
		}
		shown.add("", cells)
	}
	return shown, nil
}

// valueText gives a value in one line: texts and numbers as they are, the rest as JSON.
func valueText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// sortBy puts items in the order of what they have at a path: numbers by their size, all else as text. Those without it come first.
func sortBy(items []item, expr string) error {
	if expr == "" {
		return nil
	}
	path, err := newPath(expr)
	if err != nil {
		return err
	}
	type keyedItem struct {
		item item
		key  any
	}
	keyed, found := make([]keyedItem, len(items)), false
	for n, i := range items {
		data, err := plainValue(i.value)
		if err != nil {
			return err
		}
		keys, err := path.find(data)
		if err != nil {
			return err
		}
		keyed[n].item = i
		if len(keys) > 0 {
			keyed[n].key, found = keys[0], true
		}
	}
	if !found && len(items) > 0 {
		return skerry.Errorf(skerry.CodeInvalid, "nothing has %s to be sorted by", expr).WithHint("-o yaml shows what there is")
	}
	slices.SortStableFunc(keyed, func(a, b keyedItem) int { return compareValues(a.key, b.key) })
	for n := range keyed {
		items[n] = keyed[n].item
	}
	return nil
}

func compareValues(a, b any) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	x, isNumber := a.(float64)
	if y, both := b.(float64); isNumber && both {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(valueText(a), valueText(b))
}
