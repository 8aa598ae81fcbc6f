package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"
	"unicode/utf8"

	yamlv2 "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/yamlsize"
	"skerry.dev/skerry/spec"
)

// errMediaType is answered with status 415.
type errMediaType struct{ err *skerry.Error }

func (e errMediaType) Error() string { return e.err.Message }
func (e errMediaType) Unwrap() error { return e.err }

// DecodeManifest reads one manifest strictly from JSON or YAML: keys given twice, unknown fields and a second document are
// errors. contentType says which it is; empty means YAML, of which JSON is a part.
func DecodeManifest(contentType string, data []byte) (*spec.Application, error) {
	if len(data) > spec.MaxManifest {
		return spec.DecodeApplication(data) // which refuses it
	}
	if !utf8.Valid(data) {
		return nil, skerry.Errorf(skerry.CodeInvalid, "the manifest is not valid UTF-8").WithHint("save the file as UTF-8")
	}
	kind := "application/yaml"
	if contentType != "" {
		var err error
		if kind, _, err = mime.ParseMediaType(contentType); err != nil {
			kind = contentType
		}
	}
	switch kind {
	case "application/json":
		if err := CheckKeys(data); err != nil {
			return nil, err
		}
	case "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml":
		var err error
		if data, err = fromYAML(data); err != nil {
			return nil, err
		}
	default:
		return nil, errMediaType{skerry.Errorf(skerry.CodeInvalid, "a manifest cannot be sent as %.80q",
			contentType).WithHint("send application/yaml or application/json")}
	}
	return spec.DecodeApplication(data)
}

func fromYAML(data []byte) ([]byte, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, skerry.Errorf(skerry.CodeInvalid, "the manifest is empty")
	}
	if err := yamlsize.Check(data, spec.MaxManifest); err != nil {
		return nil, fmt.Errorf("the manifest is too large: %w", err)
	}
	bad := func(err error) error {
		text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
		if len(text) > 500 {
			text = text[:500] + "..."
		}
		hint := ""
		if strings.Contains(text, "already set in map") {
			hint = "a key is set twice; keep one of them"
		}
		return skerry.Errorf(skerry.CodeInvalid, "the manifest is not valid YAML: %s", text).WithHint("%s", hint)
	}
	// The documents are counted first, because the conversion looks at the first one only.
	dec := yamlv2.NewDecoder(bytes.NewReader(data))
	documents := 0
	for {
		var doc any
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, bad(err)
		}
		if doc != nil {
			documents++
		}
		if documents > 1 {
			return nil, skerry.Errorf(skerry.CodeInvalid, "there is more than one document").WithHint("send them one by one; `skerry apply -f` does so")
		}
	}
	out, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, bad(err)
	}
	return out, nil
}

// CheckKeys refuses JSON objects that have a key twice.
func CheckKeys(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	type level struct {
		keys map[string]bool // nil in a list
		key  bool            // the next token is a key
	}
	var stack []level
	value := func() { // a value has ended
		if n := len(stack); n > 0 && stack[n-1].keys != nil {
			stack[n-1].key = true
		}
	}
	for {
		t, err := dec.Token()
		if err != nil {
			return nil // the decoder proper says what is wrong, if anything is
		}
		if n := len(stack); n > 0 && stack[n-1].key {
			if k, ok := t.(string); ok {
				if stack[n-1].keys[k] {
					return skerry.Errorf(skerry.CodeInvalid, "the key %.80q is there twice in one object", k).WithHint("keep one of them")
				}
				stack[n-1].keys[k] = true
				stack[n-1].key = false
				continue
			}
		}
		switch t {
		case json.Delim('{'):
			stack = append(stack, level{keys: map[string]bool{}, key: true})
		case json.Delim('['):
			stack = append(stack, level{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
			value()
			if len(stack) == 0 {
				return nil
			}
		default:
			value()
		}
		if len(stack) > 1000 {
			return skerry.Errorf(skerry.CodeInvalid, "it is nested too deeply")
		}
	}
}
