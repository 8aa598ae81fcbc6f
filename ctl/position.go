package ctl

import (
	"bytes"
	"errors"
	"fmt"

	yamlnode "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/ctl/convert"
)

// at gives an error the place of its document, and each problem its line and column in the file.
func (d *document) at(err error) error {
	var e *skerry.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%s: %w", d.where(), err)
	}
	c := *e
	c.Message = d.where() + ": " + e.Message
	c.Problems = append([]skerry.Problem(nil), e.Problems...)
	var doc yamlnode.Node
	if d.line > 0 && len(c.Problems) > 0 && yamlnode.Unmarshal(d.yaml, &doc) == nil {
		for i := range c.Problems {
			p := &c.Problems[i]
			if line, column := convert.Place(&doc, p.Path); line > 0 {
				p.Path = fmt.Sprintf("line %d, column %d: %s", d.line-1+line, column, p.Path)
			}
		}
	}
	return &c
}

// check reports what is wrong with the YAML of a document.
func (d *document) check() error {
	if _, err := yaml.YAMLToJSON(d.yaml); err != nil {
		return d.syntax(err)
	}
	return nil
}

// syntax says in which line of the file the YAML of a document is broken.
func (d *document) syntax(err error) error {
	problem := skerry.Errorf(skerry.CodeInvalid, "%s is not valid YAML: %s", d.where(), convert.Shifted(err, d.line))
	if line, _, _ := convert.Template(d.yaml); line > 0 {
		return problem.WithHint("line %d has a {{ template }} in it: render the file first, such as with `helm template`", max(d.line-1, 0)+line)
	}
	number := max(d.line-1, 0)
	for line := range bytes.Lines(d.yaml) {
		number++
		indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
		if tab := bytes.IndexByte(indent, '\t'); tab >= 0 && len(bytes.TrimSpace(line)) > 0 {
			return problem.WithHint("line %d is indented by a tab (column %d); YAML takes spaces only", number, tab+1)
		}
	}
	return problem
}
