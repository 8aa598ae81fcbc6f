package convert

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// Format is what a file is written for.
type Format string

// The formats.
const (
	FormatSkerry     Format = "skerry"
	FormatCompose    Format = "compose"
	FormatKubernetes Format = "kubernetes"
	FormatUnknown    Format = ""
)

// Detect says what a YAML or JSON document is written for, by its content alone.
func Detect(data []byte) Format {
	var doc yaml.Node
	if yaml.Unmarshal(data, &doc) != nil || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return FormatUnknown
	}
	keys := map[string]*yaml.Node{}
	for i := 0; i+1 < len(doc.Content[0].Content); i += 2 {
		keys[doc.Content[0].Content[i].Value] = doc.Content[0].Content[i+1]
	}
	version, kind := keys["apiVersion"], keys["kind"]
	switch {
	case version != nil && strings.HasPrefix(version.Value, "skerry/"):
		return FormatSkerry
	case version != nil && kind != nil:
		return FormatKubernetes
	case keys["services"] != nil && keys["services"].Kind == yaml.MappingNode && version == nil && kind == nil:
		return FormatCompose
	}
	return FormatUnknown
}
