package convert

import (
	"bytes"
	"slices"
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
	FormatOakestra   Format = "oakestra"
	FormatNomad      Format = "nomad"
	FormatUnknown    Format = ""
)

// job is how a job of Nomad begins, in its own language.
var job = late(`(?m)^\s*job\s+"[^"]*"\s*\{`)

// Detect says what a document is written for, by its content alone.
func Detect(data []byte) Format {
	var doc yaml.Node
	broken := yaml.Unmarshal(data, &doc) != nil
	if format := detectYAML(&doc); !broken && format != FormatUnknown {
		return format // whatever is in its texts
	}
	begin, kind := job().FindIndex(data), kindOfKubernetes().FindIndex(data)
	switch {
	case begin != nil && (kind == nil || begin[0] < kind[0]):
		return FormatNomad
	case broken && kind != nil && !bytes.Contains(data, []byte("skerry/")):
		return FormatKubernetes // its reader says what is wrong
	}
	return FormatUnknown
}

// detectYAML is Detect for what is YAML or JSON.
func detectYAML(doc *yaml.Node) Format {
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return FormatUnknown
	}
	keys := map[string]*yaml.Node{}
	for i := 0; i+1 < len(doc.Content[0].Content); i += 2 {
		keys[doc.Content[0].Content[i].Value] = doc.Content[0].Content[i+1]
	}
	version, kind := keys["apiVersion"], keys["kind"]
	is := func(key string, kind yaml.Kind) bool { return keys[key] != nil && keys[key].Kind == kind }
	switch {
	case version != nil && strings.HasPrefix(version.Value, "skerry/"):
		return FormatSkerry
	case version != nil && kind != nil, kind != nil && kubeVersions[kind.Value] != "":
		return FormatKubernetes
	case is("services", yaml.MappingNode) && version == nil && kind == nil:
		return FormatCompose
	case is("applications", yaml.SequenceNode) && (keys["sla_version"] != nil || keys["customerID"] != nil):
		return FormatOakestra
	case is("Job", yaml.MappingNode) || is("job", yaml.MappingNode) || keys["TaskGroups"] != nil && keys["ID"] != nil:
		return FormatNomad
	}
	return FormatUnknown
}

// kindOfKubernetes is where an object says its kind, for files that no parser of YAML takes.
var kindOfKubernetes = late(`(?m)^kind:`)

// templated is what a template engine would have to fill in, such as {{ .Values.image }}.
var templated = late(`\{\{-?\s*(?:\$|\.(?:Values|Release|Chart|Capabilities|Files|Template)\b|` +
	`(?:include|template|tpl|if|range|with|end|toYaml)\b)[^}]*\}?\}?`)

// Template finds what a template engine would have to fill in: the parser of YAML takes it for other things, or for text. The zero
// value: there is nothing like that. Data of a ConfigMap may be templates of the program that reads them.
func Template(data []byte) (line, column int, text string) {
	at := templated().FindIndex(data)
	if at == nil {
		return 0, 0, ""
	}
	var doc yaml.Node
	text = string(data[at[0]:at[1]])
	if yaml.Unmarshal(data, &doc) == nil && len(doc.Content) == 1 {
		node := templateIn(doc.Content[0])
		if node == nil {
			return 0, 0, ""
		}
		if node.Kind == yaml.ScalarNode {
			text = templated().FindString(node.Value)
		}
		return node.Line, node.Column, text
	}
	return 1 + bytes.Count(data[:at[0]], []byte("\n")), at[0] - bytes.LastIndexByte(data[:at[0]], '\n'), text
}

// templateIn finds a template among the values of a document, but not in those that programs read.
func templateIn(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.ScalarNode && templated().MatchString(node.Value) {
		return node
	}
	for i, value := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 && value.Kind == yaml.MappingNode {
			return node // {{ }} without quotes is a mapping with a mapping for its key
		}
		if node.Kind == yaml.MappingNode && i%2 == 1 &&
			slices.Contains([]string{"data", "stringData", "annotations", "args", "command"}, node.Content[i-1].Value) {
			continue
		}
		if found := templateIn(value); found != nil {
			return found
		}
	}
	return nil
}
