// Package convert turns files of other orchestrators into manifests that a person would like to read, and says of each of their fields
// what became of it.
//
//	file ─► Detect ─► its reader takes field after field ─► Result: an application, and a verdict on each field
//	                                       └─ what nobody took is refused
//
// Nothing is ignored silently: a field is kept, approximated (and how), or refused (and why).
package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	yaml11 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v3"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Verdict says what became of a field.
type Verdict string

// The verdicts.
const (
	Kept         Verdict = "kept"
	Approximated Verdict = "approximated"
	Refused      Verdict = "refused"
)

// Field is what became of a field of the file.
type Field struct {
	Path    string  `json:"path"`           // such as services.web.ports[0].published, or Deployment/web.spec.replicas
	File    string  `json:"file,omitempty"` // where there are several
	Line    int     `json:"line,omitempty"` // of the file, as near as it can be said
	Verdict Verdict `json:"verdict"`
	Note    string  `json:"note,omitempty"` // the field that it became, how it differs, or why it is refused
}

// Result is what a file was turned into.
type Result struct {
	Format Format            `json:"format"`
	App    *spec.Application `json:"-"`
	Fields []Field           `json:"fields"`
	Builds []Build           `json:"builds,omitempty"` // images that have to be there before it runs

	sources []source // that the fields may be in
}

func newResult(format Format) *Result {
	return &Result{Format: format, App: &spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication}}
}

// Count says how many fields have a verdict.
func (r *Result) Count(v Verdict) (n int) {
	for _, f := range r.Fields {
		if f.Verdict == v {
			n++
		}
	}
	return n
}

func (r *Result) add(path string, v Verdict, format string, args ...any) {
	r.Fields = append(r.Fields, Field{Path: strings.TrimPrefix(path, "."), Verdict: v, Note: fmt.Sprintf(format, args...)})
}

// finish looks whether the result is a manifest that a server would take. Where something was refused it need not be.
func (r *Result) finish() error {
	r.locate()
	if len(r.App.Spec.Services) == 0 {
		return skerry.Errorf(skerry.CodeInvalid, "there is no service that Skerry could run")
	}
	if r.Count(Refused) > 0 {
		return nil
	}
	data, err := json.Marshal(r.App)
	if err != nil {
		return err
	}
	app, err := spec.DecodeApplication(data)
	if err == nil {
		app.SetDefaults()
		err = app.Validate()
	}
	return err
}

// Manifest gives the application as YAML.
func (r *Result) Manifest() ([]byte, error) { return Text(r.App) }

// Text gives an application as YAML, with its fields in the order of the reference.
func Text(app *spec.Application) ([]byte, error) {
	data, err := json.Marshal(app)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(printable(data), &doc); err != nil { // JSON is YAML, and a node keeps the order
		return nil, err
	}
	plain(&doc)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return nil, err
	}
	return out.Bytes(), enc.Close()
}

// printable escapes in JSON what YAML allows only escaped.
func printable(data []byte) []byte {
	var out bytes.Buffer
	for _, char := range string(data) {
		if char >= 0x7f && char < 0xa0 || char == 0xfffe || char == 0xffff || char == 0xfeff {
			fmt.Fprintf(&out, `\u%04x`, char)
		} else {
			out.WriteRune(char)
		}
	}
	return out.Bytes()
}

// plain writes a node as a person would: one field a line, empty mappings left out, texts quoted only where they must be.
func plain(node *yaml.Node) {
	node.Style = 0
	if node.Kind == yaml.ScalarNode && node.Tag == "!!str" {
		if strings.HasPrefix(strings.TrimLeft(node.Value, " "), "\t") {
			node.Style = yaml.DoubleQuotedStyle // readers take a tab for a part of the indent
		} else if strings.Contains(node.Value, "\n") {
			node.Style = yaml.LiteralStyle
		} else if !isText(node.Value) {
			node.Style = yaml.DoubleQuotedStyle
		}
	}
	for _, x := range node.Content {
		plain(x)
	}
	if node.Kind != yaml.MappingNode {
		return
	}
	var content []*yaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, v := node.Content[i], node.Content[i+1]
		if v.Tag != "!!null" && (v.Kind != yaml.MappingNode || len(v.Content) > 0 || saysMore(key.Value)) {
			content = append(content, key, v)
		}
	}
	if node.Content = content; len(content) == 0 {
		node.Style = yaml.FlowStyle
	}
}

// isText reports whether a word without quotes is a text. To readers of YAML 1.1, as that of manifests is, yes and off are none.
func isText(word string) bool {
	var old any
	if yaml11.Unmarshal([]byte(word), &old) != nil {
		return true // what needs quotes for another reason gets them
	}
	text, ok := old.(string)
	return ok && text == word
}

// saysMore reports whether an empty mapping under a name is not the same as none.
func saysMore(name string) bool {
	switch name {
	case "postStart", "preStop",
		"egress", "local", "empty", "canary", "snapshots", "job", "wasm", "machine", "addresses", "startup", "readiness", "liveness",
		"contention":
		return true
	}
	return false
}

// Name makes a DNS label out of a name: the name of an application, a service, a volume or a port.
func Name(from string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(from) {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	out := b.String()
	if out != "" && (out[0] < 'a' || out[0] > 'z') {
		out = "x" + out
	}
	if len(out) > 63 {
		out = out[:63]
	}
	return strings.Trim(out, "-")
}
